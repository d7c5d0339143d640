"""What `compare` and `train` have in common: everything checked and read before the first epoch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenhand.cli import inputs
from evenhand.cli.options import Reading, Sampling, Splitting, Training
from evenhand.encoders import Encoder
from evenhand.experiments.configuration import data_record
from evenhand.experiments.entrants import Entrant, entrant
from evenhand.experiments.output import check_folder
from evenhand.methods import METHODS, Contender
from evenhand.objectives import BPR, Objective
from evenhand.samplers import Sampler, UniformSampler
from evenhand.training.settings import ProtocolName, Settings
from evenhand.utils.errors import InputError, unknown

SAMPLERS = [name for name, method in METHODS.items() if method.objective is BPR or method.sampler is not UniformSampler]
"""Methods that choose their negatives in a way of their own."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A run whose every option has been understood and found possible."""

    source: inputs.Source
    contenders: list[Entrant]
    encoder: Encoder
    settings: Settings
    protocol: ProtocolName
    ks: tuple[int, ...]
    folder: Path | None
    """Where the outcome goes; not made yet."""
    data: dict[str, Any]
    """Which data this is, for the record."""


def make_plan(
    data: str,
    methods: Sequence[str],
    training: Training,
    sampling: Sampling,
    splitting: Splitting,
    reading: Reading,
    *,
    k: str,
    data_dir: str | None,
    out: str | None,
    force: bool,
    resume: bool = False,
) -> Plan:
    """Check what costs nothing to check first, then read the data."""
    if resume and (out is None or force):
        raise InputError("--resume goes on with the run in --out, and not together with --force.")
    ks = inputs.list_lengths(k)
    protocol = inputs.protocol_name(splitting.protocol)
    encoder = inputs.make_encoder(training)
    settings = inputs.make_settings(training, sampling, protocol)
    methods, sampling = with_sampler(methods, sampling)
    inputs.make_contenders(methods, sampling)
    folder = check_folder(out, force, resume) if out is not None else None
    source = inputs.load_source(data, data_dir, reading, splitting)
    return Plan(
        source,
        inputs.make_contenders(methods, sampling, source.split.train, reading.item),
        encoder,
        settings,
        protocol,
        ks,
        folder,
        data_record(data, source.files, reading, splitting, groups=sampling.groups),
    )


def say(plan: Plan, training: Training, hot: str | None, json: bool) -> None:
    """What `--explain` prints, before the first epoch; beside a JSON document it goes to stderr."""
    from evenhand.experiments.explain import explained
    from evenhand.utils.text import one_line

    for line in explained(
        plan.source.split,
        plan.contenders,
        plan.encoder,
        training.seeds,
        plan.settings,
        protocol=plan.protocol,
        hot=hot,
        device=training.device,
    ):
        print(one_line(line), file=sys.stderr if json else sys.stdout, flush=True)


def with_sampler(methods: Sequence[str], sampling: Sampling) -> tuple[list[str], Sampling]:
    """`--sampler NAME` written into the methods, as `method@NAME`; baselines have no negatives to choose."""
    asked = sampling.sampler
    if asked is None:
        return list(methods), sampling
    if asked not in SAMPLERS:
        raise unknown("sampler", asked, SAMPLERS)
    texts = [_having(text.strip(), asked) for text in methods if text.strip()]
    trained = [one for one in map(entrant, texts) if isinstance(one, Contender)]
    if texts and not trained:
        raise InputError(f"--sampler has no effect on {', '.join(texts)}; leave it out.")
    alike: dict[tuple[Sampler, Objective], str] = {}
    for one in trained:
        first = alike.setdefault((one.sampler, one.objective), one.label)
        if first != one.label:
            raise InputError(f"with --sampler {asked}, {first} and {one.label} are the same; name one of them.")
    return texts, replace(sampling, sampler=None)


def _having(text: str, sampler: str) -> str:
    """A method's text with the sampler in it, where it does not have it already."""
    name, colon, parameters = text.partition(":")
    objective, at, own = name.partition("@")
    if at and own != sampler:
        raise InputError(f"'{name}' and --sampler {sampler} name two samplers; leave one of them out.")
    known = METHODS.get(objective)
    if at or known is None or known.sampler is METHODS[sampler].sampler:
        return text
    return f"{objective}@{sampler}{colon}{parameters}"
