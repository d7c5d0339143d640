"""From a setup to a model that can be saved: a method trained or a rival fitted, on request on all data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evenhand.data.splits import Split
from evenhand.experiments.entrants import Outcome
from evenhand.experiments.setup import Setup
from evenhand.ranking.any_model import AnyModel
from evenhand.rivals.models import fit_rival_model, refit_rival
from evenhand.rivals.run import Challenger
from evenhand.training.progress import epoch_bar
from evenhand.training.run import refitted, train
from evenhand.training.settings import ProtocolName


def ready_model(
    split: Split,
    setup: Setup,
    seeds: int | Sequence[int] = 3,
    *,
    refit: bool = False,
    protocol: ProtocolName = "honest",
    device: str = "auto",
    ks: tuple[int, ...] = (5, 10, 20),
    hot: str | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> tuple[AnyModel, Outcome]:
    """The model, and what was measured on the way to it.

    Training goes by the protocol, with its one look at the test part. `refit` then trains on all parts, for
    as many epochs as were best, and the measurements are still those of the model before. A rival is known by
    its label, which must have its parameters in it.
    """
    one = setup.entrant
    if isinstance(one, Challenger):
        with epoch_bar(one.label, show=progress) as on_step:
            rival, found = fit_rival_model(
                split, one.label, seeds, protocol=protocol, device=device, hot=hot, ks=ks, on_step=on_step
            )
        return (refit_rival(rival, split, device=device) if refit else rival), found
    with epoch_bar(one.label, show=progress) as on_epoch:
        fitted = train(
            split,
            setup.encoder,
            one.sampler,
            seeds,
            setup.settings,
            protocol=protocol,
            device=device,
            ks=ks,
            hot=hot,
            on_epoch=on_epoch,
            checkpoints=checkpoints,
            resume=resume,
            objective=one.objective,
        )
    if not refit:
        return fitted.model, fitted
    with epoch_bar(f"{one.label}, on all data", show=progress) as on_epoch:
        final = refitted(
            fitted,
            split,
            setup.encoder,
            one.sampler,
            setup.settings,
            device=device,
            on_epoch=on_epoch,
            objective=one.objective,
        )
    return final, fitted
