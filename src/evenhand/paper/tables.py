"""Ours beside the paper's: mean ± std, the printed number, and how many of our stds lie between them.

Of its error the paper says only that scores are normalised and put through a sigmoid. `mse` is the reading that came
closest in a search over fifty; docs/results.md says how well it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.experiments.compare import CompareResult
from evenhand.experiments.results import Document, Run
from evenhand.metrics.statistics import summarise, t_quantile
from evenhand.paper.experiment import SWEEPS, TABLES, published_row
from evenhand.paper.published import LOWER_IS_BETTER, Cell, cells
from evenhand.utils.errors import InputError

PERFORMANCE = ("precision", "recall", "f1", "ndcg", "ohr", "ocr", "uhr", "ucr")
ERRORS_K = 5
"""The paper's FPR and FNR are those of the top 5."""
NEAR = 0.01
"""A printed number this close to our mean counts as near, and an interval reaching further decides nothing."""
_CHUNK_SCORES = 2**22
MOST_CELLS = 2 * 10**9
"""The error takes a score for every cell of users × items; beyond this many, that is not worth the time."""
_MORE = {
    "gamma": ("precision@5", "precision@10", "precision@20"),
    "beta": ("hot_share", "hot_share_first_epoch", "false_share", "false_share_first_epoch"),
}
"""Columns of a sweep that stand there whether the paper prints them or not."""
LEGEND = (
    "ours: mean ± standard deviation over seeds; paper: as printed, with ! where the number cannot be right "
    "or contradicts another (docs/claims.md); difference: ours − paper in our standard deviations."
)


@dataclass(frozen=True)
class Pair:
    """One number of ours and, where the paper has one in its place, the printed one."""

    mean: float | None
    std: float | None
    cell: Cell | None
    seeds: int = 1

    @property
    def difference(self) -> float | None:
        """ours − paper in our standard deviations; None where one of the three is missing."""
        if self.mean is None or not self.std or self.cell is None:
            return None
        return (self.mean - self.cell.value) / self.std

    @property
    def reach(self) -> float | None:
        """How far from our mean one more seed may lie (95 %); None for one seed.

        >>> round(Pair(0.43, 0.001, None, seeds=10).reach, 5)
        0.00237
        """
        if self.std is None or self.seeds < 2:
            return None
        return t_quantile(0.975, self.seeds - 1) * math.sqrt(1 + 1 / self.seeds) * self.std

    @property
    def verdict(self) -> str:
        """What ours says of the printed number.

        `as printed`: it lies in the 95 % interval of one more seed, which reaches at most `NEAR` either way.
        `uncertain`: it lies in that interval, but the interval is wider. `near`: it lies outside, at most `NEAR`
        from our mean. Else ours is `higher` or `lower`. Empty where there is nothing to compare.

        >>> from evenhand.paper.published import cell
        >>> printed = cell("performance", "ml-100k", "mf", "auc-ns", 5, metric="precision")
        >>> [Pair(0.43, std, printed, seeds=10).verdict for std in (0.0005, 0.0012, 0.01)]
        ['near', 'as printed', 'uncertain']
        """
        if self.mean is None or self.cell is None:
            return ""
        gap, reach = self.mean - self.cell.value, self.reach or 0.0
        if abs(gap) <= reach:
            return "as printed" if reach <= NEAR else "uncertain"
        return "near" if abs(gap) <= NEAR else "higher" if gap > 0 else "lower"

    def texts(self) -> tuple[str, str, str]:
        """The pair as three cells of a table.

        >>> from evenhand.paper.published import cell
        >>> printed = cell("performance", "ml-100k", "mf", "auc-ns", 5, metric="precision")
        >>> Pair(0.4301, 0.0017, printed).texts()
        ('.4301 ± .0017', '.4324', '−1.4')
        """
        ours = "–" if self.mean is None else short(self.mean)
        if self.std is not None:
            ours += f" ± {short(self.std)}"
        paper, difference = "–", "–"
        if self.cell is not None:
            paper = short(self.cell.value) + (" !" if self.cell.errata else "")
        if self.difference is not None:
            size = abs(self.difference)
            sign = "−" if self.difference < 0 else "+"
            difference = f"{sign}{size:.0f}" if size >= 99.95 else f"{sign}{size:.1f}"
        return ours, paper, difference


