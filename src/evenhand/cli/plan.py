"""What `compare` and `train` have in common: everything checked and read before the first epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.cli import inputs
from evenhand.cli.options import Reading, Sampling, Splitting, Training
from evenhand.encoders import Encoder
from evenhand.errors import InputError
from evenhand.experiments.configuration import data_record
from evenhand.experiments.entrants import Entrant
from evenhand.experiments.output import check_folder
from evenhand.training.settings import ProtocolName, Settings


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
