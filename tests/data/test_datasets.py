"""Named datasets: publishers' layouts read right, downloads whole or not there, mistakes one sentence.

Every file here is generated in the publisher's layout; no real data is needed.
"""

import functools
import hashlib
import http.server
import io
import shutil
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evenhand.data.datasets import fetch
from evenhand.data.datasets import known as catalogue
from evenhand.data.datasets import load as named
from evenhand.data.datasets.known import YAHOO_TEST, YAHOO_TRAIN
from evenhand.data.datasets.load import (
    demo_simulation,
    fetch_dataset,
    item_titles,
    list_datasets,
    load_dataset,
    load_split,
)
from evenhand.data.describe import describe
from evenhand.data.interactions import Interactions
from evenhand.utils.errors import InputError

U_DATA = "10\t7\t5\t300\n2\t7\t1\t100\n2\t30\t4\t200\n"
FLAGS = "0|0|0|1|0|1" + "|0" * 13
U_ITEM = f"7|Amélie (2001)|25-Apr-2001||http://x|{FLAGS}\n30|Who? (1999)|||http://x|1{'|0' * 18}\n"
RATINGS_DAT = "1::1193::5::978300760\n2::661::3::978302109\n"
MOVIES_DAT = "661::James: The Peach (1996)::Animation|Musical\n1193::Café (1975)::Drama\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EVENHAND_GROUPLENS_URL", "http://127.0.0.1:9")  # nobody listens there
    return tmp_path / "cache"


class Publisher(SimpleNamespace):
    """A local web server that hands out the files of one folder."""

    folder: Path

    def publish(self, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch, md5: str | None = None) -> None:
        (self.folder / f"{name}.zip").write_bytes(content)
        pinned = hashlib.md5(content).hexdigest() if md5 is None else md5
        monkeypatch.setitem(catalogue.DATASETS, name, replace(catalogue.DATASETS[name], md5=pinned))


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self.path.endswith("broken.zip"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"only this")
        return None


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("EVENHAND_GROUPLENS_URL", url)
        yield Publisher(folder=folder, url=url)
        server.shutdown()


def zipped(files: dict[str, str], encoding: str = "latin-1") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text.encode(encoding))
    return buffer.getvalue()


def written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode("latin-1"))
    return folder


def ids(data: Interactions) -> set[tuple[int, int]]:
    table = data.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


# Layouts


def test_movielens_100k_from_a_folder(tmp_path: Path) -> None:
    written(tmp_path / "ml-100k", {"u.data": U_DATA, "u.item": U_ITEM})
    for place in (tmp_path, tmp_path / "ml-100k", tmp_path / "ml-100k" / "u.data"):
        data = load_dataset("ml-100k", place)
        assert data.to_table().to_pydict() == {
            "user": [2, 2, 10],
            "item": [7, 30, 7],
            "rating": [1.0, 4.0, 5.0],
            "timestamp": [100.0, 200.0, 300.0],
        }
    assert ids(load_dataset("ml-100k", tmp_path, min_rating=4)) == {(2, 30), (10, 7)}
    assert item_titles("ml-100k", tmp_path).to_pylist() == [
        {"item": 7, "title": "Amélie (2001)", "genres": ["Animation", "Comedy"]},
        {"item": 30, "title": "Who? (1999)", "genres": ["unknown"]},
    ]


def test_movielens_1m_from_the_zip_as_published(tmp_path: Path, cache: Path) -> None:
    archive = tmp_path / "ml-1m.zip"
    archive.write_bytes(zipped({"ml-1m/ratings.dat": RATINGS_DAT, "ml-1m/movies.dat": MOVIES_DAT}))
    for place in (tmp_path, archive):
        assert ids(load_dataset("ml-1m", place)) == {(1, 1193), (2, 661)}
    titles = item_titles("ml-1m", archive)
    assert titles["title"].to_pylist() == ["James: The Peach (1996)", "Café (1975)"]
    assert titles["genres"].to_pylist() == [["Animation", "Musical"], ["Drama"]]
    assert not cache.exists()