@dataclass(frozen=True)
class Grid:
    """A table of pairs: rows are methods or values, columns are metrics."""

    title: str
    first: str
    """What the rows are."""
    columns: tuple[str, ...]
    rows: dict[str, tuple[Pair, ...]]

    def markdown(self) -> str:
        """Three lines a row, padded so that it also reads well as it stands."""
        lines = [[self.first, "", *map(_heading, self.columns)]]
        for name, pairs in self.rows.items():
            texts = zip(*(pair.texts() for pair in pairs), strict=True)
            kinds = ("ours", "paper", "difference") if any(pair.cell for pair in pairs) else ("ours",)
            for kind, cells_of_kind in zip(kinds, texts, strict=False):
                lines.append([f"`{name}`" if kind == "ours" else "", kind, *cells_of_kind])
        return "\n".join([f"**{self.title}**", "", *_padded(lines)])


def grids(document: Document, part: str | None = None) -> list[Grid]:
    """The tables of one result file: one a k for `overall`, one for `errors` and for every sweep."""
    what = document["identity"]
    part = part or what["part"]
    if part in SWEEPS:
        return [_sweep(document)]
    if part == "errors":
        if ERRORS_K not in what["ks"]:
            raise InputError(f"the error table needs --k {ERRORS_K}; the results have {what['ks']}.")
        return [_grid(document, "errors", {"mse": "mse", "fpr": "fpr@5", "fnr": "fnr@5"}, None, "errors")]
    return [
        _grid(document, "performance", {name: f"{name}@{k}" for name in PERFORMANCE}, k, f"top {k}") for k in what["ks"]
    ]


def title(document: Document) -> str:
    """Which experiment this is, in a line."""
    what = document["identity"]
    seeds = f"{what['seeds']} seed{'s' if what['seeds'] > 1 else ''}"
    return f"{what['dataset']}, {what['encoder']}, {seeds}, protocol {what['protocol']}, settings {what['settings']}"


def _grid(document: Document, table: str, columns: dict[str, str], k: int | None, word: str) -> Grid:
    what = document["identity"]
    printed = {
        (c.method, c.metric): c for c in cells(table, what["dataset"], what["encoder"], k=k) if c.metric in columns
    }
    rows = {}
    for label, entry in document["entries"].items():
        row = published_row(label) or ""
        rows[label] = tuple(pair(entry, key, printed.get((row, metric))) for metric, key in columns.items())
    return Grid(f"{title(document)}, {word}", "method", tuple(columns), rows)


def _sweep(document: Document) -> Grid:
    part = document["identity"]["part"]
    printed = {(c.setting, _key(c)): c for c in cells(TABLES[part])}
    columns = tuple(dict.fromkeys([*(k for _, k in printed if k not in _MORE.get(part, ())), *_MORE.get(part, ())]))
    entries = sorted(document["entries"].items(), key=lambda item: float(item[0]))
    rows = {value: tuple(pair(entry, key, printed.get((value, key))) for key in columns) for value, entry in entries}
    return Grid(f"{title(document)}, {part}", part, columns, rows)


def pair(entry: dict[str, Any], key: str, cell: Cell | None) -> Pair:
    """The metric of a row, as `precision@5` or `mse`, beside a printed cell."""
    found = entry["metrics"].get(key) or {"mean": None, "std": None, "values": ()}
    return Pair(found["mean"], found["std"], cell, len(found["values"]))


def _key(cell: Cell) -> str:
    return f"{cell.metric}@{cell.k}" if cell.k else cell.metric


def _heading(metric: str) -> str:
    name = metric.partition("@")[0].rpartition(" ")[2]
    arrow = " ↓" if name in LOWER_IS_BETTER else " ↑" if "@" in metric else ""
    return f"{metric}{arrow}"


def short(value: float) -> str:
    """Four digits, without the zero before the point."""
    return f"{value:.4f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.4f}"


def markdown(document: Document, part: str | None = None) -> str:
    """All tables of a result file, with how to read them and what made each row."""
    parts = [grid.markdown() for grid in grids(document, part)]
    return "\n\n".join([*parts, LEGEND, made_by(document["entries"])]) + "\n"


def made_by(entries: dict[str, Any]) -> str:
    """A line a row: numbers from where, chosen epochs, seconds, hardware, command."""
    lines = ["| row | numbers | best epochs | seconds | hardware |", "|---|---|---|---|---|"]
    for label, entry in entries.items():
        epochs = _span(entry["chosen_epochs"])
        lines.append(f"| `{label}` | {_numbers(entry)} | {epochs} | {entry['seconds']:g} | {entry['hardware']} |")
    return "\n".join(lines)


