"""Counting scores in one pass, against counting them candidate by candidate."""

from types import SimpleNamespace

import pytest
import torch

from evenhand.samplers import counting


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (50, 5), (257, 8), (1000, 19)])
def test_one_pass_counts_as_one_by_one(n: int, m: int, device: str) -> None:
    """Ties count, and so do infinite scores; what is no number does not."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("There is no GPU.")
    scores = torch.randn(3, 7, n, generator=torch.Generator().manual_seed(n)).round(decimals=1)
    x = scores[..., torch.arange(m + 1) % n].clone()
    x[0, 0, 0], x[1, 0, 0], x[2, 0, 0] = torch.inf, -torch.inf, torch.nan
    expected = (scores.unsqueeze(2) <= x.unsqueeze(3)).sum(-1, dtype=torch.int32)
    assert torch.equal(counting.count_below(scores, x), expected)
    count = counting.counter(device)
    assert count is not counting.count_below
    assert torch.equal(count(scores.to(device), x.to(device)).cpu(), expected)
    assert torch.equal(count(scores.to(device), x.to(device)[..., :m]).cpu(), expected[..., :m])


def test_where_nothing_can_be_compiled_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that can be imported may still not compile, as Triton's where there is no C compiler."""

    def broken(*scores: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("Failed to find C compiler.\nSet CC.")

    assert counting.compile_problem("cpu") is None
    counting.compile_problem.cache_clear()
    monkeypatch.setattr(counting, "import_module", lambda name: SimpleNamespace(count_below=broken))
    try:
        assert counting.counter("cpu") is counting.count_below
        assert counting.compile_problem("cpu") == "Failed to find C compiler."
        assert counting.counter("elsewhere") is counting.count_below
    finally:
        counting.compile_problem.cache_clear()
