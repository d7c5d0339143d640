"""Blends: the maths against plain loops, what held-out pairs settle, folders, new users, the command."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evenhand.baselines import ALS, EASE, Blend, Popular
from evenhand.baselines import blend as module
from evenhand.baselines.ensemble import Shortlists
from evenhand.data.interactions import Interactions
from evenhand.data.simulate import simulate_log
from evenhand.data.splits import Split, held_out_share
from evenhand.methods import RECIPES, from_info, made_by, on_top_of, parse
from evenhand.models.blend_model import BlendModel, scaled_to_best, standardised
from evenhand.models.factors import FactorModel
from evenhand.models.folder import load
from evenhand.models.vector_files import export, vectors_from
from evenhand.training.method import Conditions, Method, RunOptions
from evenhand.utils.errors import InputError
from run_cli import evenhand, small_log, write_log


@pytest.fixture(scope="module")
def log() -> Interactions:
    return simulate_log(60, 40, 900, seed=1)


@pytest.fixture(scope="module")
def fitted(log: Interactions) -> BlendModel:
    return blend("ease+als").fit_pairs(log)


def blend(parts: str = "ease+als+auc-ns", shares: str = "auto", encoder: str = "auto") -> Blend:
    return cast("Blend", parse(f"blend:parts={parts}:shares={shares}:encoder={encoder}"))


# ---- the maths


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=5))
def test_standardised_rows_against_a_loop(rows: list[list[float]]) -> None:
    got = standardised(torch.tensor(rows, dtype=torch.float64))
    for row, mine in zip(np.float32(rows).astype(float), got, strict=True):
        spread = float(np.std(row))
        if spread > 1e-3 * max(1.0, float(np.abs(row).max())):
            assert np.allclose(mine, (row - row.mean()) / spread, atol=1e-3)
        assert bool(torch.isfinite(mine).all())


def test_a_row_without_differences_says_nothing() -> None:
    assert standardised(torch.full((1, 4), 7.0)).tolist() == [[0, 0, 0, 0]]


def test_scale_and_shift_of_a_part_do_not_matter() -> None:
    scores = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
    seen = (torch.tensor([0, 0, 3]), torch.tensor([1, 4, 8]))
    first, second = scaled_to_best(scores, seen), scaled_to_best(50 * scores - 4, seen)
    torch.testing.assert_close(first, second, atol=1e-4, rtol=0)
    for row in range(5):
        new = [c for c in range(9) if (row, c) not in ((0, 1), (0, 4), (3, 8))]
        mean = float(scores[row, new].mean())
        best = float(scores[row, new].max()) - mean
        torch.testing.assert_close(first[row], (scores[row] - mean) / best, atol=1e-5, rtol=1e-5)


def test_blends_of_version_0_1_keep_their_scale(log: Interactions, tmp_path: Path) -> None:
    parts = (EASE().fit_pairs(log), ALS(factors=4).fit_pairs(log))
    old = BlendModel(parts, (0.3, 0.7), known=log, scale="spread")
    users = np.array([3, 0])
    expected = 0.3 * standardised(parts[0].scores(users)) + 0.7 * standardised(parts[1].scores(users))
    torch.testing.assert_close(old.scores(users), expected)
    old.save(tmp_path / "old")
    again = load(tmp_path / "old")
    assert again.scale == "spread"
    assert again.recommend(k=5).equals(old.recommend(k=5))


@pytest.mark.parametrize(("balance", "lift"), [(0.0, 1.0), (0.3, 1.0), (0.3, 0.0)])
def test_balanced_ease_is_the_least_squares_of_the_scaled_matrix(
    log: Interactions, balance: float, lift: float
) -> None:
    n, l2 = log.n_items, 20.0
    x = np.zeros((log.n_users, n))
    x[log.users, log.items] = 1
    seen = np.maximum(x.sum(0), 1)
    scale = (seen / seen.mean()) ** -balance
    scaled, expected = x * scale, np.zeros((n, n))
    for j in range(n):
        others = [i for i in range(n) if i != j]
        a = scaled[:, others]
        b = np.linalg.solve(a.T @ a + l2 * np.eye(n - 1), a.T @ scaled[:, j])
        expected[others, j] = scale[others] * b / scale[j] ** lift
    found = EASE(l2=l2, balance=balance, lift=lift).fit_pairs(log).scores(np.arange(log.n_users))
    assert np.allclose(found, x @ expected, atol=1e-3)


# ---- what is settled on held-out pairs


def test_held_out_pairs_are_a_part_that_repeats(log: Interactions) -> None:
    rest, held = held_out_share(log, 0.1)
    assert len(held) == round(0.1 * len(log))
    assert len(rest) + len(held) == len(log)
    assert not rest.contains(held.users, held.items).any()
    assert (held_out_share(log, 0.1)[1].items == held.items).all()


def test_with_all_of_the_share_a_part_ranks_as_it_does_alone(log: Interactions) -> None:
    alone = EASE(l2=400).fit_pairs(log)
    model = BlendModel((alone, ALS(factors=4).fit_pairs(log)), (1.0, 0.0), known=log)
    assert model.recommend(k=10)["item"].equals(alone.recommend(k=10)["item"])


def test_a_given_share_of_nothing_counts_nothing(log: Interactions) -> None:
    model = blend("ease+als", shares="1+0").fit_pairs(log)
    assert model.recommend(k=5)["item"].equals(EASE().fit_pairs(log).recommend(k=5)["item"])


def test_every_part_is_fitted_again_to_all_pairs(log: Interactions, fitted: BlendModel) -> None:
    ease = fitted.parts[0]
    rows = np.arange(log.n_users)
    values = dict(ease.info["rival"])
    values.pop("name")
    assert torch.equal(ease.scores(rows), EASE(**values).fit_pairs(log).scores(rows))


def test_trained_parts_repeat_by_seed(log: Interactions) -> None:
    one = blend("als+auc-ns", encoder="mf", shares="1+1")
    rows = np.arange(log.n_users)
    first, again, other = (one.fit_pairs(log, seed).scores(rows) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# ---- folders, new users


def test_a_blend_is_saved_and_read_again(tmp_path: Path, fitted: BlendModel) -> None:
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, BlendModel)
    assert again.weights == fitted.weights
    assert again.recommend(k=5).equals(fitted.recommend(k=5))
    assert again.similar(fitted.known.item_ids[0].as_py(), 3).num_rows == 3
    card = (tmp_path / "model" / "README.md").read_text()
    assert "mean 0 and 1 at the best item that is new to the user" in card


def test_a_folder_whose_parts_and_weights_differ_is_damaged(tmp_path: Path, fitted: BlendModel) -> None:
    broken = fitted.having(weights=(1.0,))
    broken.save(tmp_path / "model")
    with pytest.raises(InputError, match="weights do not match its parts"):
        load(tmp_path / "model")


def test_people_it_has_never_seen(log: Interactions, fitted: BlendModel) -> None:
    newcomers = fitted.fold_in(pa.table({"user": ["new"] * 3, "item": log.item_ids[:3]}))
    lists = newcomers.recommend(k=4)
    assert lists.num_rows == 4
    assert not set(lists["item"].to_pylist()) & set(log.item_ids[:3].to_pylist())


# ---- vectors from elsewhere


@pytest.fixture(scope="module")
def vectors(log: Interactions) -> FactorModel:
    return ALS(factors=4).fit_pairs(log)


@pytest.mark.parametrize("form", ["model", "parquet", "npz"])
def test_vectors_are_found_by_their_ids(tmp_path: Path, log: Interactions, vectors: FactorModel, form: str) -> None:
    place = tmp_path / ("v.npz" if form == "npz" else "v")
    if form == "model":
        vectors.save(place)
    else:
        export(vectors, form, place)
    some = log.take(log.users > 5)
    found = vectors_from(place, some)
    assert torch.equal(found.item_vectors[0], vectors.item_vectors[0])
    model = blend(f"{place}+als", shares="1+0").fit_pairs(log)
    assert model.recommend(k=5)["item"].equals(vectors.recommend(k=5)["item"])


def test_vectors_of_other_data_are_refused(tmp_path: Path, log: Interactions, vectors: FactorModel) -> None:
    export(vectors, "npz", tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz") as found:
        parts = dict(found)
    for name, change, message in (
        (
            "item_ids",
            lambda ids: np.array([f"x{i}" for i in range(len(ids))]),
            "no vector for 40 of the data's",
        ),
        ("item_vectors", lambda v: v[:, :2], "users have 4 numbers and those of items 2"),
        ("user_vectors", lambda v: v[:-1], "one row of numbers for each id"),
        ("user_vectors", lambda v: v * np.nan, "no number"),
    ):
        np.savez(tmp_path / "w.npz", **{**parts, name: change(parts[name])})
        with pytest.raises(InputError, match=message):
            vectors_from(tmp_path / "w.npz", log)
    (tmp_path / "noise.npz").write_bytes(b"PK no")
    with pytest.raises(InputError, match="cannot be read as vectors"):
        vectors_from(tmp_path / "noise.npz", log)
    with pytest.raises(InputError, match="holds no vectors"):
        vectors_from(tmp_path, log)


def test_a_model_without_vectors_is_no_base(tmp_path: Path, log: Interactions) -> None:
    EASE().fit_pairs(log).save(tmp_path / "ease")
    with pytest.raises(InputError, match="no vectors"):
        vectors_from(tmp_path / "ease", log)


# ---- asking for it


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: blend("ease+ease"), "takes different parts"),
        (lambda: blend("ease+esae"), "esae"),
        (lambda: blend("ease+als", shares="1"), "one number a part"),
        (lambda: blend("ease+als", shares="0+0"), "one number a part"),
        (lambda: blend("ease+als", shares="1+x"), "one number a part"),
        (lambda: blend(encoder="gcn"), "encoder"),
        (lambda: blend("/tmp+als"), "have seen the pairs"),
        (lambda: on_top_of("ease", "auc-ns:alpha=0.8", None), "name alone"),
        (lambda: on_top_of("esae", None, None), "ease"),
        (lambda: on_top_of("ease", None, 1.0), "between 0 and 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(made: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made()  # type: ignore[operator]


def test_recipes_are_methods() -> None:
    for text in RECIPES.values():
        assert parse(text).label == text


def test_the_command_trains_a_base_and_a_method_as_one(tmp_path: Path) -> None:
    data = write_log(small_log(), tmp_path / "log.csv")
    made = evenhand(
        "train", str(data), "--base", "ease", "--method", "rns", "--base-share", "0.6", "--seeds", "1",
        "--out", str(tmp_path / "model"), "--json",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert made.document["rows"][0]["name"] == "blend:parts=ease+rns:shares=0.6+0.4"
    model = load(tmp_path / "model")
    assert isinstance(model, BlendModel)
    assert model.weights == (0.6, 0.4)
    for asked, message in (
        (("--recipe", "fast", "--method", "rns"), "leave --method and --base out"),
        (("--recipe", "bets"), "best"),
        (("--base-share", "0.3"), "name one"),
    ):
        refused = evenhand("train", str(data), *asked, "--out", str(tmp_path / "x"))
        assert refused.code == 2
        assert message in refused.err


def test_a_validation_part_settles_the_shares_and_nothing_is_fitted_again(log: Interactions) -> None:
    rest, held = held_out_share(log, 0.25)
    fitted, final = blend("ease+als").settle(rest, held, 0, torch.device("cpu"))
    everyone = np.arange(log.n_users)
    for part, method in zip(fitted.parts, final.parts, strict=True):
        torch.testing.assert_close(part.scores(everyone), method.fit_pairs(rest).scores(everyone))
    assert final.shares == fitted.weights
    again, same = final.settle(log, None, 0, torch.device("cpu"))
    assert same == final
    assert again.weights == fitted.weights


def test_honest_fits_settle_on_validation_and_paper_fits_inside_train(log: Interactions) -> None:
    rest, held = held_out_share(log, 0.25)
    split = Split(rest, held, held, "by hand")
    both, everyone = blend("ease+als"), np.arange(log.n_users)
    wanted = {
        "honest": both.settle(rest, held, 0, torch.device("cpu"))[0],
        "paper": both.fit_pairs(log),  # where validation joins train
    }
    for protocol, one in wanted.items():
        found = both.fit(split, seeds=1, protocol=protocol, k=5, device="cpu")
        torch.testing.assert_close(found.model.scores(everyone), one.scores(everyone))


def test_parts_are_methods_with_values_of_their_own(log: Interactions, tmp_path: Path) -> None:
    vectors = ALS(factors=4).fit_pairs(log)
    place = tmp_path / "a+b:c"
    vectors.save(place)
    one = on_top_of(str(place), "dns", 0.25)
    assert [part.name for part in one.parts] == ["vectors", "dns"]
    assert one.shares == (0.25, 0.75)
    values = Blend((EASE(l2=20), ALS(factors=4)), (0.5, 0.5))
    model = values.fit_pairs(log)
    assert [part.info["rival"] for part in model.parts] == [part.description()["rival"] for part in values.parts]
    assert made_by(model) == values
    assert from_info(json.loads(json.dumps(one.description()))) == one


def test_one_loss_with_two_encoders_makes_two_parts(log: Interactions) -> None:
    one = Blend((parse("softmax:shared=8", "mf"), parse("softmax:shared=8", "lightgcn")), (0.5, 0.5))
    assert one.names == ("softmax:shared=8", "lightgcn/softmax:shared=8")
    with pytest.raises(InputError, match="different parts"):
        Blend((parse("softmax"), parse("softmax")), (0.5, 0.5))


def test_shares_that_were_found_on_a_sample_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    split = simulate_log(80, 60, 2400, seed=1).split(test=0.2, validation=0.2, seed=0)
    there = int((split.validation.activity > 0).sum())
    method = Blend((Popular(), EASE(l2=20)))
    conditions = Conditions.of(split, seeds=1, k=5, device="cpu")
    fit = method.fit_under(conditions)
    assert fit.model.info["settled_on"] == {"users": there, "of": there}
    assert not any("sample" in note for note in fit.notes)
    monkeypatch.setattr(Shortlists.of, "__defaults__", (30,))
    sampled = method.fit_under(conditions)
    assert sampled.model.info["settled_on"] == {"users": 30, "of": there}
    assert f"The shares of {method.label} were found on a sample of 30 of {there} users." in sampled.notes


def test_finished_parts_are_not_fitted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = simulate_log(40, 30, 800, seed=1)
    method = Blend((Popular(), EASE(l2=20)), (1.0, 2.0))
    first, _ = method.settle(log, None, 0, torch.device("cpu"), RunOptions(checkpoints=tmp_path))
    fitted: list[str] = []
    real = module.fit_part

    def counted(part: Method, *more: Any) -> Any:
        fitted.append(part.label)
        return real(part, *more)

    monkeypatch.setattr(module, "fit_part", counted)
    again, _ = method.settle(log, None, 0, torch.device("cpu"), RunOptions(checkpoints=tmp_path))
    assert fitted == []
    assert again.recommend(k=5).equals(first.recommend(k=5))
    method.settle(log, None, 1, torch.device("cpu"), RunOptions(checkpoints=tmp_path))
    assert fitted  # another seed is other work
