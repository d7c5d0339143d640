"""Write down every table of the paper as one tidy CSV, from its LaTeX source, which is not kept here.

python scripts/transcribe_paper.py PAPER.tex [OUT.csv]

Without OUT.csv the packaged file is replaced. Numbers are kept as printed ("0.4620" stays "0.4620"), but for
thousands: "1,682" is 1682 and "80k" is 80000. What is wrong with a cell is found by `errata.py` beside it.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

from errata import find_errata

from evenhand.paper.published import COLUMNS, FILE, Cell

DATASETS = {
    "MovieLens-100K": "ml-100k",
    "MovieLens-100k": "ml-100k",
    "100K": "ml-100k",
    "MovieLens-1M": "ml-1m",
    "1M": "ml-1m",
    "Yahoo!-R3": "yahoo-r3",
    "yahoo": "yahoo-r3",
}
ENCODERS = {"MF": "mf", "LightGCN": "lightgcn"}
METHODS = {
    "RNS": "rns",
    "FairStatic": "fairstatic",
    "DNS": "dns",
    "PNS": "pns",
    "IPS-CN": "ips-cn",
    "MACR": "macr",
    "SAMREG": "samreg",
    "CausE": "cause",
    r"BC\_LOSS": "bc-loss",
    "Proposed": "auc-ns",
}
METRICS = {
    "Pre": "precision",
    "Precision": "precision",
    "Pre@5": "precision",
    "Pre@10": "precision",
    "Recall": "recall",
    "F1": "f1",
    "NDCG": "ndcg",
    "OHR": "ohr",
    "OCR": "ocr",
    "UHR": "uhr",
    "UCR": "ucr",
    "MSE": "mse",
    "FPR": "fpr",
    "FNR": "fnr",
    "Sampled popular item rate": "hot_share",
    "Sampled false negative rate": "false_share",
}
STATISTICS = ("users", "items", "hot_items", "train", "test")
SETTINGS = ("batch", "lr", "lr_decay", "weight_decay", "alpha", "beta", "gamma")
SWEPT = ("ml-100k", "mf", "auc-ns")
"""The sweeps do not say what they are of; their best cells are those of this row of the top-5 table."""

Row = list[str]


def transcribe(source: str) -> list[Cell]:
    """All cells of all tables, in the order of the paper, with their marks and errata."""
    readers = {
        "Overall performance of top-5 recommendation": lambda rows: _performance(rows, "5"),
        "Overall performance of top-10": lambda rows: _performance(rows, "10"),
        "Overall performance of top-20": lambda rows: _performance(rows, "20"),
        "Impact of $": lambda rows: _sweep(rows, "alpha"),
        "The impact of $\\beta": lambda rows: _sweep(rows, "beta"),
        "The impact of $\\gamma": lambda rows: _sweep(rows, "gamma"),
        "Dataset Statistics": _datasets,
        "Parameter settings": _settings,
        "The performance of MSE, FPR, and FNR": _errors,
    }
    cells: list[Cell] = []
    for caption, rows in _tables(source):
        (reader,) = [r for start, r in readers.items() if caption.startswith(start)]
        cells += reader(rows)
    reasons = find_errata(cells)
    return [replace(cell, errata=reasons.get(cell.key, "")) for cell in cells]


def _tables(source: str) -> Iterator[tuple[str, list[Row]]]:
    """Caption and rows of every table; rules between the rows are left out."""
    for table in re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", source, re.DOTALL):
        caption = re.search(r"\\caption\{([^\n]*)", table)
        body = re.search(r"\\begin\{tabular\}\{\w+\}(.*)\\end\{tabular\}", table, re.DOTALL)
        assert caption, table[:200]
        assert body, table[:200]
        plain = re.sub(
            r"\\(toprule|midrule|bottomrule|hline)(\[.*?\])?|\\c(mid|)(rule|line)(\(lr\))?\{[\d-]+\}",
            "",
            body[1],
        )
        lines = [line for line in plain.split(r"\\") if line.strip()]
        yield caption[1], [[cell.strip() for cell in line.split("&")] for line in lines]


def _bare(text: str) -> tuple[str, str]:
    """What a cell says and how it is marked; a mark may end inside the number ("\\textbf{0.114}6")."""
    while spanning := re.search(r"\\multi(row|column)\{[^}]*\}(\[\d+\])?\{[^}]*\}\{", text):
        text = text[spanning.end() :].rstrip("}") + "}" * text[spanning.end() :].count("{")
    mark = "bold" if r"\textbf" in text else "underline" if r"\underline" in text else ""
    return re.sub(r"\\(textbf|underline)\{([^}]*)\}", r"\2", text).strip(), mark


def _named(row: Row, names: dict[str, str], last: str) -> str:
    """The name that stands in one of the cells of a row, or the last one where the cells are empty."""
    found = [names[_bare(cell)[0]] for cell in row if _bare(cell)[0] in names]
    return found[0] if found else last


def _performance(rows: list[Row], k: str) -> Iterator[Cell]:
    head, dataset, encoder = _heading(rows), "", ""
    for row in rows:
        if len(row) != 11 or _bare(row[2])[0] not in METHODS:
            continue
        dataset, encoder = _named(row[:1], DATASETS, dataset), _named(row[1:2], ENCODERS, encoder)
        method = METHODS[_bare(row[2])[0]]
        for metric, cell in zip(head, row[3:], strict=True):
            value, mark = _bare(cell)
            yield Cell("performance", dataset, encoder, method, k, "", "", metric, value, mark)


def _heading(rows: list[Row]) -> list[str]:
    """The metrics of the columns, as the heading has them: UCR stands before UHR."""
    return next(
        [METRICS[_bare(cell)[0]] for cell in row if _bare(cell)[0] in METRICS]
        for row in rows
        if sum(_bare(cell)[0] in METRICS for cell in row) > 4
    )


def _errors(rows: list[Row]) -> Iterator[Cell]:
    encoder = ""
    columns = [(d, m) for d in ("ml-100k", "ml-1m", "yahoo-r3") for m in ("mse", "fpr", "fnr")]
    for row in rows:
        if len(row) != 11 or _bare(row[1])[0] not in METHODS:
            continue
        encoder, method = _named(row[:1], ENCODERS, encoder), METHODS[_bare(row[1])[0]]
        for (dataset, metric), cell in zip(columns, row[2:], strict=True):
            value, mark = _bare(cell)
            # The text says that FPR and FNR are those of the top-5 list; MSE looks at all scores.
            k = "" if metric == "mse" else "5"
            yield Cell("errors", dataset, encoder, method, k, "", "", metric, value, mark)


def _sweep(rows: list[Row], parameter: str) -> Iterator[Cell]:
    settings = [f"{float(_bare(cell)[0]):g}" for cell in rows[0][1:]]
    for row in rows[1:]:
        k = "10" if row[0] == "Pre@10" else "5" if METRICS[row[0]] in ("precision", "ohr") else ""
        for setting, cell in zip(settings, row[1:], strict=True):
            value, mark = _bare(cell)
            yield Cell(parameter, *SWEPT, k, parameter, setting, METRICS[row[0]], value, mark)


def _datasets(rows: list[Row]) -> Iterator[Cell]:
    for row in rows[1:]:
        for metric, cell in zip(STATISTICS, row[1:], strict=True):
            value = cell.replace(",", "").replace("k", "000")
            yield Cell("datasets", DATASETS[row[0]], "", "", "", "", "", metric, value, "")


def _settings(rows: list[Row]) -> Iterator[Cell]:
    for row in rows[1:]:
        dataset, encoder = row[0].split("-")
        for metric, text in zip(SETTINGS, row[1:], strict=True):
            value, _, epochs = text.rstrip("]").partition("[")
            at = ("milestones", epochs) if epochs else ("", "")
            yield Cell("settings", DATASETS[dataset], ENCODERS[encoder], "auc-ns", "", *at, metric, value, "")


def main(arguments: list[str]) -> None:
    source, out = Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else FILE
    cells = transcribe(source.read_text(encoding="utf-8"))
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(astuple(cell) for cell in cells)
    print(f"{len(cells):,} cells, {sum(bool(c.errata) for c in cells)} with errata, written to {out}")


if __name__ == "__main__":
    main(sys.argv[1:])