def yahoo(folder: Path) -> Path:
    chosen = "1\t14\t5\n1\t35\t1\n2\t14\t3\n3\t99\t4\n"
    shown = "1\t49\t1\n2\t35\t2\n"
    return written(folder, {YAHOO_TRAIN: chosen, YAHOO_TEST: shown})


def test_yahoo_pools_the_users_with_both_kinds_of_ratings(tmp_path: Path) -> None:
    pool = load_dataset("yahoo-r3", yahoo(tmp_path / "yahoo-r3"))
    assert ids(pool) == {(1, 14), (1, 35), (2, 14), (1, 49), (2, 35)}
    assert pool.user_ids.to_pylist() == [1, 2]
    assert pool.item_ids.to_pylist() == [14, 35, 49]


def test_yahoo_randomised_keeps_every_user_and_the_randomised_part_apart(tmp_path: Path) -> None:
    split = load_split("yahoo-r3", yahoo(tmp_path), test_part="randomised", validation=0.0)
    assert ids(split.train) == {(1, 14), (1, 35), (2, 14), (3, 99)}
    assert ids(split.test) == {(1, 49), (2, 35)}
    assert split.train.item_ids.to_pylist() == split.test.item_ids.to_pylist() == [14, 35, 49, 99]


def coat(folder: Path, shape: tuple[int, int] = (290, 300), value: int = 4) -> tuple[Path, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    matrices = [np.where(rng.random(shape) < 0.08, rng.integers(1, 6, shape), 0) for _ in range(2)]
    matrices[1][matrices[0] > 0] = 0
    matrices[0][0, 0] = value
    text = ["\n".join(" ".join(map(str, row)) for row in matrix) + "\n" for matrix in matrices]
    written(folder, {"train.ascii": text[0], "test.ascii": text[1]})
    return folder, matrices[0], matrices[1]


def test_coat_uses_its_randomised_part_by_default(tmp_path: Path) -> None:
    folder, chosen, shown = coat(tmp_path)
    split = load_split("coat", folder, validation=0.0)
    assert ids(split.train) == set(zip(*np.nonzero(chosen), strict=True))
    assert ids(split.test) == set(zip(*np.nonzero(shown), strict=True))
    assert any("liked or not" in note for note in split.notes)
    liked = load_split("coat", folder, validation=0.0, min_rating=4)
    assert ids(liked.test) == set(zip(*np.nonzero(shown >= 4), strict=True))
    assert not any("liked or not" in note for note in liked.notes)
    assert ids(load_dataset("coat", folder, min_rating=5)) == set(zip(*np.nonzero((chosen + shown) == 5), strict=True))
    at_random = load_split("coat", folder, test_part="random", validation=0.0, test=0.25)
    assert len(at_random.test) == pytest.approx(0.25 * ((chosen > 0).sum() + (shown > 0).sum()), abs=1)


@pytest.mark.parametrize("name", ["gowalla", "yelp2018"])
def test_adjacency_lists_with_their_given_split(tmp_path: Path, name: str) -> None:
    written(tmp_path / name, {"train.txt": "0 5 3 9\n1 3\n2\n", "test.txt": "0 4\n1 \n2 5\n"})
    split = load_split(name, tmp_path, validation=0.0)
    assert ids(split.train) == {(0, 3), (0, 5), (0, 9), (1, 3)}
    assert ids(split.test) == {(0, 4), (2, 5)}
    assert split.train.user_ids.to_pylist() == [0, 1, 2]
    assert ids(load_dataset(name, tmp_path)) == ids(split.train) | ids(split.test)


def test_demo_has_two_test_parts() -> None:
    world = demo_simulation()
    assert np.array_equal(load_dataset("demo").keys, world.log.keys)
    uniform = load_split("demo", test_part="uniform", validation=0.1, seed=3)
    assert np.array_equal(uniform.test.keys, world.uniform_test.keys)
    assert np.array_equal(uniform.train.union(uniform.validation).keys, world.log.keys)
    at_random = load_split("demo")
    assert at_random.train.union(at_random.validation, at_random.test).keys.tolist() == world.log.keys.tolist()


# Downloads


def test_download_installs_checks_and_reports(publisher: Publisher, cache: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    content = zipped({"ml-100k/": "", "ml-100k/u.data": U_DATA, "ml-100k/u.item": U_ITEM})
    publisher.publish("ml-100k", content, monkeypatch)
    digest = hashlib.md5(content).hexdigest()
    (publisher.folder / "ml-100k.zip.md5").write_text(f"MD5 (ml-100k.zip) = {digest}\n")
    steps: list[tuple[int, int | None]] = []
    data = load_dataset("ml-100k", progress=lambda done, total: steps.append((done, total)))
    assert ids(data) == {(10, 7), (2, 7), (2, 30)}
    assert steps[-1] == (len(content), len(content))
    assert sorted(p.name for p in cache.iterdir()) == ["ml-100k"]
    # From now on it is read from the cache, also when the publisher is gone.
    monkeypatch.setenv("EVENHAND_GROUPLENS_URL", "http://127.0.0.1:9")
    assert ids(load_dataset("ml-100k")) == ids(data)
    assert fetch_dataset("ml-100k") == cache / "ml-100k"
    assert {i.name: i.found for i in list_datasets()}["ml-100k"] == cache / "ml-100k"


WHOLE = zipped({"ml-1m/ratings.dat": RATINGS_DAT})


def symlink() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("ml-1m/ratings.dat")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return buffer.getvalue()


def flipped() -> bytes:
    """A zip whose directory is whole, but whose stored content was altered."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("ml-1m/ratings.dat", RATINGS_DAT)
    return buffer.getvalue().replace(b"::1193::", b"::1194::", 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>Sorry</html>", "not a complete zip file"),
        (WHOLE[: len(WHOLE) // 2], "not a complete zip file"),
        (flipped(), "not a complete zip file"),
        (zipped({"something/else.txt": "hello"}), "is not ml-1m: it holds no ratings.dat"),
        (zipped({"../ratings.dat": RATINGS_DAT}), "'../ratings.dat', which could write outside"),
        (zipped({"/ratings.dat": RATINGS_DAT}), "could write outside"),
        (zipped({"ml-1m\\..\\..\\ratings.dat": RATINGS_DAT}), "could write outside"),
        (zipped({"C:/ratings.dat": RATINGS_DAT}), "could write outside"),
        (symlink(), "could write outside"),
    ],
    ids=["page", "truncated", "altered", "other", "parent", "root", "backslash", "drive", "link"],
)
def test_bad_archives_are_refused_without_a_trace(
    content: bytes,
    message: str,
    publisher: Publisher,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher.publish("ml-1m", content, monkeypatch)
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as caught:
        load_dataset("ml-1m")
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []
    assert not list(tmp_path.rglob("ratings.dat"))


def test_an_archive_other_than_the_known_one_is_refused(
    publisher: Publisher, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish("ml-1m", WHOLE, monkeypatch, md5="0" * 32)
    with pytest.raises(InputError, match="altered or incomplete"):
        load_dataset("ml-1m")
    assert list(cache.iterdir()) == []


def test_the_publishers_own_checksum_counts_too(
    publisher: Publisher, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish("ml-1m", WHOLE, monkeypatch)
    (publisher.folder / "ml-1m.zip.md5").write_text("f" * 32 + "  ml-1m.zip\n")
    with pytest.raises(InputError, match="not " + "f" * 32):
        load_dataset("ml-1m")
    assert list(cache.iterdir()) == []


def test_too_large_an_archive_is_refused(publisher: Publisher, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zipped({"ml-1m/ratings.dat": "1::1::1::1\n" * 50_000})
    publisher.publish("ml-1m", bomb, monkeypatch)
    monkeypatch.setattr(fetch, "_MOST_BYTES", 100_000)
    assert len(bomb) < 100_000
    with pytest.raises(InputError, match="unpacks to more than"):
        load_dataset("ml-1m")
    assert list(cache.iterdir()) == []


def test_a_download_that_breaks_off_is_noticed(publisher: Publisher, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"broke off after 9 of 1,000 bytes|cannot download"):
        fetch.download(f"{publisher.url}/broken.zip", tmp_path / "broken.zip")


def test_a_full_disk_is_noticed_before_the_download(
    publisher: Publisher, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish("ml-1m", WHOLE, monkeypatch)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**9, used=10**9 - 5, free=5))
    with pytest.raises(InputError, match="has 5 bytes free, but 40,000,000 are needed"):
        load_dataset("ml-1m")
    assert list(cache.iterdir()) == []


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(
    publisher: Publisher, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish("ml-1m", WHOLE, monkeypatch)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch, "unpack", full)
    with pytest.raises(InputError, match="No space left on device"):
        load_dataset("ml-1m")
    assert list(cache.iterdir()) == []


def test_offline_says_which_file_goes_where(cache: Path) -> None:
    with pytest.raises(InputError, match=r"cannot download .*ml-1m\.zip") as caught:
        load_dataset("ml-1m")
    assert f"put it into {cache}" in str(caught.value)
    with pytest.raises(InputError, match=r"put ratings\.dat into"):
        load_dataset("ml-1m", download=False)
    # And that advice works.
    cache.mkdir(exist_ok=True)
    (cache / "ml-1m.zip").write_bytes(WHOLE)
    assert len(load_dataset("ml-1m")) == 2


# Mistakes


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        (
            "coat",
            {"train.ascii": "1 2\n3 4\n", "test.ascii": "0\n"},
            "has 2 rows × 2 columns, but .* 290 rows × 300",
        ),
        ("coat", {"train.ascii": "1 2\n3\n", "test.ascii": "0\n"}, "train.ascii' is not a matrix"),
        ("gowalla", {"train.txt": "0 1\n1 x\n", "test.txt": "0 2\n"}, "train.txt', line 2"),
        ("ml-100k", {"u.data": "1\t2\t3\t4\n1\t2\n"}, "line 2 of .*u.data"),
        ("ml-100k", {"u.data": "user-7\tx\t3\t4\n"}, "ids that are not whole numbers"),
        ("ml-100k", {"u.data": ""}, "u.data' is empty"),
    ],
)
def test_a_wrong_file_is_named_with_its_place(tmp_path: Path, name: str, files: dict[str, str], message: str) -> None:
    written(tmp_path / "data", files)
    with pytest.raises(InputError, match=message) as caught:
        load_dataset(name, tmp_path / "data")
    assert "\n" not in str(caught.value)


def test_a_rating_out_of_range_is_named_by_line_and_column(tmp_path: Path) -> None:
    folder, _, _ = coat(tmp_path, value=9)
    with pytest.raises(InputError, match=r"line 1, column 1: a rating is 0 .* not 9"):
        load_dataset("coat", folder)


def test_missing_parts_unknown_names_and_impossible_wishes(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "train.ascii").write_text("0\n")
    for attempt, message in (
        (
            lambda: load_dataset("coat", tmp_path),
            f"coat was not found; .* train.ascii and test.ascii into {cache}",
        ),
        (lambda: load_dataset("ml-100", tmp_path), "did you mean 'ml-100k'"),
        (lambda: load_dataset("coat", tmp_path / "nowhere"), "does not exist"),
        (lambda: load_dataset("ml-1m", tmp_path / "train.ascii"), "is not ml-1m"),
        (lambda: load_split("ml-1m", tmp_path, test_part="randomised"), "unknown test part of ml-1m"),
        (lambda: load_dataset("demo", min_rating=3), "no ratings"),
        (lambda: item_titles("coat", tmp_path), "has no titles"),
        (lambda: fetch_dataset("yahoo-r3"), "yahoo-r3 cannot be downloaded; get it from"),
    ):
        with pytest.raises(InputError, match=message):
            attempt()


def test_ratings_cannot_be_filtered_where_there_are_none(tmp_path: Path) -> None:
    written(tmp_path, {"train.txt": "0 1\n", "test.txt": "0 2\n"})
    with pytest.raises(InputError, match="has no ratings"):
        load_dataset("gowalla", tmp_path, min_rating=3)


# Summaries


def test_description_by_hand() -> None:
    data = Interactions.from_pairs([0, 0, 0, 1], [0, 1, 2, 0], n_items=4, notes=("A note.",))
    found = describe(data)
    assert (found.users, found.items, found.pairs, found.density) == (2, 4, 4, 0.5)
    # Counts 0, 1, 1, 2: Gini = (-3·0 - 1·1 + 1·1 + 3·2) / (4·4) = 3/8; 15 % of 4 items is one item.
    assert found.popularity_gini == pytest.approx(3 / 8)
    assert found.hot_share == pytest.approx(0.5)
    assert (found.activity_min, found.activity_median, found.activity_max) == (1, 2.0, 3)
    assert (found.parts, found.notes) == ({}, ("A note.",))


def test_description_of_a_split_counts_its_parts_and_sees_the_whole() -> None:
    data = load_dataset("demo")
    found = describe(data.split(test=0.2, validation=0.1))
    assert found.parts["train"] + found.parts["validation"] + found.parts["test"] == found.pairs == len(data)
    assert found.popularity_gini == describe(data).popularity_gini


def test_every_dataset_says_what_it_is_and_how_to_get_it(cache: Path) -> None:
    listed = {info.name: info for info in list_datasets()}
    known = ["demo", "ml-100k", "ml-1m", "yahoo-r3", "coat", "gowalla", "yelp2018", "amazon-electronic"]
    shifted = [f"amazon-electronic-{kind}-shift" for kind in ("popularity", "temporal")]
    assert list(listed) == [*known, *shifted, "amazon-beauty"]
    assert all(info.found is None for info in listed.values())
    for info in listed.values():
        assert info.name == "demo" or str(cache / info.name) in info.how_to_get
    assert "no redistribution" in listed["ml-1m"].licence
    assert named.DATASETS["ml-100k"].md5 == "0e33842e24a9c977be4e0107933c0723"


SIZES = {
    "gowalla": (810_128, 217_242),
    "amazon-electronic": (182_398, 52_123),
    "amazon-electronic-popularity-shift": (187_616, 46_905),
    "amazon-electronic-temporal-shift": (140_712, 24_668),
}


@pytest.mark.parametrize("name", SIZES)
def test_published_splits_as_they_are(shared_data, name) -> None:
    split = load_split(name, shared_data, validation=0.0)
    assert (len(split.train), len(split.test)) == SIZES[name]
    assert split.description == "given train and test parts"
    assert split.notes[-1] == f"The test part of {name} is 'given'; test_part= (--test-part) chooses random."
    assert "chooses" not in " ".join(load_split(name, shared_data, validation=0.0, test_part="given").notes)


def test_the_published_popularity_shift_is_drawn_as_ours_is(shared_data) -> None:
    """Test items of the published split look like those of our own rule on the same log."""
    published = load_split("amazon-electronic-popularity-shift", shared_data, validation=0.0)
    log = published.train.union(published.test)
    ours = log.split(test=0.2, validation=0, how="popularity-shift")
    assert abs(len(ours.test) - len(published.test)) <= 1  # they round the rest down
    for theirs, mine in ((published.test, ours.test), (published.train, ours.train)):
        assert mine.popularity.var() == pytest.approx(theirs.popularity.var(), rel=0.03)
    assert np.corrcoef(published.test.popularity, log.popularity)[0, 1] == pytest.approx(
        np.corrcoef(ours.test.popularity, log.popularity)[0, 1], abs=0.03
    )


def test_amazon_beauty_is_one_log_with_times(shared_data) -> None:
    data = load_dataset("amazon-beauty", shared_data)
    assert len(data) <= 198_215
    split = data.split(how="time")
    assert split.train.timestamps.max() < split.validation.timestamps.min()
    assert split.validation.timestamps.max() < split.test.timestamps.min()
