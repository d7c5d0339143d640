"""The one contract: whatever the registry knows is fitted, described, refitted and updated in the same way."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.splits import Split
from evenhand.methods import REGISTRY, from_info, made_by, method_of, parse
from evenhand.samplers import UniformSampler
from evenhand.training.method import Conditions, Fit, Method
from run_cli import one_thread, small_log

LOG = small_log()
SPLIT = LOG.split(test=0.2, validation=0.1)
QUICK = eh.Settings(epochs=2, batch=256, negatives=None)
ENCODER = eh.MF(dim=4)
SMALL = {
    "als": "als:factors=4:iterations=2",
    "blend": "blend:parts=ease+als:shares=0.5+0.5",
    "bc-loss": "bc-loss:warm_up=1",
}
"""As they are fitted here, where the defaults take long."""


@dataclass(frozen=True)
class Stronger(UniformSampler):
    """Somebody's own sampler."""

    strength: int = 3


def every() -> list[Method]:
    named = [parse(SMALL.get(name, name), ENCODER, QUICK) for name in REGISTRY]
    return [*named, method_of(Stronger(), ENCODER, QUICK), parse("ips-cn@dns", ENCODER, QUICK)]


def fitted(method: Method, **options: Any) -> Fit:
    with one_thread():
        return method.fit(SPLIT, **({"seeds": [3, 5], "k": (5, 10), "device": "cpu"} | options))


@pytest.mark.parametrize("method", every(), ids=lambda method: method.label)
def test_every_method_gives_a_fit_that_holds_a_model(method: Method) -> None:
    found = fitted(method)
    seeds = 2 if method.seeded else 1
    assert list(found.results) == [5, 10]
    assert [len(each) for each in found.results.values()] == [seeds, seeds]
    assert len(found.scorers) == len(found.validation or ()) == seeds
    assert bool(found.epochs) == bool(found.history) == (method.encoder_name is not None)
    assert found.model.known is SPLIT.consumed or found.model.known.keys.tolist() == SPLIT.consumed.keys.tolist()
    assert found.model.seeds[found.model.best] in (3, 5)
    assert found.model.info["method"] == method.label
    # What is reported is what the lists of the recommending seed are worth.
    best = int(np.argmax(found.validation or ()))
    listed = eh.evaluate(found.model.recommend(k=10), SPLIT, k=(5, 10))
    for k in (5, 10):
        assert found.at(k)["ndcg"].values[best] == pytest.approx(listed.at(k).metrics["ndcg"].mean, abs=1e-9)
        assert found.model.metrics[str(k)]["ndcg"]["values"] == list(found.at(k)["ndcg"].values)


@pytest.mark.parametrize("method", every(), ids=lambda method: method.label)
def test_a_description_makes_the_same_method_again(method: Method) -> None:
    again = from_info(json.loads(json.dumps(method.description())))
    assert (again, again.label, again.name) == (method, method.label, method.name)
    assert again.parameters() == method.parameters()


@pytest.mark.parametrize("method", every(), ids=lambda method: method.label)
def test_a_fit_is_refitted_to_all_parts_and_a_model_updated(method: Method) -> None:
    with one_thread():
        whole = method.refit(fitted(method, seeds=1), SPLIT, device="cpu")
        assert len(whole.known) == len(LOG)
        assert whole.info["split"].endswith("; refitted on all parts")
        first = LOG.take(LOG.users < 50)
        old = method.fit(
            Split(first, None, first.take(np.zeros(len(first), bool)), "half"), seeds=1, device="cpu"
        ).model
        new = made_by(old).update(old, LOG, device="cpu").model
    assert len(new.known) == len(LOG)
    assert len(new.recommend(k=3)) == 3 * LOG.n_users


@pytest.mark.parametrize("method", every(), ids=lambda method: method.label)
def test_values_are_changed_by_name_and_checked(method: Method) -> None:
    for name, value in method.parameters().items():
        if method.name != "blend":
            assert method.having({name: value}) == method
    with pytest.raises(eh.InputError, match="unknown parameter"):
        method.having({"nonsense": 1})


