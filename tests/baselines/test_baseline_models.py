"""Baselines as models: their folder, lists, new users, similar items, refits and updates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file

import evenhand as eh
from evenhand.baselines import Baseline
from evenhand.cli import train_command
from evenhand.data.interactions import Interactions
from evenhand.methods import BASELINES, made_by, parse
from evenhand.models.folder import FILES, sha256
from evenhand.models.item_weights import DenseTable, ItemWeightModel, SparseTable
from evenhand.utils.errors import InputError
from run_cli import evenhand, small_log, write_log

LOG = small_log()
SPLIT = LOG.split(test=0.2, validation=0.1)
EVERY = [eh.Popular(), eh.ItemKNN(neighbours=7), eh.GFCF(factors=6), eh.EASE(l2=30), eh.ALS(factors=4, iterations=3)]
OF_ITEMS = EVERY[:4]


def name_of(baseline: Baseline) -> str:
    return baseline.name


def named(log: Interactions) -> Interactions:
    """The same pairs with texts for ids."""
    return replace(
        log,
        user_ids=pa.array([f"u{i:02}" for i in range(log.n_users)]),
        item_ids=pa.array([f"i{i:02}" for i in range(log.n_items)]),
    )


# The folder.


@pytest.mark.parametrize("baseline", EVERY, ids=name_of)
def test_a_saved_baseline_recommends_identically(baseline: Baseline, tmp_path: Path) -> None:
    before = baseline.fit(SPLIT, seeds=2, device="cpu").model
    before.save(tmp_path / "m")
    after = eh.load(tmp_path / "m")
    assert type(after) is type(before)
    for asked in ({}, {"known": True}, {"seed": "all"}, {"only": [3, 5, 8], "exclude": [5]}):
        assert after.recommend(k=2, **asked).equals(before.recommend(k=2, **asked))
    assert after.info == json.loads(json.dumps(before.info))
    assert after.info["rival"]["name"] == baseline.name
    assert after.metrics == json.loads(json.dumps(before.metrics).replace("NaN", "null"))
    assert {p.name for p in (tmp_path / "m").iterdir()} == set(FILES)
    assert repr(after) == repr(before)


@pytest.mark.parametrize("baseline", EVERY, ids=name_of)
def test_a_model_lists_what_the_fitted_baseline_lists(baseline: Baseline, tmp_path: Path) -> None:
    """Scores are made of train alone; what is in validation is not recommended either."""
    found = baseline.fit(SPLIT, seeds=1, device="cpu")
    model = found.model
    assert model.recommend(k=5).equals(baseline.fit_pairs(SPLIT.train).having(known=SPLIT.consumed).recommend(k=5))
    model.save(tmp_path / "m")
    assert eh.load(tmp_path / "m").recommend(k=5).equals(found.lists(5))
    evaluated = eh.evaluate(eh.load(tmp_path / "m").recommend(k=20), SPLIT, k=(5, 20))
    for k in (5, 20):
        mean = evaluated.at(k).metrics["ndcg"].mean
        assert model.metrics[str(k)]["ndcg"]["mean"] == pytest.approx(mean, abs=1e-12)


def test_only_what_depends_on_a_seed_has_several() -> None:
    assert eh.ALS(factors=4).fit(SPLIT, seeds=3, device="cpu").model.seeds == (0, 1, 2)
    found = eh.EASE().fit(SPLIT, seeds=[5, 6], device="cpu")
    model = found.model
    assert model.seeds == (5,)
    assert len(found.scorers) == 1
    assert model.info["method"] == "ease"
    expected = {"name": "ease", "l2": 400, "balance": 0, "lift": 1, "max_items": "all", "recency": 0}
    assert model.info["rival"] == expected
    with pytest.raises(InputError, match="the model has no seed 6; it has 5"):
        model.recommend(k=1, seed=6)


def test_the_best_seed_on_validation_recommends() -> None:
    found = parse("als:factors=3:iterations=1").fit(SPLIT, seeds=4, device="cpu")
    model = found.model
    assert found.validation is not None
    assert model.best == int(np.argmax(found.validation))


@pytest.mark.parametrize("baseline", OF_ITEMS, ids=name_of)
def test_the_card_says_what_a_score_is(baseline: Baseline, tmp_path: Path) -> None:
    baseline.fit_pairs(LOG).save(tmp_path / "m")
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert baseline.label in card
    assert ("the number of users who interacted with it" in card) == (baseline.name == "popular")
    assert "inner product" not in card


def damaged(change: Any, tmp_path: Path, baseline: Baseline) -> str:
    """What `load` says of a folder whose tensors were changed, with checksums that fit."""
    baseline.fit_pairs(LOG).save(tmp_path / "m")
    file, config = tmp_path / "m" / "model.safetensors", tmp_path / "m" / "config.json"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    content = json.loads(config.read_text())
    content["checksums"][file.name] = sha256(file)
    config.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        eh.load(tmp_path / "m")
    return str(caught.value)


@pytest.mark.parametrize(
    ("baseline", "name", "value"),
    [
        (eh.EASE(), "weights", torch.zeros(79, 79)),
        (eh.Popular(), "counts", torch.zeros(81, dtype=torch.float64)),
        (eh.ItemKNN(), "indptr", torch.zeros(80, dtype=torch.int64)),
        (eh.ItemKNN(), "weights", torch.zeros(3)),
        (eh.ItemKNN(neighbours=1), "items", torch.full((80,), 80, dtype=torch.int32)),
        (eh.GFCF(factors=3), "vectors", torch.zeros(79, 3)),
        (eh.GFCF(factors=3), "gains", torch.zeros(4)),
        (eh.GFCF(factors=3), "items", torch.full((len(LOG),), 80, dtype=torch.int32)),
        (eh.GFCF(factors=3), "indptr", torch.tensor([0, len(LOG) + 1])),
        (eh.GFCF(factors=3), "exponents", torch.tensor([0.0, torch.nan], dtype=torch.float64)),
    ],
)
def test_weights_that_do_not_fit_are_refused(baseline: Baseline, name: str, value: Any, tmp_path: Path) -> None:
    message = damaged(lambda tensors: tensors.update({name: value}), tmp_path, baseline)
    assert message == f"{tmp_path / 'm'} is damaged: its weights do not match its items."


def test_missing_weights_and_altered_files_are_refused(tmp_path: Path) -> None:
    message = damaged(lambda tensors: tensors.update(other=tensors.pop("weights")), tmp_path, eh.EASE())
    assert "cannot be read as a model: 'weights'" in message
    eh.EASE().fit_pairs(LOG).save(tmp_path / "n")
    with (tmp_path / "n" / "known.arrow").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InputError, match=r"known\.arrow is not the file that was saved"):
        eh.load(tmp_path / "n")


def test_a_kind_from_the_future_is_refused(tmp_path: Path) -> None:
    eh.EASE().fit_pairs(LOG).save(tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    config.write_text(config.read_text().replace('"kind": "dense"', '"kind": "tree"'))
    with pytest.raises(InputError, match="a model of kind 'tree', which this evenhand does not know"):
        eh.load(tmp_path / "m")


def test_a_folder_without_a_kind_is_one_of_vectors(tmp_path: Path) -> None:
    model = eh.ALS(factors=4, iterations=1).fit_pairs(LOG)
    model.save(tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    content = json.loads(config.read_text())
    assert content.pop("kind") == "vectors"
    config.write_text(json.dumps(content))
    assert eh.load(tmp_path / "m").recommend(k=2).equals(model.recommend(k=2))


# New users, similar items, vectors.


@pytest.mark.parametrize("baseline", OF_ITEMS, ids=name_of)
def test_folding_in_is_exact(baseline: Baseline) -> None:
    """A user folded in with the history of a known one gets that one's lists."""
    model = baseline.fit_pairs(LOG)
    some = [3, 11, 12]
    keep = np.isin(LOG.users, some)
    history = pa.table({"user": [f"new {u}" for u in LOG.users[keep]], "item": LOG.items[keep]})
    folded = model.fold_in(history)
    assert folded.known.user_ids.to_pylist() == ["new 11", "new 12", "new 3"]
    mine, theirs = folded.recommend(["new 3", "new 11", "new 12"], k=9), model.recommend(some, k=9)
    assert mine["item"].equals(theirs["item"])
    np.testing.assert_allclose(mine["score"], theirs["score"], rtol=1e-5)
    assert folded.info["folded_in"] == 3
    assert not folded.metrics


