"""What `compare`, `train` and `tune` have in common: everything checked and read before the first epoch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from evenhand.cli import inputs
from evenhand.cli.options import Sampling, Training, Work
from evenhand.encoders import ENCODERS, Encoder
from evenhand.experiments.fit import explained
from evenhand.experiments.output import check_folder, data_record
from evenhand.methods import parse, parse_value, registered, with_negatives
from evenhand.models.item_files import read_groups
from evenhand.training.method import Conditions, Method
from evenhand.training.settings import ProtocolName, Settings, resolve_device
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import one_line


@dataclass(frozen=True, eq=False)
class Plan:
    """A run whose every option has been understood and found possible."""

    source: inputs.Source
    methods: list[Method]
    encoder: Encoder
    settings: Settings
    conditions: Conditions
    folder: Path | None
    """Where the outcome goes; not made yet."""
    data: dict[str, Any]
    """Which data this is, for the record."""

    @property
    def protocol(self) -> ProtocolName:
        return self.conditions.protocol

    def explain(self, json: bool) -> None:
        """What `--explain` prints, before the first epoch; beside a JSON document it goes to stderr."""
        for line in explained(self.conditions, self.methods, self.encoder, self.settings):
            print(one_line(line), file=sys.stderr if json else sys.stdout, flush=True)


def make_plan(
    work: Work, methods: Sequence[str | Method], k: str, out: str | None, hot: str | None = None, resume: bool = False
) -> Plan:
    """Check what costs nothing to check first, then read the data."""
    if resume and (out is None or work.force):
        raise InputError("--resume goes on with the run in --out, and not together with --force.")
    ks = inputs.list_lengths(k)
    protocol = inputs.protocol_name(work.splitting.protocol)
    encoder = _encoder(work.training)
    settings = _settings(work.training, work.sampling, protocol)
    asked = _methods(methods, work.sampling, encoder, settings)
    folder = check_folder(out, work.force, resume) if out is not None else None
    source = inputs.load_source(work.data, work.data_dir, work.reading, work.splitting)
    if (groups := work.sampling.groups) is not None:
        values = {"groups": read_groups(groups, source.split.train, work.reading.item)}
        asked = [one.having(values) if "groups" in one.parameters() else one for one in asked]
    conditions = Conditions.of(source.split, work.training.seeds, protocol, ks, hot, work.training.device)
    record = data_record(work.data, source.files, work.reading, work.splitting, groups=groups)
    return Plan(source, asked, encoder, settings, conditions, folder, record)


def _encoder(training: Training) -> Encoder:
    if training.encoder not in ENCODERS:
        raise unknown("encoder", training.encoder, ENCODERS)
    if training.layers is not None and training.encoder != "lightgcn":
        raise InputError(f"--layers belongs to lightgcn, not to {training.encoder}.")
    return ENCODERS[training.encoder](**_given(training, "dim", "layers"))


def _settings(training: Training, sampling: Sampling, protocol: ProtocolName) -> Settings:
    resolve_device(training.device)
    if training.seeds < 1:
        raise InputError(f"--seeds takes a number of seeds from 1 on, not {training.seeds}.")
    if training.patience is not None and protocol == "paper":
        raise InputError("--patience belongs to the honest protocol; the paper's trains all epochs.")
    if training.eval_users is not None and protocol == "paper":
        raise InputError("--eval-users belongs to the honest protocol; the paper's evaluates all users.")
    if sampling.sampler_scores is not None and training.encoder != "lightgcn":
        raise InputError(f"--sampler-scores belongs to lightgcn, not to {training.encoder}.")
    known = [field.name for field in fields(Settings)]
    values = _given(training, *known) | _given(sampling, *known)
    if training.milestones is not None:
        values["milestones"] = inputs.integers(training.milestones, "--milestones")
    return Settings(**values).under(protocol)


def _methods(asked: Sequence[str | Method], sampling: Sampling, encoder: Encoder, settings: Settings) -> list[Method]:
    """The methods asked for, texts with the values of the options that concern them; item groups are not read yet."""
    texts = [one for one in asked if isinstance(one, str) and one.strip()]
    if sampling.sampler is not None:
        texts = with_negatives(texts, sampling.sampler)
    given = _given(replace(sampling, sampler_scores=None, sampler=None))
    values = {key: parse_value(v) if isinstance(v, str) else v for key, v in given.items() if key != "groups"}
    methods = [one for one in asked if not isinstance(one, str)]
    methods += [parse(text, encoder, settings, shared=values) for text in texts]
    entries = [registered(text.strip().partition(":")[0]) for text in texts]
    known = {key for entry in entries if entry.is_trained for key in entry.parameters()}
    for key in given:
        if key not in known:
            raise InputError(f"--{key} has no effect on {', '.join(one.label for one in methods)}; leave it out.")
    return methods


def _given(group: Training | Sampling, *names: str) -> dict[str, Any]:
    """The options of a group that were set, or those of them that are named."""
    return {key: value for key, value in asdict(group).items() if value is not None and (not names or key in names)}


def flags_given(training: Training, sampling: Sampling) -> set[str]:
    """Parameters that a person set by a flag, so that a search leaves them alone."""
    return {name for name, value in (_given(training) | _given(sampling)).items() if value is not False}