def test_the_label_is_what_was_asked_for_or_what_differs_from_the_defaults() -> None:
    assert parse("dns:candidates=5").label == "dns:candidates=5"
    assert parse("dns:candidates=5").having({"candidates": 7}).label == "dns:candidates=5"
    assert (eh.EASE().label, eh.EASE(l2=300).label) == ("ease", "ease:l2=300")
    assert method_of(eh.AUCSampler(alpha=0.6)).label == "auc-ns:alpha=0.6"
    assert method_of(Stronger(strength=4)).label == "Stronger:strength=4"
    assert method_of(eh.Trained(eh.UniformSampler(), eh.MACR())).label == "macr"
    assert parse("rns", objective=eh.IPS()).label == "ips-cn"


def test_methods_that_train_together_have_what_they_have_alone() -> None:
    conditions = Conditions.of(SPLIT, 2, k=5, device="cpu")
    methods = [parse("auc-ns", ENCODER, replace(QUICK, lr=lr)).under(conditions).closed() for lr in (0.01, 0.03)]
    with one_thread():
        together = methods[0].fit_together(methods, conditions)
        alone = [one.fit_under(conditions) for one in methods]
    for mine, theirs in zip(together, alone, strict=True):
        assert (mine.validation, mine.epochs) == (theirs.validation, theirs.epochs)
        assert mine.at(5) == theirs.at(5)
        assert mine.model.recommend(k=4).equals(theirs.model.recommend(k=4))
        assert mine.model.info["settings"] == theirs.model.info["settings"]
        losses = [[record["loss"] for record in one.history] for one in (mine, theirs)]
        assert losses[0] == losses[1]


def test_methods_of_different_losses_do_not_train_together() -> None:
    conditions = Conditions.of(SPLIT, 1, k=5, device="cpu")
    methods = [parse(f"bsl:temperature={t}", ENCODER, QUICK).under(conditions).closed() for t in (0.1, 0.2)]
    with pytest.raises(ValueError, match="shape"):
        methods[0].fit_together(methods, conditions)


def test_in_the_papers_protocol_validation_joins_train_and_a_note_says_so() -> None:
    found = fitted(eh.EASE(), protocol="paper")
    merged = Split(SPLIT.consumed, None, SPLIT.test, "by hand")
    assert found.at(10)["ndcg"] == eh.EASE().fit(merged, protocol="paper", k=10).at(10)["ndcg"]
    assert "no validation part" in found.notes[-1]
    assert "nothing was chosen on validation" in eh.EASE().fit(merged, k=5).notes[-1]


def test_compare_takes_samplers_methods_and_names_and_shows_progress() -> None:
    other = eh.Trained(eh.AUCSampler(), encoder=eh.LightGCN(dim=4), settings=QUICK)
    with one_thread():
        found = eh.compare(
            SPLIT, ["rns", Stronger(), eh.EASE(), other], ENCODER, 1, QUICK, k=5, device="cpu", progress=True
        )
    assert [(row.name, row.encoder, row.method) for row in found.rows] == [
        ("rns", "mf", "rns"),
        ("Stronger", "mf", "Stronger"),
        ("ease", None, "ease"),
        ("auc-ns", "lightgcn", "auc-ns"),
    ]
    assert found["Stronger"].at(5)["ndcg"] == found.row("Stronger", 5)["ndcg"]
    with pytest.raises(eh.InputError, match="'dns' was not compared"):
        found["dns"]


def test_the_old_spellings_work_by_keyword() -> None:
    with one_thread():
        new = eh.fit(SPLIT, "dns", ENCODER, 1, settings=QUICK, device="cpu", progress=False)
        old = eh.fit(SPLIT, encoder=ENCODER, method="dns", seeds=1, settings=QUICK, device="cpu", progress=False)
        assert old.recommend(k=3).equals(new.recommend(k=3))
        with pytest.deprecated_call():
            assert eh.compare(SPLIT, ["popular"], ks=(3,)).ks == (3,)
