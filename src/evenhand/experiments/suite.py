"""What a benchmark runs on: tests of known data sets with what is published for them, and tests of anyone's log.

The known ones are data, in `suite.toml`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from evenhand.data.datasets.known import DATASETS
from evenhand.data.datasets.load import list_datasets, load_dataset, load_split
from evenhand.data.describe import fingerprint
from evenhand.data.reading.read import column_names, read_interactions
from evenhand.data.reading.sources import given_parts
from evenhand.data.splits import Split, given_split
from evenhand.experiments.verdict import AIMS
from evenhand.utils.errors import InputError, unknown

FILE = Path(__file__).with_name("suite.toml")
TEST, VALIDATION = 0.2, 0.1
"""Shares, where a rule draws the part."""
QUESTIONS: Mapping[str, str] = {
    **{name: one.title for name, one in AIMS.items()},
    "exposure": "shows what users would like if shown at random",
    "given": "predicts the given test",
}
"""Every kind of test by name, and what it asks of a method."""


@dataclass(frozen=True)
class Published:
    """A number of others, as they printed it."""

    method: str
    recall: float | None
    ndcg: float | None
    source: str
    """Its key in `sources`."""


@dataclass(frozen=True)
class Source:
    """Where published numbers stand."""

    title: str
    url: str
    chosen_on: str
    """Where hyperparameters and epochs were chosen: validation, test, or unknown."""


@dataclass(frozen=True)
class Test:
    """A test part, how it comes about, and what is published for it."""

    __test__ = False  # for pytest

    set: str
    """What the data is called."""
    test: str
    """A name of `QUESTIONS`."""
    how: str
    """The rule that draws the test part, or given."""
    validation: str | None = None
    """The rule that draws validation; None leaves it to `given_split`."""
    dataset: str | None = None
    folder: str | None = None
    """In the data directory; with `files`."""
    files: tuple[str, ...] = ()
    """Train, then test; or one log."""
    reading: tuple[tuple[str, Any], ...] = ()
    """Options of `read_interactions` for files."""
    min_rating: float | None = None
    note: str = ""
    divide_by: float = 1.0
    """Published values are divided by this to compare with ours."""
    published: tuple[Published, ...] = field(default=(), repr=False)
    content: str = ""
    """The fingerprint of a log that belongs to no suite."""

    @property
    def key(self) -> tuple[str, str]:
        return self.set, self.test

    def missing(self, data_dir: str | None) -> str | None:
        """Why it cannot be run on this machine; None where it can."""
        if self.dataset is not None:
            info = next(one for one in list_datasets(data_dir) if one.name == self.dataset)
            return None if info.found or not info.files else f"{info.name} was not found; {info.how_to_get}"
        absent = [file for file in self.paths(data_dir) if self.folder is not None and not Path(file).is_file()]
        return f"there is no {absent[0]}." if absent else None

    def paths(self, data_dir: str | None) -> list[str]:
        """The files that it reads, where it reads files."""
        place = "" if self.folder is None else f"{data_dir or 'data'}/{self.folder}/"
        return [place + file for file in self.files]

    def split(self, data_dir: str | None) -> Split:
        """Read and split; the same each time."""
        if self.dataset is not None and self.how == "given":
            info = DATASETS[self.dataset]
            part = next(name for name in info.test_parts if name != "random")
            how: dict[str, Any] = {"validation_how": self.validation, "min_rating": self.min_rating}
            return load_split(self.dataset, data_dir, test_part=part, validation=VALIDATION, download=False, **how)
        if self.dataset is not None:
            log = load_dataset(self.dataset, data_dir, min_rating=self.min_rating, download=False)
        else:
            parts = [
                read_interactions(path, **dict(self.reading), allow_small=place > 0)
                for place, path in enumerate(self.paths(data_dir))
            ]
            if self.how == "given":
                return given_split(*parts, validation=VALIDATION, validation_how=self.validation)
            log = parts[0]
            if len(parts) > 1:
                both = given_split(*parts)
                log = both.train.union(both.test)
        split = log.split(test=TEST, validation=VALIDATION, how=self.how, validation_how=self.validation)
        return replace(split, notes=(*log.notes, *split.notes))

    def identity(self) -> dict[str, Any]:
        """What decides the pairs of its parts."""
        names = ("how", "validation", "dataset", "folder", "files", "min_rating", "content")
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in names}


@dataclass(frozen=True)
class Suite:
    """Tests, and the sources of what is published for them."""

    tests: tuple[Test, ...]
    sources: Mapping[str, Source]

    def named(self, names: Sequence[str], tests: Sequence[str] | None = None) -> tuple[Test, ...]:
        """Its tests of these data sets (all where none is named), of these kinds."""
        wanted = {name.lower() for name in names}
        return tuple(
            one
            for one in self.tests
            if (not wanted or wanted & {one.set.lower(), one.dataset, one.folder}) and (not tests or one.test in tests)
        )


@cache
def known_suite() -> Suite:
    with FILE.open("rb") as file:
        content = tomllib.load(file)
    sources = {name: Source(**one) for name, one in content["sources"].items()}
    return Suite(tuple(_test(one) for one in content["tests"]), sources)


def own_tests(data: str, tests: Sequence[str] | None, reading: Mapping[str, Any]) -> tuple[Test, ...]:
    """The tests of a file or a folder; each is tried, so that what is wrong with the log is said before the first fit.

    A folder with train and test files has the test `given`; other tests pool its pairs. Without `tests`: that, or iid,
    shift, and time where there are timestamps.
    """
    if data == "-":
        raise InputError("a benchmark reads the data once for each method, so standard input will not do; name a file.")
    parts = given_parts(data)
    if "validation" in parts:
        raise InputError(
            f"'{data}' holds {parts['validation'].name}; a benchmark draws validation out of train itself."
        )
    files = tuple(str(parts[name]) for name in ("train", "test")) if parts else (data,)
    values = tuple((name, value) for name, value in reading.items() if value is not None)
    if not tests:
        timed = reading.get("timestamp") or "timestamp" in column_names(files[0])
        tests = ("given",) if parts else ("iid", "shift", *(("time",) if timed else ()))
    found = []
    for name in tests:
        if name != "given" and name not in AIMS:
            raise unknown("test of a log", name, (*AIMS, *(("given",) if parts else ())))
        if name == "given" and not parts:
            raise InputError(f"'{data}' holds no train and test files, so it has no given test.")
        how = "given" if name == "given" else AIMS[name].how
        one = Test(Path(data).stem, name, how, None if how == "given" else how, files=files, reading=values)
        pairs = one.split(None).parts().values()
        found.append(replace(one, content=" ".join(fingerprint(part) for part in pairs)))
    return tuple(found)


def dataset_tests(name: str, tests: Sequence[str] | None, data_dir: str | None) -> tuple[Test, ...]:
    """The tests of a data set that is known by name and not in the suite: of its own part, where it has one."""
    own = [part for part in DATASETS[name].test_parts if part != "random"]
    parts: dict[str, tuple[str, str | None]] = (
        {"given": ("given", None)} if "given" in own else {"exposure": ("given", "popularity-shift")} if own else {}
    )
    parts |= {test: (aim.how, aim.how) for test, aim in AIMS.items()}
    names = tests or (*(test for test in parts if test not in AIMS), "iid", "shift")
    for test in names:
        if test not in parts:
            raise unknown(f"test of {name}", test, parts)
    found = tuple(Test(name, test, *parts[test], dataset=name) for test in names)
    for one in found:
        if (why := one.missing(data_dir)) is not None:
            raise InputError(why)
    return found


def tests_named(text: str | None) -> tuple[str, ...] | None:
    """`iid,shift` as names of `QUESTIONS`; None for all."""
    if text is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in QUESTIONS:
            raise unknown("test", name, QUESTIONS)
    if not names:
        raise InputError(f"name one or more tests: {', '.join(QUESTIONS)}.")
    return names


def _test(values: Mapping[str, Any]) -> Test:
    rows = [
        Published(name, None if math.isnan(recall) else recall, None if math.isnan(ndcg) else ndcg, source)
        for name, recall, ndcg, source in values.get("published", ())
    ]
    return Test(**{**values, "published": tuple(rows), "files": tuple(values.get("files", ()))})
