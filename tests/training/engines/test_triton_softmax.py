"""One pass over the rows of a softmax against plain torch; without a GPU it runs in Triton's interpreter."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

CUDA = torch.cuda.is_available()
if not find_spec("triton"):
    pytest.skip("Triton is not installed.", allow_module_level=True)
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"

from evenhand.data.interactions import Interactions  # noqa: E402
from evenhand.encoders import MF  # noqa: E402
from evenhand.objectives.base import Scored  # noqa: E402
from evenhand.objectives.softmax import Softmax, SoftmaxLoss, _margin_and_slopes  # noqa: E402
from evenhand.objectives.softmax_relatives import PSL, AUCSoftmax  # noqa: E402
from evenhand.training.engines.triton_softmax import softmax_rows  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
REPLICAS, BATCH, ITEMS = 2, 6, 40


def case(of: Softmax, n: int) -> tuple[SoftmaxLoss, Scored, torch.Tensor, torch.Tensor]:
    """Users with 0 to all items, who have some of the shared negatives; the last has them all."""
    chance = np.random.default_rng(0)
    seen = chance.random((7, ITEMS)) < np.linspace(0, 0.8, 7)[:, None]
    seen[-1] = True
    train = Interactions.from_pairs(*np.nonzero(seen), n_users=7, n_items=ITEMS)
    model = MF(dim=4).start(train, [0] * REPLICAS, DEVICE)
    loss = of.start(train, model, [0] * REPLICAS)
    users, negatives = (
        torch.from_numpy(chance.integers(high, size=(REPLICAS, size))) for high, size in ((7, BATCH), (ITEMS, n))
    )
    users[:, -1] = 6
    empty = torch.empty(0)
    batch = Scored(
        slice(0, REPLICAS),
        users.to(DEVICE),
        users.to(DEVICE),
        negatives.unsqueeze(1).to(DEVICE),
        empty,
        empty,
        empty,
        log_q=torch.from_numpy(chance.normal(size=(REPLICAS, 1, n))).to(DEVICE),
    )
    x = torch.from_numpy(chance.uniform(-1, 1, (REPLICAS, BATCH, n)).astype(np.float32)).to(DEVICE)
    return loss, batch, x, x[..., 0] * 0.5


@pytest.mark.parametrize("n", [1, 5, 64, 100])
@pytest.mark.parametrize("of", [Softmax(0.1), Softmax(0.5, correction=True)], ids=["plain", "corrected"])
def test_margins_and_slopes_are_those_of_torch(of: Softmax, n: int) -> None:
    loss, batch, x, own = case(of, n)
    slopes, margin = _margin_and_slopes(loss, batch, x.clone(), own)
    mine = softmax_rows(loss, batch, x, own)
    assert mine is not None
    torch.testing.assert_close(mine, margin, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(x, slopes.nan_to_num(0.0), rtol=1e-5, atol=1e-6)
    assert (mine[:, -1] < -1e30).all()
    assert not x[:, -1].any()


@pytest.mark.parametrize("of", [PSL(0.2), AUCSoftmax(0.2)], ids=["psl", "auc-softmax"])
def test_other_curves_and_weights_are_left_to_torch(of: Softmax) -> None:
    assert softmax_rows(*case(replace(of), 5)) is None
