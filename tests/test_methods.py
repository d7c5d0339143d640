"""The registry: how a method is written, what is refused, and how a sampler is named again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand.encoders import ENCODERS
from evenhand.methods import BASELINES, METHODS, REGISTRY, parse, parse_value, trained
from evenhand.objectives import BPR
from evenhand.samplers import (
    AUCSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    Sampler,
    UniformSampler,
)
from evenhand.utils.errors import InputError
from run_cli import evenhand


@pytest.mark.parametrize(
    ("text", "sampler"),
    [
        ("rns", UniformSampler()),
        ("pns", PopularitySampler(exponent=0.75)),
        ("pns:exponent=1", PopularitySampler(exponent=1)),
        ("dns", DynamicSampler(candidates=5)),
        ("dns:candidates=2", DynamicSampler(candidates=2)),
        ("fairstatic", GroupSampler(groups=None, shares="interactions")),
        ("fairstatic:shares=items", GroupSampler(shares="items")),
        ("auc-ns", AUCSampler(0.75, 0.01, 0.006, 5, 10, "auto")),
        ("auc-ns:alpha=auto:beta=1e-3:ecdf=64", AUCSampler(alpha="auto", beta=0.001, ecdf=64)),
        (" auc-ns:gamma=0 ", AUCSampler(gamma=0)),
    ],
)
def test_parses(text: str, sampler: Sampler) -> None:
    got = parse(text)
    assert got.sampler == sampler
    assert got.label == text.strip()
    assert got.name == text.strip().split(":")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "auc",
            "unknown method 'auc'; did you mean 'auc-ns'? Known: {known}.",
        ),
        (
            "DNS",
            "unknown method 'DNS'; did you mean 'dns'? Known: {known}.",
        ),
        ("xyzzy", "unknown method 'xyzzy'; Known: {known}."),
        (
            "dns:candidate=2",
            "unknown parameter of 'dns' 'candidate'; did you mean 'candidates'? Known: candidates, top.",
        ),
        ("rns:candidates=2", "method 'rns' has no parameters, but 'candidates' was given."),
        ("dns:2", "'dns:2': parameters are written name:key=value, but '2' has no '='."),
        ("dns:candidates=0", "candidates must be a whole number from 1 to 10,000, not 0."),
        (f"auc-ns:candidates={10**26}", f"candidates must be a whole number from 1 to 10,000, not {10**26}."),
        ("dns:candidates=2.5", "candidates must be a whole number from 1 to 10,000, not 2.5."),
        ("dns:candidates=many", "candidates must be a whole number from 1 to 10,000, not many."),
        ("pns:exponent=high", "'pns:exponent=high': exponent=high is not a number."),
        ("auc-ns:alpha=0.2", "alpha must lie in [0.5, 1] or be 'auto', not 0.2."),
        ("auc-ns:ecdf=1.5", "ecdf must be 'exact', 'auto' or a whole number from 1 to 10,000, not 1.5."),
        ("fairstatic:shares=users", "shares must be 'interactions', 'items' or numbers, not 'users'."),
    ],
)
def test_refuses_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value) == message.replace("{known}", ", ".join(sorted(REGISTRY)))


def test_shared_values_reach_methods_that_know_them_and_yield_to_their_own() -> None:
    shared = {"candidates": 3, "alpha": 0.9, "beta": None}
    assert parse("dns", shared=shared).sampler == DynamicSampler(candidates=3)
    assert parse("auc-ns", shared=shared).sampler == AUCSampler(alpha=0.9, candidates=3)
    assert parse("auc-ns:candidates=7", shared=shared).sampler == AUCSampler(alpha=0.9, candidates=7)
    assert parse("rns", shared=shared).sampler == UniformSampler()


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("0.5", 0.5), ("1e-3", 0.001), ("-2", -2), ("auto", "auto"), ("exact", "exact"), ("", "")],
)
def test_values(text: str, value: object) -> None:
    got = parse_value(text)
    assert got == value
    assert type(got) is type(value)


@given(
    alpha=st.one_of(st.just("auto"), st.floats(0.5, 1)),
    beta=st.floats(0, 5),
    candidates=st.integers(1, 50),
    ecdf=st.one_of(st.just("exact"), st.integers(1, 99)),
)
def test_a_label_reads_back_as_its_sampler(alpha: float, beta: float, candidates: int, ecdf: int) -> None:
    sampler = AUCSampler(alpha=alpha, beta=beta, candidates=candidates, ecdf=ecdf)
    assert parse(trained(sampler).label).sampler == sampler


def test_labels_name_what_differs_from_the_defaults() -> None:
    found = [parse(name) for name in METHODS]
    assert [trained(one.sampler, one.objective).label for one in found] == list(METHODS)
    assert trained(AUCSampler(alpha=0.6, gamma=0.0)).label == "auc-ns:alpha=0.6:gamma=0.0"
    assert trained(GroupSampler(groups=(0, 1), shares="items")).label == "fairstatic:shares=items"


def test_parameters_and_defaults_are_those_of_the_sampler() -> None:
    assert METHODS["dns"].parameters() == {"candidates": 5, "top": 1}
    assert METHODS["rns"].parameters() == {}
    assert METHODS["auc-ns"].parameters() == {
        "alpha": 0.75,
        "beta": 0.01,
        "gamma": 0.006,
        "candidates": 5,
        "probes": 10,
        "ecdf": "auto",
        "pool": None,
        "rule": "paper",
        "inside": 10,
    }


def test_any_objective_with_any_sampler_by_name() -> None:
    for one in METHODS.values():
        for other in METHODS.values():
            if other.objective is not BPR and other.sampler is UniformSampler:
                with pytest.raises(InputError, match="write @rns"):
                    parse(f"{one.name}@{other.name}")
                continue
            both = parse(f"{one.name}@{other.name}")
            assert (type(both.objective), type(both.sampler)) == (one.objective, other.sampler)


@pytest.mark.parametrize("text", ["ips-cn@", "@dns", "ips-cn@nothing", "ips-cn@dns@rns"])
def test_combinations_name_two_methods(text: str) -> None:
    with pytest.raises(InputError, match="unknown method"):
        parse(text)


def test_a_combination_trains_and_flags_reach_its_sampler() -> None:
    split = eh.simulate(60, 50, 450, uniform_test=5).split
    found = eh.compare(split, ["ips-cn@auc-ns:ecdf=8", "rns"], eh.MF(dim=4), 1, eh.Settings(epochs=2), k=5)
    assert [row.method for row in found.rows] == ["ips-cn@auc-ns", "rns"]
    shared = {"alpha": 0.9, "candidates": 3}
    assert parse("ips-cn@auc-ns", shared=shared).sampler == eh.AUCSampler(**shared)


def test_the_listing_gives_every_parameter_a_range_or_a_reason() -> None:
    found = evenhand("methods", "--json").document
    assert set(found) == {"methods", "rivals", "encoders", "settings"}
    assert [one["name"] for one in found["methods"]] == list(METHODS)
    assert [one["name"] for one in found["rivals"]] == list(BASELINES)
    assert [one["name"] for one in found["encoders"]] == list(ENCODERS)
    for one in (line for kind in found.values() for line in kind):
        assert set(one["ranges"]).isdisjoint(one["fixed"])
        assert {*one["ranges"], *one["fixed"]} == set(one["parameters"]), one["name"]
        assert one["summary"]
        assert one["source"]
    beta = next(one for one in found["methods"] if one["name"] == "auc-ns")["ranges"]["beta"]
    assert beta == {"low": 0.001, "high": 1, "log": True, "integer": False}
    final = next(one for one in found["methods"] if one["name"] == "bc-loss")["ranges"]["final"]
    assert final == {"values": ["inner", "cosine"]}


def test_the_listing_shows_defaults_ranges_and_sources() -> None:
    lines = evenhand("methods").out.splitlines()
    (dns,) = (line for line in lines if line.startswith("dns "))
    assert dns.rstrip().endswith("  Zhang et al. 2013")
    assert "candidates=5 (2..20:log)" in dns
    (ease,) = (line for line in lines if line.startswith("ease "))
    assert "l2=400 (10..10000:log)" in ease