@pytest.mark.parametrize("baseline", [eh.EASE(l2=30), eh.ALS(factors=4, iterations=1)], ids=name_of)
def test_known_users_among_the_new_ones_are_noted(baseline: Baseline) -> None:
    model = baseline.fit_pairs(LOG)
    (note,) = model.fold_in(pa.table({"user": [7, 900], "item": [1, 2]})).known.notes
    assert note.startswith("1 of 2 users is known to the model already; ")
    assert not model.fold_in(pa.table({"user": [900], "item": [1]})).known.notes


def test_one_unknown_item_is_reported_in_the_singular() -> None:
    model = eh.EASE(l2=30).fit_pairs(LOG)
    (note,) = model.fold_in(pa.table({"user": [900, 900], "item": [1, 5000]})).known.notes
    assert note == "1 item of the new users (1 of 2 pairs) is unknown to the model and was ignored."


@pytest.mark.parametrize("baseline", [eh.ItemKNN(neighbours=7), eh.EASE(l2=30)], ids=name_of)
def test_similar_items_are_what_one_touch_would_bring(baseline: Baseline) -> None:
    model = baseline.fit_pairs(named(LOG))
    alone = model.fold_in(pa.table({"user": ["x"], "item": ["i05"]})).recommend(k=5)
    similar = model.similar("i05", k=5)
    assert similar["item"].to_pylist() == alone["item"].to_pylist()
    np.testing.assert_allclose(similar["score"], alone["score"], rtol=1e-6)
    with pytest.raises(InputError, match="k must lie between 1 and the 79 other items, not 80"):
        model.similar("i05", k=80)


