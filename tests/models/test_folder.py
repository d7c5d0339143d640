"""A model comes back from its folder unchanged, or not at all; and a failing write harms nothing."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from evenhand.data.describe import fingerprint
from evenhand.data.interactions import Interactions
from evenhand.models import folder as folder_module
from evenhand.models.folder import FILES, load
from evenhand.utils import atomic as place_module
from evenhand.utils.errors import InputError
from small_model import model


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kind", ["string", "integer"])
@pytest.mark.parametrize("seed", [None, 7, "all"])
@pytest.mark.parametrize("known", [False, True])
def test_a_saved_model_recommends_identically(tmp_path: Path, kind: str, seed: Any, known: bool) -> None:
    before = model(kind)
    before.save(tmp_path / "model")
    after = load(tmp_path / "model")
    assert after.recommend(k=4, seed=seed, known=known).equals(before.recommend(k=4, seed=seed, known=known))
    assert torch.equal(after.user_vectors, before.user_vectors)
    assert (after.seeds, after.best, after.tables) == (before.seeds, before.best, None)
    assert (after.info, after.history, after.metrics) == (before.info, before.history, before.metrics)
    assert after.known.to_table().equals(before.known.to_table())
    assert after.known.indptr.tolist() == before.known.indptr.tolist()


def test_tables_below_the_vectors_come_back(tmp_path: Path) -> None:
    before = replace(model("string"), tables=(torch.rand(3, 9, 4), torch.rand(3, 12, 4)))
    before.save(tmp_path / "model")
    after = load(tmp_path / "model").tables
    assert after is not None
    assert all(torch.equal(x, y) for x, y in zip(after, before.tables or (), strict=True))


def test_the_folder_holds_what_the_documentation_says(tmp_path: Path) -> None:
    model("string").save(tmp_path / "new" / "model")
    assert set(content(tmp_path / "new")) == {f"model/{name}" for name in FILES}
    config = json.loads((tmp_path / "new/model/config.json").read_text())
    assert config["format"] == 1
    assert config["seeds"] == [7, 3, 11]
    assert config["metrics"]["5"]["precision"]["mean"] == 0.25
    assert json.loads((tmp_path / "new/model/history.json").read_text())[0]["loss"] == [0.1, 0.2, 0.3]


def test_the_umask_decides_who_may_read_it(tmp_path: Path) -> None:
    model("string").save(tmp_path / "m")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file").touch()

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert mode(tmp_path / "m") == mode(tmp_path / "plain")
    assert {mode(p) for p in (tmp_path / "m").iterdir()} == {mode(tmp_path / "plain" / "file")}


def test_the_card_shows_results_and_how_to_load(tmp_path: Path) -> None:
    made = model("string")
    made = replace(made, info={**made.info, "fingerprint": "ab12", "protocol": "honest"})
    made.save(tmp_path / "films")
    lines = (tmp_path / "films" / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# films"
    assert "| k | Precision ↑ | OHR ↓ |" in lines
    assert "| 5 | 0.2500 ± 0.0100 | – |" in lines
    assert "| 10 | 0.2000 | – |" in lines
    assert f"- 9 users, 12 items, {len(made.known)} known pairs" in lines
    assert "- fingerprint: ab12" in lines
    assert "- protocol: honest" in lines
    assert 'model = eh.load("films")' in lines
    assert "evenhand recommend films -k 20 --out lists.parquet" in lines


def test_undefined_numbers_are_null_in_any_languages_json(tmp_path: Path) -> None:
    undefined = {"10": {"ohr": {"mean": float("nan"), "std": None, "values": [np.float64("nan")]}}}
    replace(model("string"), metrics=undefined).save(tmp_path / "m")
    assert config_of(tmp_path / "m")["metrics"]["10"]["ohr"] == {"mean": None, "std": None, "values": [None]}
    assert "NaN" not in (tmp_path / "m" / "config.json").read_text()
    assert "| 10 | – |" in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")


def test_a_card_may_be_edited(tmp_path: Path) -> None:
    model("string").save(tmp_path / "m")
    (tmp_path / "m" / "README.md").write_text("Ours, since spring.")
    assert load(tmp_path / "m").seeds == (7, 3, 11)


# ---- writing


def test_a_folder_in_use_is_not_overwritten(tmp_path: Path) -> None:
    first, second = model("string"), model("integer")
    place = tmp_path / "m"
    first.save(place)
    with pytest.raises(InputError, match="is not empty; choose another folder or use --force"):
        second.save(place)
    assert load(place).recommend(k=1).equals(first.recommend(k=1))
    second.save(place, force=True)
    assert load(place).recommend(k=1).equals(second.recommend(k=1))
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_force_leaves_alone_what_is_not_the_models(tmp_path: Path) -> None:
    place = tmp_path / "m"
    model("string").save(place)
    (place / "notes.txt").write_text("mine")
    (place / "sub").mkdir()
    second = model("integer")
    second.save(place, force=True)
    assert load(place).recommend(k=1).equals(second.recommend(k=1))
    assert {p.name for p in place.iterdir()} == {*FILES, "notes.txt", "sub"}
    assert (place / "notes.txt").read_text() == "mine"


def test_the_folder_one_stands_in_stays_that_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = tmp_path.stat().st_ino
    model("string").save(".")
    model("integer").save(".", force=True)
    assert tmp_path.stat().st_ino == before
    assert {p.name for p in Path.cwd().iterdir()} == set(FILES)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    model("string").save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "real").seeds == (7, 3, 11)


def test_a_file_is_not_a_place_for_a_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"is a file|cannot write to"):
            model("string").save(place, force=True)
    assert content(tmp_path) == {"file": b"mine"}


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_only(*_: Any, **__: Any) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def stopped(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


FAILURES = [
    (folder_module, "write_tensors", full_disk, InputError, "No space left on device"),
    (folder_module, "write_json", full_disk, InputError, "No space left on device"),
    (os, "fsync", full_disk, InputError, "No space left on device"),
    (Path, "mkdir", read_only, InputError, "Permission denied"),
    (folder_module, "write_json", stopped, KeyboardInterrupt, None),
]


@pytest.mark.parametrize(("home", "name", "fails", "error", "match"), FAILURES)
@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("exists", [False, True])
def test_a_failing_write_harms_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: Any,
    name: str,
    fails: Callable[..., None],
    error: type[BaseException],
    match: str | None,
    foreign: bool,
    exists: bool,
) -> None:
    if exists:
        model("string").save(tmp_path / "m")
        if foreign:
            (tmp_path / "m" / "notes.txt").write_text("mine")
    before = content(tmp_path)
    second = model("integer")
    with monkeypatch.context() as patch:
        patch.setattr(home, name, fails)
        with pytest.raises(error, match=match):
            second.save(tmp_path / "m", force=True)
    assert content(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"] * exists


def test_a_failing_move_brings_the_old_model_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model("string").save(tmp_path / "m")
    before, rename = content(tmp_path), os.rename

    def fails_with_the_new_one(source: Path, target: Path) -> None:
        if source.name.endswith(".partial"):
            full_disk()
        rename(source, target)

    monkeypatch.setattr(place_module, "_exchange", lambda *_: False)  # as where folders cannot swap names
    monkeypatch.setattr(os, "rename", fails_with_the_new_one)
    with pytest.raises(InputError, match="No space left on device"):
        model("integer").save(tmp_path / "m", force=True)
    assert content(tmp_path) == before


def test_safetensors_own_error_counts_as_the_systems(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No such file or directory|os error 2"):
        folder_module.write_tensors(tmp_path / "nowhere" / "x", {"a": torch.zeros(2)})


# ---- reading


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def set_config(**values: Any) -> Callable[[Path], None]:
    return lambda folder: (folder / "config.json").write_text(json.dumps(config_of(folder) | values)) and None


def cut(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])

    return damage


def flip_a_bit(folder: Path) -> None:
    whole = bytearray((folder / "model.safetensors").read_bytes())
    whole[-3] ^= 1
    (folder / "model.safetensors").write_bytes(whole)


def arrow(name: str, **columns: Any) -> Callable[[Path], None]:
    return lambda folder: folder_module.write_arrow(folder / name, {n: pa.array(v) for n, v in columns.items()})


def from_another_model(folder: Path) -> None:
    """A file that is whole, but not this model's."""
    model("integer").save(folder.parent / "other")
    shutil.copy(folder.parent / "other" / "users.arrow", folder / "users.arrow")


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (set_config(format=99), "has format 99, this version of evenhand reads 1 and 2; update evenhand or train"),
        (set_config(format=0), "has format 0, .* use the version that wrote it or train"),
        (set_config(format="1"), "cannot be read as a model: its config.json is not that of a model"),
        (set_config(seeds=[]), "is damaged: 'seeds' in its config.json"),
        (set_config(seeds=[1, "x", 2]), "is damaged: 'seeds' in its config.json"),
        (set_config(best=3), "is damaged: 'best' in its config.json"),
        (set_config(info=None), "is damaged: 'info' in its config.json"),
        (set_config(checksums={}), "is damaged: model.safetensors is not the file that was saved"),
        (cut("model.safetensors"), "is damaged: model.safetensors is not the file that was saved"),
        (cut("known.arrow"), "is damaged: known.arrow is not the file that was saved"),
        (cut("history.json"), "is damaged: history.json is not the file that was saved"),
        (flip_a_bit, "is damaged: model.safetensors is not the file that was saved"),
        (from_another_model, "is damaged: users.arrow is not the file that was saved"),
        (cut("config.json"), "cannot be read as a model: config.json"),
        (lambda f: (f / "config.json").write_text("[]"), "its config.json is not that of a model"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "cannot be read as a model: config.json"),
        (lambda f: (f / "known.arrow").unlink(), "is damaged: known.arrow is missing"),
        (lambda f: (f / "config.json").unlink(), "is not a model folder: it has no config.json"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, damage: Callable[[Path], Any], match: str) -> None:
    model("string").save(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(InputError, match=match) as caught:
        load(tmp_path / "m")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (cut("model.safetensors"), "cannot be read as a model"),
        (cut("known.arrow"), "cannot be read as a model"),
        (lambda f: (f / "users.arrow").unlink(), "cannot be read as a model"),
        (arrow("users.arrow", id=[f"u{i}" for i in range(10)]), "its vectors do not match its ids"),
        (arrow("known.arrow", user=[0, 9], item=[1, 1]), "pairs of unknown users or items"),
        (arrow("known.arrow", user=[0, 1], item=[1, -1]), "pairs of unknown users or items"),
        (arrow("known.arrow", user=[1, 0], item=[1, 1]), "not in order"),
        (set_config(seeds=[1, 2]), "its vectors do not match its ids"),
    ],
)
def test_without_checksums_the_parts_must_still_fit(tmp_path: Path, damage: Callable[[Path], Any], match: str) -> None:
    model("string").save(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(InputError, match=match):
        load(tmp_path / "m", verify=False)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        load(tmp_path / "nowhere")


# ---- the fingerprint of data


def log(rows: list[tuple[Any, Any]]) -> Interactions:
    return Interactions.read(pa.table({"user": [u for u, _ in rows], "item": [i for _, i in rows]}))


def test_a_fingerprint_does_not_depend_on_the_order_of_rows() -> None:
    rows = [(f"u{u}", f"i{i}") for u in range(20) for i in range(15) if (u * i) % 3]
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    assert fingerprint(log(rows)) == fingerprint(log(shuffled)) == fingerprint(log([*shuffled, rows[0]]))


def test_a_fingerprint_tells_data_apart() -> None:
    logs = [
        [("a", "x"), ("b", "y")],
        [("a", "y"), ("b", "x")],
        [("a", "x"), ("b", "x"), ("b", "y")],
        [("ab", "x"), ("c", "y")],
        [("a", "x"), ("bc", "y")],
        [("1", "x"), ("2", "y")],
        [(1, "x"), (2, "y")],
        [(1, "x"), (3, "y")],
    ]
    prints = {fingerprint(log(rows)) for rows in logs}
    assert len(prints) == len(logs)
    assert all(len(one) == 64 and int(one, 16) >= 0 for one in prints)


def test_a_fingerprint_is_the_same_tomorrow() -> None:
    """Stored in models, so it must not change with a version."""
    assert fingerprint(Interactions.from_pairs([0, 1, 1], [0, 0, 1])) == EXPECTED


EXPECTED = "0417bde719d2b52c34a75e0f725b8f7f5e97e07dd1bc45442d3d29c4c5dc521d"


def test_a_folder_that_is_replaced_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the checksums and the reading of what they belong to."""
    first, second = model("integer", 1), model("integer", 2)
    first.save(tmp_path / "m")
    real, left = folder_module._assembled, [second]

    def swapped(*given: Any) -> Any:
        if left:
            left.pop().save(tmp_path / "m", force=True)
        return real(*given)

    monkeypatch.setattr(folder_module, "_assembled", swapped)
    times: list[int] = []
    stamp = folder_module._stamp
    monkeypatch.setattr(folder_module, "_stamp", lambda place: times.append(1) or stamp(place))
    found = load(tmp_path / "m")
    assert len(times) == 4  # before and after each of two readings
    assert found.recommend(k=3).equals(second.recommend(k=3))
    monkeypatch.setattr(
        folder_module, "_assembled", lambda *given: first.save(tmp_path / "m", force=True) or real(*given)
    )
    with pytest.raises(InputError, match="was replaced each of the 20 times it was read"):
        load(tmp_path / "m")
