"""The datasets known by name: what they are, where they are found, and how they become interactions.

None of them is shipped. MovieLens is downloaded from its publisher; the others are read from a copy that the
user has the right to use; `demo` is made on the spot by the simulator.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.datasets.fetch import Progress, UnreachableError, cache_folder, folder_with, install_archive, unpack
from evenhand.data.datasets.known import DATASETS, DatasetInfo, Parts
from evenhand.data.interactions import Interactions
from evenhand.data.simulate import Simulation, simulate
from evenhand.data.splits import Split, given_split
from evenhand.utils.errors import InputError, unknown

Place = str | os.PathLike[str] | None
"""Where a dataset is looked for first."""
GROUPLENS_URL = "https://files.grouplens.org/datasets/movielens/"


@cache
def demo_simulation() -> Simulation:
    """The fixed world behind the `demo` dataset."""
    return simulate()


def load_dataset(
    name: str,
    data_dir: Place = None,
    *,
    min_rating: float | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Interactions:
    """All of a named dataset as one pool of interactions, whatever the rating, unless `min_rating` is given.

    It is looked for in `data_dir` (the file or folder itself, or data_dir/name), then in the cache folder;
    MovieLens is otherwise downloaded. The pool of yahoo-r3 is, as in published work, both kinds of
    ratings of those users who have both.
    """
    if _info(name).name == "demo":
        _refuse_ratings(min_rating)
        return demo_simulation().log.with_notes("Simulated; the truth of every pair is known.")
    return as_interactions(_pool(name, _read(name, data_dir, min_rating, download, progress)))


def load_split(
    name: str,
    data_dir: Place = None,
    *,
    test_part: str | None = None,
    test: float = 0.2,
    validation: float = 0.1,
    validation_how: str | None = None,
    seed: int = 0,
    min_rating: float | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Split:
    """A named dataset, split; `test_part` says what is held out as the test, by default the first that it has.

    "random" is a random share `test` of the pool, "randomised" (yahoo-r3, coat) what was shown at random, "uniform"
    (demo) likewise, "given" (gowalla, yelp2018, …) the published split. With a part of its own as the test, `test` has
    no effect. Where there are several and none was named, a note says which it is. `validation_how` is the rule by
    which validation is drawn (see `split_rules.RULES`), by default at random.
    """
    info = _info(name)
    part = info.test_parts[0] if test_part is None else test_part
    if part not in info.test_parts:
        raise unknown(f"test part of {name}", part, info.test_parts)
    if part == "random":
        pool = load_dataset(name, data_dir, min_rating=min_rating, download=download, progress=progress)
        split = pool.split(test=test, validation=validation, validation_how=validation_how, seed=seed)
    else:
        if name == "demo":
            _refuse_ratings(min_rating)
            train, given = demo_simulation().log, demo_simulation().uniform_test
        else:
            parts = _read(name, data_dir, min_rating, download, progress)
            assert parts.test is not None
            train, given = as_interactions(parts.log), as_interactions(parts.test)
        split = given_split(train, given, validation=validation, validation_how=validation_how, seed=seed)
        if part == "randomised" and min_rating is None:
            note = "The test part is all that was shown, liked or not; --min-rating 4 (min_rating=4) keeps the liked."
            split = replace(split, notes=(*split.notes, note))
    if test_part is not None or len(info.test_parts) == 1:
        return split
    others = " or ".join(info.test_parts[1:])
    note = f"The test part of {name} is '{part}'; test_part= (--test-part) chooses {others}."
    return replace(split, notes=(*split.notes, note))


def item_titles(
    name: str, data_dir: Place = None, *, download: bool = True, progress: Progress | None = None
) -> pa.Table:
    """The titles of a dataset's items: item, title, genres (a list). Only the MovieLens sets have them."""
    info = _info(name)
    if info.read_titles is None:
        raise InputError(f"{name} has no titles; ml-100k and ml-1m have.")
    with _folder(info, data_dir, download, progress) as folder:
        try:
            return info.read_titles(folder)
        except FileNotFoundError as error:
            raise InputError(f"{error.filename} is missing; it holds the titles of {name}.") from error


def fetch_dataset(name: str, *, progress: Progress | None = None) -> Path:
    """See to it that a downloadable dataset lies in the cache folder, and return its folder."""
    info = _info(name)
    if not info.files:
        raise InputError(f"{name} is {info.how_to_get}")
    present = folder_with(cache_folder() / name, name, info.files)
    return present or _download(info, progress)


