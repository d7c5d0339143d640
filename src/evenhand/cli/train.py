"""`evenhand train`: one method or rival, one model folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli.flatten import flattened

if TYPE_CHECKING:
    from pathlib import Path

    from evenhand.cli.plan import Plan
    from evenhand.experiments.entrants import Outcome
    from evenhand.methods import Contender
    from evenhand.ranking.item_model import ItemModel
    from evenhand.ranking.model import Model
    from evenhand.rivals.run import Challenger

_LARGE = 10**9
"""Bytes of a model that are worth a word before they are written."""


@flattened
def command(
    data: opt.Data,
    out: Annotated[str, typer.Option(help="Folder for the model.")],
    training: opt.Training,
    sampling: opt.Sampling,
    splitting: opt.Splitting,
    reading: opt.Reading,
    method: Annotated[str, typer.Option(help="A method or rival, as name or name:key=value.")] = "auc-ns",
    refit: Annotated[
        bool, typer.Option("--refit", help="Then train on all data, for as long as was best: for production.")
    ] = False,
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = None,
    force: opt.Force = False,
    resume: opt.Resume = False,
    json: opt.Json = False,
    explain: opt.Explain = False,
    data_dir: opt.DataDir = None,
) -> None:
    """Train one method, or fit one rival, and save the model."""
    from dataclasses import replace

    from evenhand.cli import show
    from evenhand.cli.plan import make_plan, say
    from evenhand.experiments.compare import rows_of
    from evenhand.experiments.entrants import entrant
    from evenhand.experiments.output import run_folder
    from evenhand.rivals.run import Challenger

    if isinstance(asked := entrant(method), Challenger):
        _refuse_flags(asked, training)
    plan = make_plan(
        data,
        [method],
        training,
        sampling,
        splitting,
        reading,
        k=k,
        data_dir=data_dir,
        out=out,
        force=force,
        resume=resume,
    )
    if explain:
        say(plan, training, hot, json)
    (one,) = plan.contenders
    with run_folder(plan.folder, force, resume) as checkpoints:
        if isinstance(one, Challenger):
            final, fitted = _fitted(plan, one, training, hot, refit)
        else:
            final, fitted = _trained(plan, one, training, hot, refit, checkpoints, resume)
        _say_size(final)
        replace(final, info={**final.info, "data": plan.data}).save(out, force=True)
    rows = rows_of(one, plan.encoder, fitted.results)
    recommends = final.seeds[final.best]
    seeded = not isinstance(one, Challenger) or one.rival.seeded
    if json:
        seeds = list(range(training.seeds if seeded else 1))
        document = {"model": out, "seeds": seeds, "recommending_seed": recommends}
        show.print_json(document | {"rows": [row.to_json() for row in rows], "notes": list(fitted.notes)})
        return
    screen = show.console()
    how = "" if isinstance(one, Challenger) else f"{training.encoder}, "
    shortened = show.print_rows(screen, rows, f"{data}, {how}protocol {plan.protocol}")
    show.print_notes(screen, [f"split {plan.source.split.description}", *fitted.notes, *shortened])
    which = f" (seed {recommends} recommends)" if seeded else ""
    show.print_sentence(screen, f"Model written to {out}/{which}.")


def _trained(
    plan: Plan,
    one: Contender,
    training: opt.Training,
    hot: str | None,
    refit: bool,
    checkpoints: Path | None,
    resume: bool,
) -> tuple[Model, Outcome]:
    from evenhand.training.progress import epoch_bar
    from evenhand.training.run import refitted, train

    split = plan.source.split
    with epoch_bar(one.label) as on_epoch:
        fitted = train(
            split,
            plan.encoder,
            one.sampler,
            training.seeds,
            plan.settings,
            protocol=plan.protocol,
            device=training.device,
            ks=plan.ks,
            hot=hot,
            on_epoch=on_epoch,
            checkpoints=checkpoints,
            resume=resume,
            objective=one.objective,
        )
    if not refit:
        return fitted.model, fitted
    with epoch_bar(f"{one.label}, on all data") as on_epoch:
        final = refitted(
            fitted,
            split,
            plan.encoder,
            one.sampler,
            plan.settings,
            device=training.device,
            on_epoch=on_epoch,
            objective=one.objective,
        )
    return final, fitted


def _fitted(
    plan: Plan, one: Challenger, training: opt.Training, hot: str | None, refit: bool
) -> tuple[Model | ItemModel, Outcome]:
    from evenhand.rivals.models import fit_rival_model, refit_rival

    split = plan.source.split
    model, fitted = fit_rival_model(
        split,
        one.label,
        training.seeds,
        protocol=plan.protocol,
        device=training.device,
        hot=hot,
        ks=plan.ks,
    )
    return (refit_rival(model, split, device=training.device) if refit else model), fitted


def _refuse_flags(one: Challenger, training: opt.Training) -> None:
    """A rival is not trained in epochs, so what steers these would have no effect."""
    from evenhand.cli.searching import flags_given
    from evenhand.errors import InputError

    given = flags_given(training, opt.Sampling()) - {"seeds", "device"}
    if training.encoder == opt.Training().encoder:
        given.discard("encoder")
    if given:
        first = min(given, key=list(opt.Training.__dataclass_fields__).index).replace("_", "-")
        raise InputError(
            f"--{first} has no effect on {one.label}, which is not trained in epochs; leave it out."
        )


def _say_size(model: Model | ItemModel) -> None:
    size = sum(tensor.nbytes for tensor in model.tensors().values())
    if size > _LARGE:
        print(f"note: the model takes {size / 1e9:.1f} GB on disk.", file=sys.stderr)
