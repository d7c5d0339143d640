"""The datasets known by name: what each is, whose it is, and how its publisher lays out its files.

A new dataset is one entry in `DATASETS` and, if its layout is new, one function that takes a folder and returns plain
tables with the publisher's own ids; what is train, test or pool is decided by `load`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from evenhand.data.datasets.fetch import cache_folder
from evenhand.data.reading.columns import Column
from evenhand.data.reading.read import read_columns
from evenhand.data.reading.sources import find_files
from evenhand.data.reading.text_files import read_item_lines
from evenhand.utils.errors import InputError

YAHOO_TRAIN = "ydata-ymusic-rating-study-v1_0-train.txt"
YAHOO_TEST = "ydata-ymusic-rating-study-v1_0-test.txt"
COAT_SHAPE = (290, 300)
_MOST_DIGITS = 18
"""Of an id that fits into 64 bits."""
_GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
"""In the order of their flags in u.item."""


@dataclass(frozen=True, eq=False)
class Parts:
    """What a publisher ships: a log and, in some datasets, a test part of its own.

    Both have the columns user and item in the publisher's ids and, where known, rating and timestamp.
    """

    log: pa.Table
    test: pa.Table | None = None


def coat(folder: Path) -> Parts:
    """Coats users chose to rate, and coats they were shown at random; a matrix each, 0 for no rating."""
    return Parts(_matrix(folder / "train.ascii"), _matrix(folder / "test.ascii"))


def adjacency(folder: Path) -> Parts:
    """Published splits for graph recommenders: a user a line, followed by their items."""
    return Parts(_item_lines(folder / "train.txt"), _item_lines(folder / "test.txt"))


def _titles(path: Path, separator: str, fields: int, genres: Callable[[list[str]], list[str]]) -> pa.Table:
    """Lines of an id, a title and more `fields`, which say the genres."""
    rows = []
    for number, line in enumerate(path.read_text("latin-1").split("\n"), start=1):
        if not line.strip():
            continue
        row = line.rstrip("\r").split(separator)
        if len(row) < fields or not (row[0].encode().isdigit() and len(row[0]) <= _MOST_DIGITS):
            raise InputError(f"'{path}', line {number}: expected an id, a title and genres between '{separator}'.")
        rows.append({"item": int(row[0]), "title": row[1], "genres": genres(row)})
    kinds = {"item": pa.int64(), "title": pa.string(), "genres": pa.list_(pa.string())}
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def movielens_100k_titles(folder: Path) -> pa.Table:
    def flagged(row: list[str]) -> list[str]:
        return [genre for genre, flag in zip(_GENRES_100K, row[5:], strict=False) if flag == "1"]

    return _titles(folder / "u.item", "|", 5 + len(_GENRES_100K), flagged)


def movielens_1m_titles(folder: Path) -> pa.Table:
    return _titles(folder / "movies.dat", "::", 3, lambda row: row[2].split("|"))


def _item_lines(path: Path) -> pa.Table:
    users, items, order = read_item_lines(find_files(path)[0])
    return pa.table({"user": users, "item": items} | ({} if order is None else {"timestamp": order}))


def _rows(path: Path, *numbers: Literal["rating", "timestamp"], header: bool = False) -> pa.Table:
    """Rows of user, item and these numbers."""
    columns = [Column("user", "id", "user"), Column("item", "id", "item")]
    columns += [Column(name, "number" if name == "rating" else "time", name) for name in numbers]
    table = read_columns(path, columns, header=header)
    for name in ("user", "item"):
        if not pa.types.is_integer(table.schema.field(name).type.value_type):
            raise InputError(f"'{path}' has {name} ids that are not whole numbers; is it the right file?")
    return pa.table({c.role: table[c.role].cast(pa.int64() if c.kind == "id" else pa.float64()) for c in columns})


def _matrix(path: Path) -> pa.Table:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of, an empty file, is reported below
            matrix = np.loadtxt(path, dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise InputError(f"'{path}' is not a matrix of numbers ({' '.join(str(error).split())}).") from error
    if matrix.shape != COAT_SHAPE:
        wanted, found = ("{} rows × {} columns".format(*shape) for shape in (COAT_SHAPE, matrix.shape))
        raise InputError(f"'{path}' has {found}, but Coat's matrices have {wanted}; is it the right file?")
    if not np.isin(matrix, np.arange(6)).all():
        row, column = np.argwhere(~np.isin(matrix, np.arange(6)))[0]
        raise InputError(
            f"'{path}', line {row + 1}, column {column + 1}: a rating is 0 (none) to 5, not {matrix[row, column]:g}."
        )
    users, items = np.nonzero(matrix)
    return pa.table({"user": users, "item": items, "rating": matrix[users, items]})


_MOVIELENS_TERMS = (
    "Free for research with acknowledgement (Harper and Konstan, The MovieLens Datasets, 2015); "
    "no redistribution or commercial use without permission."
)
_READ_ONLY_TERMS = "Ask its publisher; evenhand only reads your own copy."


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a dataset before it is read."""

    name: str
    title: str
    source: str
    licence: str
    files: tuple[str, ...] = ()
    """The files that make it up; none for the simulated one."""
    test_parts: tuple[str, ...] = ("random",)
    """What `load_split` can test on, the default first: a random share, or a part the publisher gives."""
    read: Callable[[Path], Parts] | None = None
    read_titles: Callable[[Path], pa.Table] | None = None
    md5: str | None = None
    """Of the publisher's archive, name.zip; None where it cannot be downloaded."""
    room: int = 0
    """Bytes that the archive and its content need."""
    found: Path | None = None
    """Where it lies, as `list_datasets` saw it; None if nowhere (`demo` needs no place)."""

    @property
    def how_to_get(self) -> str:
        """One sentence that says how to come by the dataset."""
        if not self.files:
            return "made by the simulator, nothing to get."
        files, folder = " and ".join(self.files), cache_folder() / self.name
        by_hand = f"put {files} into {folder}, or pass their folder as data_dir."
        if self.md5 is not None:
            return f"downloaded when first used; without a network, {by_hand}"
        return f"get it from {self.source}, then {by_hand}"