def test_similar_items_end_where_weights_end() -> None:
    log = Interactions.from_pairs([0, 0, 1, 1, 2], [0, 1, 0, 2, 3], n_items=5)
    model = eh.ItemKNN(shrink=0).fit_pairs(log)
    assert model.similar(0, k=4)["item"].to_pylist() == [1, 2]
    assert len(model.similar(3, k=4)) == 0


def test_popular_knows_no_likeness_and_items_have_no_vectors() -> None:
    with pytest.raises(InputError, match="knows nothing of two items together"):
        eh.Popular().fit_pairs(LOG).similar(3)
    with pytest.raises(InputError, match="a model of ease has no vectors to export"):
        _ = eh.EASE(l2=30).fit_pairs(LOG).vectors


def test_tables_hold_a_hand_worked_example() -> None:
    log = Interactions.from_pairs([0, 0, 1], [0, 2, 1], n_users=3, n_items=3)
    weights = torch.tensor([[0.0, 1, 2], [3, 0, 4], [5, 6, 0]])
    sparse = SparseTable(
        np.array([0, 2, 4, 6]),
        np.array([1, 2, 0, 2, 0, 1], np.int32),
        np.array([1, 2, 3, 4, 5, 6], np.float32),
    )
    for table in (DenseTable(weights), sparse):
        assert table.scores(log, np.array([0, 1, 2])).tolist() == [[5, 7, 2], [3, 0, 4], [0, 0, 0]]


# Refitting and updating.


@pytest.mark.parametrize("baseline", EVERY, ids=name_of)
def test_a_refit_sees_every_part(baseline: Baseline) -> None:
    found = baseline.fit(SPLIT, seeds=2, device="cpu")
    model, whole = found.model, baseline.refit(found, SPLIT, device="cpu")
    everything = SPLIT.train.union(SPLIT.validation, SPLIT.test)
    assert len(whole.known) == len(LOG)
    expected = baseline.fit_pairs(everything, model.seeds[model.best]).recommend(k=4)
    assert whole.recommend(k=4).equals(expected)
    assert not whole.metrics
    assert whole.info["split"].endswith("; refitted on all parts")
    if isinstance(whole, ItemWeightModel):
        assert len(whole.seen) == len(LOG)


