(() => {
  "use strict";
  const said = document.getElementById("said");

  // Sorting: a heading's button orders the rows by that column; missing values stay last.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const given = cell.dataset.value;
    if (given === undefined) return cell.textContent.trim().toLowerCase();
    return given === "" ? null : Number(given);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
  const sort = (button) => {
    const head = button.closest("th");
    const table = button.closest("table");
    const upwards = head.getAttribute("aria-sort") === "descending";
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row, head.cellIndex), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return upwards ? compare(a, b) : compare(b, a);
    });
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", upwards ? "ascending" : "descending");
    body.append(...rows.map(([, row]) => row));
    said.textContent = `Sorted by ${button.firstChild.textContent}, ${upwards ? "lowest" : "highest"} first.`;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    table.addEventListener("click", (event) => {
      const button = event.target.closest("th button");
      if (button) sort(button);
    });
  }

  // Tables that are wider than the page say so; those behind a closed summary are measured when they open.
  const measure = (boxes) => {
    for (const { target } of boxes) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
  };
  const watch = new ResizeObserver(measure);
  for (const box of document.querySelectorAll(".scroll")) watch.observe(box);

  // Tips: what the pointer is on in a chart. The same numbers stand in the table below each chart.
  const tip = document.getElementById("tip");
  const hide = () => { tip.hidden = true; };
  document.addEventListener("pointermove", (event) => {
    const mark = event.target instanceof Element && event.target.closest("svg.chart [data-tip]");
    if (!mark) return hide();
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
  });
  document.addEventListener("pointerleave", hide);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
