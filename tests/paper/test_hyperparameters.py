"""The published settings against the two tables, and what the paper's cells say about its claims."""

import pytest

from evenhand.paper.hyperparameters import PublishedSettings, published_settings
from evenhand.utils.errors import InputError


def test_the_paper_s_table() -> None:
    assert published_settings("ml-100k", "mf") == PublishedSettings(
        dim=32,
        batch=128,
        lr=0.1,
        weight_decay=1e-4,
        epochs=500,
        milestones=(20, 60, 80),
        layers=None,
        alpha=0.75,
        beta=0.01,
        gamma=0.006,
        candidates=5,
        probes=10,
        assumed=("candidates", "dim", "epochs", "probes"),
    )
    yahoo = published_settings("yahoo-r3", "lightgcn")
    assert (yahoo.alpha, yahoo.beta, yahoo.gamma, yahoo.layers) == (0.65, 0.001, 0.004, 3)
    assert (yahoo.milestones, yahoo.weight_decay) == ((), 0.0)


@pytest.mark.parametrize(
    ("dataset", "encoder", "differs"),
    [
        ("ml-100k", "mf", {"alpha": 0.6, "beta": 0.025}),
        ("ml-100k", "lightgcn", {"batch": 1024, "weight_decay": 1e-5, "beta": 0.025}),
        ("ml-1m", "mf", {"alpha": 0.6, "beta": 0.025}),
        ("ml-1m", "lightgcn", {"lr": 1e-3, "beta": 0.025}),
    ],
)
def test_where_the_released_suggestion_differs(dataset: str, encoder: str, differs: dict[str, float]) -> None:
    paper, released = (
        vars(published_settings(dataset, encoder)),
        vars(published_settings(dataset, encoder, which="released")),
    )
    assert {n: released[n] for n in paper if paper[n] != released[n] and n != "assumed"} == differs


def test_other_methods_have_nothing_of_their_own() -> None:
    found = published_settings("ml-1m", "mf", "dns")
    assert (found.alpha, found.beta, found.gamma, found.candidates, found.probes) == (None,) * 5
    assert found.assumed == ("batch", "dim", "epochs", "lr", "milestones", "weight_decay")
    assert (found.lr, found.batch) == (5e-4, 128)


def test_settings_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="did you mean 'lightgcn'"):
        published_settings("ml-100k", "lightgnc")
    with pytest.raises(InputError, match="suggests nothing for yahoo-r3"):
        published_settings("yahoo-r3", "mf", which="released")
    with pytest.raises(InputError, match="did you mean 'released'"):
        published_settings("ml-100k", "mf", which="release")  # type: ignore[arg-type]