@pytest.mark.parametrize("baseline", EVERY, ids=name_of)
def test_an_update_is_a_fit_on_everything(baseline: Baseline) -> None:
    first = LOG.users < 50
    old = baseline.fit_pairs(Interactions.from_pairs(LOG.users[first], LOG.items[first]))
    new = made_by(old).update(old, LOG, device="cpu").model
    assert new.known.n_users == 60
    assert new.recommend(k=3).equals(baseline.fit_pairs(new.known).recommend(k=3))
    with pytest.raises(InputError, match="no pair that the model does not know already"):
        made_by(new).update(new, LOG, device="cpu")


# By command.


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rivals")
    write_log(SPLIT.consumed, folder / "train.csv")
    write_log(SPLIT.test, folder / "test.csv")
    for baseline in (
        "popular",
        "itemknn",
        "gfcf:factors=6",
        "ease:l2=30",
        "als:factors=4",
        "blend:parts=ease+als",
        "recipe:budget=1",
    ):
        seeds = 1 if baseline.startswith(("blend", "recipe")) else 2  # of a blend one seed is kept
        ended = evenhand(
            "train", folder / "train.csv", "--test", folder / "test.csv", "--method", baseline, "--seeds", seeds,
            "--no-refit", "--out", folder / baseline.partition(":")[0], "--hot", "paper", "--json",
        )  # fmt: skip
        assert ended.code == 0, ended.err
        (folder / f"{baseline.partition(':')[0]}.json").write_text(ended.out)
    return folder


def test_a_model_for_production_is_measured_as_it_is_saved(desk: Path, tmp_path: Path) -> None:
    files = ("--test", desk / "test.csv")
    made = evenhand("train", desk / "train.csv", *files, "--method", "ease:l2=30", "--out", tmp_path / "m", "--json")
    assert len(eh.load(tmp_path / "m").known) == len(SPLIT.consumed)
    assert evenhand("recommend", tmp_path / "m", "--out", tmp_path / "lists.csv").code == 0
    found = evenhand("evaluate", tmp_path / "lists.csv", "--train", desk / "train.csv", *files, "--json").document
    for ours, theirs in zip(made.document["rows"], found["rows"], strict=True):
        assert ours["metrics"]["ndcg"]["mean"] == pytest.approx(theirs["metrics"]["ndcg"]["mean"], abs=1e-9)


@pytest.mark.parametrize("name", BASELINES)
def test_train_recommend_evaluate_agree(name: str, desk: Path, tmp_path: Path) -> None:
    trained = json.loads((desk / f"{name}.json").read_text())
    assert trained["seeds"] == ([0, 1] if name == "als" else [0])
    assert [row["encoder"] for row in trained["rows"]] == [None] * 3
    lists = tmp_path / "lists.parquet"
    assert evenhand("recommend", desk / name, "--seed", "all", "--out", lists).code == 0
    evaluated = evenhand(
        "evaluate",
        lists,
        "--train",
        desk / "train.csv",
        "--test",
        desk / "test.csv",
        "--hot",
        "paper",
        "--json",
    ).document
    for mine, theirs in zip(trained["rows"], evaluated["rows"], strict=True):
        assert mine["metrics"]["ndcg"] == theirs["metrics"]["ndcg"]
        assert mine["metrics"]["ohr"] == theirs["metrics"]["ohr"]


def test_a_baseline_is_trained_like_a_method(desk: Path, tmp_path: Path) -> None:
    given = ("train", desk / "train.csv", "--method", "ease", "--out", tmp_path / "m")
    ended = evenhand(*given, "--refit")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[0] == f"{desk / 'train.csv'}, protocol honest, top 5"
    assert ended.out.splitlines()[-1] == f"Model written to {tmp_path / 'm'}/."
    assert len(eh.load(tmp_path / "m").known) == len(SPLIT.consumed)
    again = evenhand(*given)
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "already holds files" in again.err