def _numbers(entry: dict[str, Any]) -> str:
    if "rival" in entry:
        return entry["source"] + ": " + ", ".join(f"{n} {v}" for n, v in entry["rival"].items())
    used = entry["training"]
    decay = ",".join(map(str, used["milestones"]))
    falls = f", a tenth after {decay}" if decay else ""
    found = entry.get("epochs_found")
    epochs = f"{used['epochs']} epochs at most" if found is None else f"{found} epochs, found on held-out pairs"
    return (
        f"batch {used['batch']}, lr {used['lr']:g}{falls}, weight decay {used['weight_decay']:g}, "
        f"{epochs}; {entry['source']}"
    )


def _span(numbers: Sequence[int]) -> str:
    if not numbers:
        return "–"
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def overview(runs: Sequence[Run], k: int) -> str:
    """Mean ± standard deviation of every run at one cutoff, a table per split; for runs without a published row."""
    parts = []
    for where in dict.fromkeys((run.dataset, run.split) for run in runs):
        mine = [run for run in runs if (run.dataset, run.split) == where]
        keys = [key for key in dict.fromkeys(key for run in mine for key in run.measured) if _shown(key, k)]
        lines = [["method", *map(_heading, keys), "seconds"]]
        for run in mine:
            found = (run.summary(key) if key in run.measured else {"mean": None, "std": None} for key in keys)
            cells_of_run = [Pair(one["mean"], one["std"], None).texts()[0] for one in found]
            lines.append([f"`{'/'.join(filter(None, (run.encoder, run.method)))}`", *cells_of_run, f"{run.seconds:g}"])
        parts.append("\n".join([f"**{' '.join(where)}**", "", *_padded(lines)]))
    return "\n\n".join(parts)


def _shown(key: str, k: int) -> bool:
    name, _, cutoff = key.partition("@")
    return (cutoff in ("", str(k)) and "_" not in name) or " " in key


def _padded(lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    lines = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return [f"| {' | '.join(text.ljust(w) for text, w in zip(line, widths, strict=True))} |" for line in lines]


def mse(user_vectors: Tensor, item_vectors: Tensor, liked: Interactions) -> float:
    """mean over all user × item cells of (σ(z) - y)².

    z is the score, standardised by the mean and the standard deviation of *all* scores; y is 1 for the pairs
    of `liked` (train, validation and test together) and 0 elsewhere. Equal scores everywhere give z = 0.
    """
    users, items = user_vectors.double(), item_vectors.double()
    mean = float(users.mean(0) @ items.mean(0))
    # E[s²] = mean over users of pᵀ (QᵀQ / n) p, so that neither moment needs a pass over all cells.
    square = float(((users @ (items.T @ items / len(items))) * users).sum(1).mean())
    spread = max(square - mean * mean, 0.0) ** 0.5 or 1.0
    total = 0.0
    step = max(1, _CHUNK_SCORES // len(items))
    for begin in range(0, len(users), step):
        total += float(torch.sigmoid((users[begin : begin + step] @ items.T - mean) / spread).square().sum())
    for begin in range(0, len(liked), _CHUNK_SCORES // items.shape[1]):
        end = begin + _CHUNK_SCORES // items.shape[1]
        u, i = (torch.from_numpy(side[begin:end]).long() for side in (liked.users, liked.items))
        total += float((1 - 2 * torch.sigmoid(((users[u] * items[i]).sum(1) - mean) / spread)).sum())
    return total / (len(users) * len(items))


def with_mse(result: CompareResult, split: Split) -> CompareResult:
    """The same comparison with the metric `mse` in every row (of the test part), where it is affordable.

    It is undefined (null) for what has no vectors.
    """
    if split.n_users * split.n_items > MOST_CELLS:
        return result
    found = {label: summarise(mse_per_seed(fit.vectors, split)) for label, fit in result.fits.items()}
    rows = (replace(row, metrics={**row.metrics, "mse": found[row.name]}) for row in result.rows)
    return replace(result, rows=tuple(rows))


def mse_per_seed(vectors: tuple[Tensor, Tensor] | None, split: Split) -> list[float]:
    """One value per seed; undefined for what has no vectors, and where too many cells would have to be scored."""
    if vectors is None or split.n_users * split.n_items > MOST_CELLS:
        return [math.nan]
    liked = split.train.union(split.validation, split.test)
    return [mse(*replica, liked) for replica in zip(*vectors, strict=True)]
