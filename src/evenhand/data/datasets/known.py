"""The catalogue of datasets known by name: what each is, whose it is, and which files make it up.

Data, not code: a new dataset is one entry here and, if its layout is new, one function in `layouts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.data.datasets import layouts
from evenhand.data.datasets.fetch import cache_folder
from evenhand.data.datasets.layouts import Parts

if TYPE_CHECKING:
    import pyarrow as pa

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
        read=layouts.adjacency,
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
            read=layouts.movielens_100k,
            read_titles=layouts.movielens_100k_titles,
            md5="0e33842e24a9c977be4e0107933c0723",
            room=30_000_000,
        ),
        DatasetInfo(
            name="ml-1m",
            title="MovieLens 1M: 6,040 users, 3,706 films, 1,000,209 ratings",
            source="https://grouplens.org/datasets/movielens/1m/",
            licence=_MOVIELENS_TERMS,
            files=("ratings.dat",),
            read=layouts.movielens_1m,
            read_titles=layouts.movielens_1m_titles,
            md5="c4d9eecfca2ab87c1945afe126590906",
            room=40_000_000,
        ),
        DatasetInfo(
            name="yahoo-r3",
            title="Yahoo! Music R3: self-selected ratings, and ratings of songs shown at random",
            source="https://webscope.sandbox.yahoo.com (dataset R3)",
            licence="Licensed to each signatory by Yahoo Webscope; may not be passed on.",
            files=(layouts.YAHOO_TRAIN, layouts.YAHOO_TEST),
            test_parts=("random", "randomised"),
            read=layouts.yahoo_r3,
        ),
        DatasetInfo(
            name="coat",
            title="Coat Shopping: 290 users, 300 coats, self-selected and randomised ratings",
            source="https://www.cs.cornell.edu/~schnabts/mnar/",
            licence=_READ_ONLY_TERMS,
            files=("train.ascii", "test.ascii"),
            test_parts=("randomised", "random"),
            read=layouts.coat,
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
            read=layouts.timed_log,
        ),
    )
}