@pytest.mark.parametrize(
    ("flags", "first"),
    [(("--lr", "0.1", "--epochs", "3"), "--epochs"), (("--encoder", "lightgcn"), "--encoder")],
)
def test_flags_of_training_are_refused(flags: tuple[str, ...], first: str, desk: Path, tmp_path: Path) -> None:
    ended = evenhand("train", desk / "train.csv", "--method", "ease", "--out", tmp_path / "m", *flags)
    assert ended.code == 2
    assert ended.err == (f"evenhand: {first} has no effect on ease, which is not trained in epochs; leave it out.\n")
    assert not (tmp_path / "m").exists()


def test_a_large_model_says_its_size_before_it_is_written(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_command, "_LARGE", 80 * 80 * 4 - 1)
    ended = evenhand("train", desk / "train.csv", "--method", "ease", "--out", tmp_path / "m")
    assert ended.code == 0
    assert ended.err == "note: the model takes 0.0 GB on disk.\n"
    monkeypatch.setattr(train_command, "_LARGE", 80 * 80 * 4)
    assert evenhand("train", desk / "train.csv", "--method", "ease", "--out", tmp_path / "n").err == ""


@pytest.mark.parametrize("name", BASELINES)
def test_new_users_by_command(name: str, desk: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("user,item\n0,3\n0,9\nnobody,4\n")
    ended = evenhand("recommend", desk / name, "--new-users", tmp_path / "new.csv", "-k", "2", "--json")
    assert ended.code == 0, ended.err
    assert [row["user"] for row in ended.document["recommendations"]] == ["0", "0", "nobody", "nobody"]
    assert ended.document["notes"][0].startswith("1 of 2 users is known to the model already")


def test_similar_by_command_names_its_score(desk: Path) -> None:
    headings = [evenhand("similar", desk / name, "3", "-k", "2").out.split()[1] for name in ("ease", "als")]
    assert headings == ["weight", "cosine"]
    refused = evenhand("similar", desk / "popular", "3")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("to", ["parquet", "npz"])
def test_export_refuses_what_has_no_vectors(to: str, desk: Path, tmp_path: Path) -> None:
    out = tmp_path / ("v.npz" if to == "npz" else "v")
    ended = evenhand("export", desk / "ease", "--to", to, "--out", out)
    assert ended.code == 2
    assert ended.err == (
        "evenhand: a model of ease has no vectors to export; write its lists with "
        "`evenhand recommend --out`, or train als or another method that has vectors.\n"
    )
    assert not out.exists()
    assert evenhand("export", desk / "als", "--to", to, "--out", out).code == 0


@pytest.mark.parametrize("name", ["ease", "als"])
def test_update_by_command(name: str, desk: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("user,item\n60,3\n60,9\n")
    given = ("update", desk / name, tmp_path / "new.csv", "--out", tmp_path / "m")
    ended = evenhand(*given)
    assert ended.code == 0, ended.err
    assert ended.out.endswith(f"1 user, 0 items and 2 pairs added; model written to {tmp_path / 'm'}/.\n")
    assert eh.load(tmp_path / "m").recommend([60], k=3).num_rows == 3
    refused = evenhand(*given, "--epochs", "3", "--force")
    assert "--epochs has no effect on " in refused.err


def test_fit_takes_a_baseline_by_name() -> None:
    import evenhand as eh

    split = eh.load_split("demo")
    model = eh.fit(split, method="popular")
    counts = split.train.popularity
    first = model.recommend(k=1, users=[split.train.user_ids[0].as_py()])["item"][0].as_py()
    order = np.argsort(-counts, kind="stable")
    own = set(split.consumed.row(0).tolist())
    assert first == split.train.item_ids[next(i for i in order.tolist() if i not in own)].as_py()