_LIGHTGCN = "https://github.com/gusye1234/LightGCN-PyTorch (data/{})"
_IR_BENCHMARK = "https://github.com/Tiny-Snow/IR-Benchmark-Dataset ({})"


def _published(name: str, title: str, source: str) -> DatasetInfo:
    """A split as it was published for graph recommenders."""
    return DatasetInfo(
        name=name,
        title=title,
        source=source.format(name),
        licence=_READ_ONLY_TERMS,
        files=("train.txt", "test.txt"),
        test_parts=("given", "random"),
        read=adjacency,
    )


DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo(
            name="demo",
            title="Simulated: 1,000 users, 1,500 items, about 60,000 pairs, truth known",
            source="evenhand.data.simulate",
            licence="None needed: no real person's data.",
            test_parts=("random", "uniform"),
        ),
        DatasetInfo(
            name="ml-100k",
            title="MovieLens 100K: 943 users, 1,682 films, 100,000 ratings",
            source="https://grouplens.org/datasets/movielens/100k/",
            licence=_MOVIELENS_TERMS,
            files=("u.data",),
            read=lambda folder: Parts(_rows(folder / "u.data", "rating", "timestamp")),
            read_titles=movielens_100k_titles,
            md5="0e33842e24a9c977be4e0107933c0723",
            room=30_000_000,
        ),
        DatasetInfo(
            name="ml-1m",
            title="MovieLens 1M: 6,040 users, 3,706 films, 1,000,209 ratings",
            source="https://grouplens.org/datasets/movielens/1m/",
            licence=_MOVIELENS_TERMS,
            files=("ratings.dat",),
            read=lambda folder: Parts(_rows(folder / "ratings.dat", "rating", "timestamp")),
            read_titles=movielens_1m_titles,
            md5="c4d9eecfca2ab87c1945afe126590906",
            room=40_000_000,
        ),
        DatasetInfo(
            name="yahoo-r3",
            title="Yahoo! Music R3: self-selected ratings, and ratings of songs shown at random",
            source="https://webscope.sandbox.yahoo.com (dataset R3)",
            licence="Licensed to each signatory by Yahoo Webscope; may not be passed on.",
            files=(YAHOO_TRAIN, YAHOO_TEST),
            test_parts=("random", "randomised"),
            read=lambda folder: Parts(_rows(folder / YAHOO_TRAIN, "rating"), _rows(folder / YAHOO_TEST, "rating")),
        ),
        DatasetInfo(
            name="coat",
            title="Coat Shopping: 290 users, 300 coats, self-selected and randomised ratings",
            source="https://www.cs.cornell.edu/~schnabts/mnar/",
            licence=_READ_ONLY_TERMS,
            files=("train.ascii", "test.ascii"),
            test_parts=("randomised", "random"),
            read=coat,
        ),
        _published("gowalla", "Gowalla check-ins, the split that most graph recommenders use", _LIGHTGCN),
        _published("yelp2018", "Yelp 2018 reviews, the split that most graph recommenders use", _LIGHTGCN),
        _published("amazon-electronic", "Amazon Electronics, test drawn at random", _IR_BENCHMARK),
        _published(
            "amazon-electronic-popularity-shift", "Amazon Electronics, test drawn uniformly over items", _IR_BENCHMARK
        ),
        _published("amazon-electronic-temporal-shift", "Amazon Electronics, test is what came last", _IR_BENCHMARK),
        DatasetInfo(
            name="amazon-beauty",
            title="Amazon Beauty reviews with days, unsplit: log.csv of user, item, timestamp",
            source="https://jmcauley.ucsd.edu/data/amazon/",
            licence=_READ_ONLY_TERMS,
            files=("log.csv",),
            read=lambda folder: Parts(_rows(folder / "log.csv", "timestamp", header=True)),
        ),
    )
}
