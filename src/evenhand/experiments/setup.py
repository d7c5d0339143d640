"""Everything that is chosen before a fit, as one value: method or baseline, encoder, training settings.

A search looks at it as a flat list of named parameters, and gets a new setup for other values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from evenhand.baselines import Baseline
from evenhand.baselines.run import Challenger
from evenhand.data.interactions import Interactions
from evenhand.encoders import Encoder, encoder_named
from evenhand.experiments.entrants import Entrant, entrant
from evenhand.methods import wrong_types_told
from evenhand.training.settings import ProtocolName, Settings

OWN_PARTS = ("sampler", "objective", "baseline")
"""Parts whose parameters are written in a method's text; those of the others are flags."""


@dataclass(frozen=True)
class Setup:
    entrant: Entrant
    encoder: Encoder
    settings: Settings

    @staticmethod
    def of(
        method: str | Entrant | Baseline,
        encoder: str | Encoder = "mf",
        settings: Settings | None = None,
        protocol: ProtocolName = "honest",
        train: Interactions | None = None,
    ) -> Setup:
        """With everything filled in that the settings leave to the protocol, the encoder or the data."""
        encoder = encoder_named(encoder)
        one, settings = entrant(method), settings or Settings()
        objective = None if isinstance(one, Challenger) else one.objective
        return Setup(one, encoder, settings.under(protocol, encoder, train, objective))

    def parts(self) -> dict[str, Any]:
        """What has parameters here; a baseline is not trained, so encoder and settings mean nothing to it."""
        if isinstance(self.entrant, Challenger):
            return {"baseline": self.entrant.baseline}
        return {
            "sampler": self.entrant.sampler,
            "objective": self.entrant.objective,
            "encoder": self.encoder,
            "settings": self.settings,
        }

    def parameters(self) -> dict[str, Any]:
        """Every parameter by name, with its present value."""
        return {f.name: getattr(part, f.name) for part in self.parts().values() for f in fields(part)}

    @property
    def named(self) -> tuple[str, ...]:
        """Parameters that the label speaks of.

        >>> Setup.of("auc-ns:alpha=0.8").named
        ('alpha',)
        """
        return tuple(text.partition("=")[0] for text in self.entrant.label.split(":")[1:])

    def is_whole(self, name: str) -> bool:
        """Whether a parameter counts something."""
        types = {f.name: str(f.type) for part in self.parts().values() for f in fields(part)}
        return types[name].startswith("int")

    def having(self, values: Mapping[str, Any]) -> Setup:
        """The same with other values, checked; the label stays as it was asked for.

        A weight decay takes the place of the L2 on a batch's rows.
        """
        if values.get("weight_decay"):
            values = {"l2": 0.0, **values}
        with wrong_types_told(self.entrant.label, values):
            changed = {
                kind: replace(part, **{f.name: values[f.name] for f in fields(part) if f.name in values})
                for kind, part in self.parts().items()
            }
        shared = {kind: part for kind, part in changed.items() if kind not in OWN_PARTS}
        own = {kind: part for kind, part in changed.items() if kind in OWN_PARTS}
        return replace(self, entrant=replace(self.entrant, **own), **shared)

    def method_text(self, names: Mapping[str, Any] | None = None) -> str:
        """The method with the values of the given parameters, as one would ask for it again."""
        values = self._of(OWN_PARTS, {*(names or {}), *self.named} - {"groups"})
        return ":".join([str(self.entrant.method), *(f"{name}={value}" for name, value in values.items())])

    def flags(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """The same for the encoder and the settings, as options of the command line."""
        if isinstance(self.entrant, Challenger):
            return {}
        values = self._of(("encoder", "settings"), set(names))
        flags = {
            f"--{name.replace('_', '-')}": ",".join(map(str, value)) if isinstance(value, tuple) else value
            for name, value in values.items()
        }
        encoder = type(self.encoder).__name__.lower()
        return flags if encoder == "mf" else {"--encoder": encoder, **flags}

    def _of(self, kinds: tuple[str, ...], names: set[str]) -> dict[str, Any]:
        parts = [part for kind, part in self.parts().items() if kind in kinds]
        return {f.name: getattr(part, f.name) for part in parts for f in fields(part) if f.name in names}
