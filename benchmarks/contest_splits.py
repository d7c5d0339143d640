"""The data of the contest: six splits of MovieLens by name, and `demo-random` for a try."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evenhand.data.datasets.load import load_dataset, load_split
from evenhand.data.splits import Split
from evenhand.paper.experiment import AUTHORS_FILES, load_published_split
from evenhand.utils.errors import InputError, unknown


def _authors(dataset: str) -> Callable[[str | None], Split]:
    def load(data_dir: str | None) -> Split:
        split = load_published_split(dataset, data_dir, "honest")
        if not split.description.startswith("the authors' split"):
            raise InputError(f"{' and '.join(AUTHORS_FILES)} of {dataset} were not found; put them into --data-dir.")
        return split

    return load


def _random(seed: int) -> Callable[[str | None], Split]:
    return lambda data_dir: load_split("ml-100k", data_dir, test_part="random", seed=seed, download=False)


def _by_time(data_dir: str | None) -> Split:
    return load_dataset("ml-100k", data_dir, download=False).split(test=0.2, validation=0.1, how="time")


SPLITS: Mapping[str, Callable[[str | None], Split]] = {
    "ml-100k-paper": _authors("ml-100k"),
    "ml-100k-random-0": _random(0),
    "ml-100k-random-1": _random(1),
    "ml-100k-random-2": _random(2),
    "ml-100k-time": _by_time,
    "ml-1m-paper": _authors("ml-1m"),
    "demo-random": lambda data_dir: load_split("demo", test_part="random"),
}


def load(name: str, data_dir: str | None) -> Split:
    """Train, validation and test under the honest protocol; pairs count whatever the rating."""
    if name not in SPLITS:
        raise unknown("split", name, SPLITS)
    return SPLITS[name](data_dir)


def dataset_and_split(name: str) -> tuple[str, str]:
    """
    >>> dataset_and_split("ml-100k-random-0")
    ('ml-100k', 'random-0')
    """
    dataset = next(known for known in ("ml-100k", "ml-1m", "demo") if name.startswith(f"{known}-"))
    return dataset, name.removeprefix(f"{dataset}-")
