"""The data of a part: the split that the authors published where it is at hand, else a split like theirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evenhand.data.datasets.fetch import cache_folder
from evenhand.data.datasets.load import load_split
from evenhand.data.reading.read import read_interactions
from evenhand.data.splits import Split, given_split
from evenhand.training.settings import ProtocolName
from evenhand.utils.errors import InputError

AUTHORS_FILES = ("paper_train.csv", "paper_test.csv")
"""Names under which the authors' split of a data set is looked for; columns user,item[,rating]."""
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1


def load_part(dataset: str, data_dir: str | None, protocol: ProtocolName) -> Split:
    """Train and test as the paper had them; the honest protocol takes its validation part out of train.

    `data_dir/name`, `data_dir` and the cache folder are searched for the authors' two files. Where they are
    not, a random fifth of the pool is the test part.
    """
    if data_dir is not None and not Path(data_dir).expanduser().exists():
        raise InputError(f"--data-dir {data_dir} does not exist.")
    validation = VALIDATION_SHARE if protocol == "honest" else 0.0
    folder = _authors_folder(dataset, data_dir)
    if folder is None:
        return load_split(dataset, data_dir, test_part="random", test=TEST_SHARE, validation=validation)
    train, test = (
        read_interactions(str(folder / name), user="user", item="item", allow_small=True) for name in AUTHORS_FILES
    )
    split = given_split(train, test, validation=validation)
    return replace(split, description=f"the authors' split: {split.description}")


def _authors_folder(dataset: str, data_dir: str | None) -> Path | None:
    places = [cache_folder() / dataset]
    if data_dir is not None:
        root = Path(data_dir).expanduser()
        places = [root / dataset, root, *places]
    for place in places:
        if all((place / name).is_file() for name in AUTHORS_FILES):
            return place
    return None