def list_datasets(data_dir: Place = None) -> list[DatasetInfo]:
    """Every dataset known by name, with the place where it was found, if any."""
    return [replace(info, found=_locate(info, data_dir)) for info in DATASETS.values()]


def _info(name: str) -> DatasetInfo:
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    return DATASETS[name]


def _refuse_ratings(min_rating: float | None) -> None:
    if min_rating is not None:
        raise InputError("min_rating cannot be used with demo: it has no ratings.")


def _read(name: str, data_dir: Place, min_rating: float | None, download: bool, progress: Progress | None) -> Parts:
    info = _info(name)
    assert info.read is not None
    with _folder(info, data_dir, download, progress) as folder:
        parts = info.read(folder)
    if min_rating is None:
        return parts
    if "rating" not in parts.log.column_names:
        raise InputError("min_rating cannot be used here: this dataset has no ratings.")
    given = [part for part in (parts.log, parts.test) if part is not None]
    return Parts(*(part.filter(pc.greater_equal(part["rating"], min_rating)) for part in given))


def _pool(name: str, parts: Parts) -> pa.Table:
    """The rows of both parts; a column is kept where both have it."""
    log, test = parts.log, parts.test
    if test is None:
        return log
    if name == "yahoo-r3":
        log = log.filter(pc.is_in(log["user"], value_set=test["user"].unique()))
    shared = [column for column in log.column_names if column in test.column_names]
    return pa.concat_tables([log.select(shared), test.select(shared)])


def as_interactions(table: pa.Table) -> Interactions:
    """The rows as pairs over just the users and items that occur in them."""
    user_ids, users = np.unique(table["user"], return_inverse=True)
    item_ids, items = np.unique(table["item"], return_inverse=True)
    more = {f"{name}s": table[name].to_numpy() for name in ("rating", "timestamp") if name in table.column_names}
    return Interactions.from_pairs(users, items, user_ids=pa.array(user_ids), item_ids=pa.array(item_ids), **more)


@contextmanager
def _folder(info: DatasetInfo, data_dir: Place, download: bool, progress: Progress | None) -> Iterator[Path]:
    """The folder with the dataset's files, for as long as the context lasts."""
    place = _locate(info, data_dir)
    if place is None:
        if info.md5 is None or not download:
            raise InputError(f"{info.name} was not found; {info.how_to_get}")
        place = _download(info, progress)
    if place.is_dir():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="evenhand-") as work:
        try:
            unpack(place, Path(work))
        except OSError as error:
            raise InputError(f"{place} cannot be unpacked: {error.strerror or error}.") from error
        folder = folder_with(Path(work), info.name, info.files)
        if folder is None:
            raise InputError(f"{place} is not {info.name}: it holds no {' and '.join(info.files)}.")
        yield folder


def _locate(info: DatasetInfo, data_dir: Place) -> Path | None:
    """The folder or zip file of a dataset in `data_dir` or in the cache folder."""
    if not info.files:
        return None
    if data_dir is not None:
        given = Path(data_dir).expanduser()
        if not given.exists():
            raise InputError(f"data_dir {given} does not exist.")
        if given.is_file():
            if given.suffix == ".zip":
                return given
            if given.name not in info.files or not all((given.parent / f).is_file() for f in info.files):
                raise InputError(f"{given} is not {info.name}; {info.how_to_get}")
            return given.parent
        if (found := _from_folder(info, given)) is not None:
            return found
    return _from_folder(info, cache_folder())


def _from_folder(info: DatasetInfo, root: Path) -> Path | None:
    archives = (root / f"{info.name}.zip", root / info.name / f"{info.name}.zip")
    return folder_with(root, info.name, info.files) or next((a for a in archives if a.is_file()), None)


def _download(info: DatasetInfo, progress: Progress | None) -> Path:
    if info.md5 is None:
        raise InputError(f"{info.name} cannot be downloaded; {info.how_to_get}")
    base = os.environ.get("EVENHAND_GROUPLENS_URL", GROUPLENS_URL)
    url = f"{base.rstrip('/')}/{info.name}.zip"
    try:
        return install_archive(url, cache_folder(), info.name, info.files, info.md5, info.room, progress)
    except UnreachableError as error:
        raise InputError(
            f"{error}; get {info.name}.zip some other way and put it into {cache_folder()}, "
            "or pass its folder as data_dir."
        ) from error
