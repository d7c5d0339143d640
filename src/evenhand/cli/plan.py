"""What `compare`, `train` and `tune` have in common: everything checked and read before the first epoch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.cli import inputs
from evenhand.cli.options import Reading, Sampling, Splitting, Training
from evenhand.encoders import Encoder
from evenhand.experiments.fit import explained
from evenhand.experiments.output import check_folder, data_record
from evenhand.training.method import Conditions, Method
from evenhand.training.settings import Settings
from evenhand.utils.errors import InputError
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
    def protocol(self) -> str:
        return self.conditions.protocol

    def explain(self, json: bool) -> None:
        """What `--explain` prints, before the first epoch; beside a JSON document it goes to stderr."""
        for line in explained(self.conditions, self.methods, self.encoder, self.settings):
            print(one_line(line), file=sys.stderr if json else sys.stdout, flush=True)


def make_plan(
    data: str,
    methods: Sequence[str | Method],
    training: Training,
    sampling: Sampling,
    splitting: Splitting,
    reading: Reading,
    *,
    k: str,
    data_dir: str | None,
    out: str | None,
    force: bool,
    hot: str | None = None,
    resume: bool = False,
) -> Plan:
    """Check what costs nothing to check first, then read the data."""
    if resume and (out is None or force):
        raise InputError("--resume goes on with the run in --out, and not together with --force.")
    ks = inputs.list_lengths(k)
    protocol = inputs.protocol_name(splitting.protocol)
    encoder = inputs.make_encoder(training)
    settings = inputs.make_settings(training, sampling, protocol)
    asked = inputs.make_methods(methods, sampling, encoder, settings)
    folder = check_folder(out, force, resume) if out is not None else None
    source = inputs.load_source(data, data_dir, reading, splitting)
    return Plan(
        source,
        inputs.with_groups(asked, sampling.groups, source.split.train, reading.item),
        encoder,
        settings,
        Conditions.of(source.split, training.seeds, protocol, ks, hot, training.device),
        folder,
        data_record(data, source.files, reading, splitting, groups=sampling.groups),
    )
