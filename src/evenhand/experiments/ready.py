"""From a setup to a model that can be saved: a method trained or a baseline fitted, on request on all data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evenhand.baselines.models import fit_baseline_model, refit_baseline
from evenhand.baselines.run import Challenger
from evenhand.data.splits import Split
from evenhand.experiments.entrants import Outcome
from evenhand.experiments.setup import Setup
from evenhand.models.base import Model
from evenhand.training.run import refitted, train
from evenhand.training.settings import ProtocolName
from evenhand.utils.progress import task


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
) -> tuple[Model, Outcome]:
    """The model, and what was measured on the way to it.

    Training goes by the protocol, with its one look at the test part. `refit` then trains on all parts, for
    as many epochs as were best, and the measurements are still those of the model before. A baseline is known by
    its label, which must have its parameters in it.
    """
    one = setup.entrant
    if isinstance(one, Challenger):
        with task(one.label, show=progress) as on_step:
            baseline, found = fit_baseline_model(
                split, one.label, seeds, protocol=protocol, device=device, hot=hot, ks=ks, on_step=on_step
            )
        return (refit_baseline(baseline, split, device=device) if refit else baseline), found
    with task(one.label, show=progress) as on_epoch:
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
            label=one.label,
        )
    if not refit:
        return fitted.model, fitted
    with task(f"{one.label}, on all data", show=progress) as on_epoch:
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
