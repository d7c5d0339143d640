"""Going on with a model on newer logs: what is kept, what is new, what is refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest
import torch

import evenhand as eh
from evenhand.encoders import MF, Encoder, encoder_named
from evenhand.methods import made_by
from evenhand.models.factors import FactorModel
from evenhand.samplers import DynamicSampler, UniformSampler
from evenhand.testing import checkerboard
from evenhand.training import Fit, run
from evenhand.training.checkpoints import Checkpoints
from evenhand.training.method import RunOptions
from evenhand.training.run import train
from evenhand.training.trained import Trained
from run_cli import evenhand

QUICK = eh.Settings(epochs=8, batch=64, lr=0.05, weight_decay=1e-4)
ENCODERS = [eh.MF(dim=8), eh.LightGCN(dim=8, layers=1)]


def first_users(log: eh.Interactions, n: int) -> eh.Interactions:
    """The pairs of the first n users and all items but the last, as a log of its own."""
    keep = (log.users < n) & (log.items < log.n_items - 1)
    return eh.Interactions.from_pairs(log.users[keep], log.items[keep], n_users=n, n_items=log.n_items - 1)


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda e: type(e).__name__)
def test_new_users_and_items_join_and_are_learned(encoder: Encoder) -> None:
    log, withheld = checkerboard(40, 40)
    old = train(first_users(log, 30).split(validation=0.1), encoder_named(encoder), UniformSampler(), 2, QUICK).model
    fitted = made_by(old).update(old, log, epochs=30)
    model = fitted.model
    assert (model.known.n_users, model.known.n_items) == (40, 40)
    assert model.seeds == old.seeds
    unknown = eh.Split(model.known, None, withheld, "the withheld squares")
    found = eh.evaluate(model.recommend(k=5), unknown, k=5).at(5).metrics["recall"].mean
    assert found > 0.8, "the withheld squares are in the lists, of new users too"


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda e: type(e).__name__)
def test_training_starts_from_the_old_tables(encoder: Encoder) -> None:
    """With a rate of nearly nothing the known rows stay, and new ones are not nan."""
    log, _ = checkerboard(40, 40)
    still = eh.Settings(epochs=1, batch=64, lr=1e-12, weight_decay=0)
    old = train(first_users(log, 30).split(validation=0.1), encoder_named(encoder), DynamicSampler(), 1, still).model
    model = made_by(old).update(old, log, epochs=1).model
    before, after = (m.tables or m.vectors for m in (old, model))
    torch.testing.assert_close(after[0][:, :30], before[0])
    torch.testing.assert_close(after[1][:, :39], before[1])
    assert all(bool(torch.isfinite(t).all()) for t in (*after, *model.vectors))


def test_nothing_new_is_refused() -> None:
    log, _ = checkerboard(20, 20)
    old = train(log.split(validation=0.1), MF(), UniformSampler(), 1, QUICK).model
    with pytest.raises(eh.InputError, match="no pair that the model does not know"):
        made_by(old).update(old, old.known)


def test_the_command_line_updates_a_saved_model(tmp_path: Path) -> None:
    log, _ = checkerboard(30, 30)
    names = eh.Interactions.from_pairs(
        log.users, log.items, user_ids=pa.array([f"u{i:02}" for i in range(30)]), item_ids=log.item_ids
    )
    table = names.to_table()
    old = names.users < 25
    csv.write_csv(table.filter(pa.array(old)), tmp_path / "old.csv")
    csv.write_csv(table, tmp_path / "new.csv")
    tiny = ("--epochs", "2", "--dim", "8", "--seeds", "2", "--method", "auc-ns:ecdf=8", "--k", "5")
    assert evenhand("train", tmp_path / "old.csv", "--out", tmp_path / "a", *tiny).code == 0
    ended = evenhand("update", tmp_path / "a", tmp_path / "new.csv", "--out", tmp_path / "b")
    assert ended.code == 0, ended.err
    assert "5 users, 0 items" in ended.out
    both = [eh.load(tmp_path / name) for name in ("a", "b")]
    assert [m.known.n_users for m in both] == [25, 30]
    assert both[1].recommend(["u29"], k=3).num_rows == 3
    refused = evenhand("update", tmp_path / "a", tmp_path / "new.csv", "--out", tmp_path / "b")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert np.array_equal(eh.load(tmp_path / "b").known.items, both[1].known.items)


def _update(log: eh.Interactions, split: eh.Split, fit: Fit, device: str, **named: Any) -> FactorModel:
    return made_by(fit.model).update(fit.model, log, epochs=6, device=device, run=RunOptions(**named)).model


def _refit(log: eh.Interactions, split: eh.Split, fit: Fit, device: str, **named: Any) -> FactorModel:
    method = Trained(UniformSampler(), encoder=MF(dim=8), settings=QUICK)
    return method.refit(fit, split, device=device, run=RunOptions(**named))


@pytest.mark.parametrize("again", [_update, _refit], ids=["update", "refit"])
def test_what_was_interrupted_goes_on(
    again: Callable[..., FactorModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit as if nothing had happened; checkpoints of other work are passed over."""
    monkeypatch.setattr(run, "Checkpoints", partial(Checkpoints, share=0))
    log, _ = checkerboard(40, 40)
    split = first_users(log, 30).split(validation=0.1)
    fit = train(split, MF(dim=8), UniformSampler(), 1, eh.Settings(epochs=8, batch=64, lr=0.05, patience=8))
    work = partial(again, log, split, fit, device="cpu")
    whole = work()
    done: list[int] = []

    def stop(epoch: int, most: int, record: Any) -> None:
        done.append(epoch)
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(on_epoch=stop, checkpoints=tmp_path / "kept")
    assert any((tmp_path / "kept").iterdir())
    done.clear()
    resumed = work(on_epoch=lambda epoch, most, record: done.append(epoch), checkpoints=tmp_path / "kept")
    assert done[0] in (3, 4)
    assert torch.equal(resumed.user_vectors, whole.user_vectors)
    assert torch.equal(resumed.item_vectors, whole.item_vectors)

    other = partial(again, log, split, train(split, MF(dim=8), UniformSampler(), [5], QUICK), device="cpu")
    done.clear()
    begun = other(on_epoch=lambda epoch, most, record: done.append(epoch), checkpoints=tmp_path / "kept")
    assert done[0] == 1
    assert torch.equal(begun.user_vectors, other().user_vectors)
