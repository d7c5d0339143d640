"""What is to be reproduced, checked against what the paper published before any work is done."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Literal, get_args

from evenhand.paper.published import cells
from evenhand.paper.settings import settings as published_settings
from evenhand.training.settings import ProtocolName
from evenhand.utils.errors import InputError, unknown

SettingsName = Literal["paper", "released", "tuned"]
SWEEPS = ("alpha", "beta", "gamma")
PARTS = ("overall", *SWEEPS)
TABLES = {"overall": "performance", "errors": "errors", **{name: name for name in SWEEPS}}
"""A part → the published table that it stands beside. The errors are a second look at the overall runs."""
SWEEP_KS = (5, 10, 20)


@dataclass(frozen=True)
class Request:
    """One part of the paper's experiments; its results go into one file."""

    part: str
    """overall (accuracy, bias and errors of every method), or the parameter that is swept"""
    dataset: str = "ml-100k"
    encoder: str = "mf"
    seeds: int = 10
    protocol: ProtocolName = "paper"
    settings: SettingsName = "paper"
    """The paper's table, the released code's suggestion, or what we found on validation for each method."""
    ks: tuple[int, ...] = (5, 10, 20)
    epochs: int | None = None
    """At most so many; None leaves it to the settings."""
    until: int | None = None
    """Train until precision@5 on a tenth of train has not risen for so many epochs, then as long on all."""

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("part", self.part, PARTS),
            ("protocol", self.protocol, get_args(ProtocolName)),
            ("settings", self.settings, get_args(SettingsName)),
        ):
            if value not in known:
                raise unknown(kind, value, known)
        if self.seeds < 1:
            raise InputError(f"--seeds takes a number of seeds from 1 on, not {self.seeds}.")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"--epochs takes a number from 1 on, not {self.epochs}.")
        if self.until is not None and (self.until < 1 or self.protocol != "paper"):
            raise InputError(
                f"--until takes a number of epochs from 1 on, not {self.until}."
                if self.until < 1
                else "--until is for the paper protocol; the honest one stops on validation anyway."
            )
        for k in self.ks if self.part == "overall" else ():
            cells(TABLES[self.part], self.dataset, self.encoder, k=k)
        cells(TABLES[self.part], self.dataset, self.encoder)
        if self.settings != "tuned":
            published_settings(self.dataset, self.encoder, which=self.settings)
        elif self.part != "overall":
            raise InputError("a sweep is made with --settings paper or released; tuned is for overall.")

    @property
    def name(self) -> str:
        """Of the file without its ending: overall-ml-100k-mf-paper-released."""
        return "-".join((self.part, self.dataset, self.encoder, self.protocol, self.settings))

    def identity(self) -> dict[str, Any]:
        """What results in one file must agree on, besides data and version."""
        return {
            "part": self.part,
            "dataset": self.dataset,
            "encoder": self.encoder,
            "protocol": self.protocol,
            "settings": self.settings,
            "seeds": self.seeds,
            "ks": list(self.ks),
            "epochs": self.epochs,
            "until": self.until,
        }

    def command(self, one: str) -> str:
        """The command that makes one row; where the data lies is the reader's own affair."""
        chosen = "--methods" if self.part == "overall" else "--values"
        words = ["evenhand", "reproduce", self.part, "--dataset", self.dataset, "--encoder", self.encoder]
        words += [chosen, one, "--seeds", str(self.seeds), "--protocol", self.protocol]
        words += ["--settings", self.settings]
        if self.part == "overall" and self.ks != (5, 10, 20):
            words += ["--k", ",".join(map(str, self.ks))]
        if self.epochs is not None:
            words += ["--epochs", str(self.epochs)]
        if self.until is not None:
            words += ["--until", str(self.until)]
        return shlex.join(words)


def swept_values(part: str, asked: str | None = None) -> tuple[str, ...]:
    """The published values of a sweep as they are written, or those asked for among them."""
    published = dict.fromkeys(cell.setting for cell in cells(part))
    if asked is None:
        return tuple(sorted(published, key=float))
    found = []
    for text in filter(None, map(str.strip, asked.split(","))):
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"--values takes numbers separated by commas, not '{text}'.") from None
        found.append(cells(part, setting=value)[0].setting)
    if not found:
        raise InputError("--values names no value; leave it out for all of them.")
    return tuple(sorted(set(found), key=float))
