"""What is said of the traffic, beside what is sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evenhand.data.simulate import simulate_log
from evenhand.encoders import MF
from evenhand.methods import parse
from evenhand.training.estimates import wire_of
from evenhand.training.settings import Settings
from evenhand.training.trained import Trained
from evenhand.training.trainer import Trainer
from evenhand.utils.world import World
from ranks import on_ranks

METHODS = ("rns", "dns", "auc-ns:ecdf=32", "auc-ns:ecdf=32:pool=512", "softmax:shared=256")


def sent(world: World) -> list[tuple[float, float]]:
    """For each method: bytes a positive as estimated, and as counted over one epoch."""
    train, found = simulate_log(400, 1500, 9000, seed=2), []
    for name in METHODS:
        method = parse(name)
        assert isinstance(method, Trained)
        settings = Settings(batch=1024, l2=0.0, weight_decay=0.0)
        trainer = Trainer(
            train, MF(dim=16), [method.sampler], (0,), settings, torch.device("cpu"),
            hot=train.popularity > 20, objective=method.objective,
        )  # fmt: skip
        plan = trainer.engine.plan(0)
        before = world.sent
        trainer.engine.run(plan, 0, 5)
        counted = (world.sent - before) / (5 * 1024) * world.size
        found.append((wire_of(trainer.work, train.popularity).bytes, counted))
    return found


def renewed(world: World) -> tuple[float, float]:
    """Of SL@K: bytes a positive beyond those of softmax as estimated, and as counted over one renewal in two epochs."""
    train = simulate_log(3000, 1500, 30_000, seed=2)
    trainers = []
    for name in ("slatk:shared=256:refresh=2", "softmax:shared=256"):
        method = parse(name)
        assert isinstance(method, Trained)
        settings = Settings(batch=1024, l2=0.0, weight_decay=0.0)
        trainers.append(Trainer(
            train, MF(dim=16), [method.sampler], (0,), settings, torch.device("cpu"),
            hot=train.popularity > 20, objective=method.objective,
        ))  # fmt: skip
    estimated = [wire_of(trainer.work, train.popularity).bytes for trainer in trainers]
    before = world.sent
    for epoch in (1, 2):
        trainers[0].engine.refresh(epoch)
    return estimated[0] - estimated[1], (world.sent - before) / (2 * len(train)) * world.size


def test_what_renewing_the_edges_of_all_users_sends_is_estimated() -> None:
    answers = on_ranks(3, renewed)
    assert np.mean([counted for _, counted in answers]) == pytest.approx(answers[0][0], rel=0.1)


def test_bytes_a_positive_are_those_that_were_estimated() -> None:
    answers = on_ranks(2, sent)
    for place, name in enumerate(METHODS):
        estimated = answers[0][place][0]
        counted = np.mean([answer[place][1] for answer in answers])
        assert counted == pytest.approx(estimated, rel=0.1), (name, estimated, counted)
