"""`evenhand train`: one method or baseline, one model folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli.flatten import flattened

if TYPE_CHECKING:
    from evenhand.baselines.run import Challenger
    from evenhand.models.base import Model

_LARGE = 10**9
"""Bytes of a model that are worth a word before they are written."""


@flattened
def command(
    context: typer.Context,
    data: opt.Data,
    out: Annotated[str, typer.Option(help="Folder for the model.")],
    training: opt.Training,
    sampling: opt.Sampling,
    splitting: opt.Splitting,
    reading: opt.Reading,
    method: Annotated[
        str | None, typer.Option(help="A method or baseline, as name or name:key=value (default auc-ns).")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="best: a blend that tunes itself. fast: als, in seconds. One seed unless told."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Blend the method with this: a baseline, or a folder or .npz of vectors."),
    ] = None,
    base_share: Annotated[
        float | None,
        typer.Option(help="How much the base counts, 0 to 1; else chosen on pairs held out of train."),
    ] = None,
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
    """Train one method, or fit one baseline, and save the model."""
    from evenhand.baselines.run import Challenger
    from evenhand.cli import show
    from evenhand.cli.plan import make_plan, say
    from evenhand.cli.searching import flags_given
    from evenhand.experiments.compare import rows_of
    from evenhand.experiments.entrants import entrant
    from evenhand.experiments.named import asked_method
    from evenhand.experiments.output import run_folder
    from evenhand.experiments.ready import ready_model
    from evenhand.experiments.setup import Setup

    given = flags_given(training, opt.Sampling())
    source = context.get_parameter_source("seeds")
    if recipe is not None and (source is None or source.name == "DEFAULT"):
        training = replace(training, seeds=1)  # one model recommends; more would only be thrown away
    encoder = None if base is None else training.encoder
    method = asked_method(method, recipe, base, base_share, encoder)
    if isinstance(asked := entrant(method), Challenger):
        _refuse_flags(asked, given - ({"encoder"} if base is not None else set()), training)
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
        final, fitted = ready_model(
            plan.source.split,
            Setup(one, plan.encoder, plan.settings),
            training.seeds,
            refit=refit,
            protocol=plan.protocol,
            device=training.device,
            ks=plan.ks,
            hot=hot,
            checkpoints=checkpoints,
            resume=resume,
        )
        say_size(final)
        final.having(info={**final.info, "data": plan.data}).save(out, force=True)
    rows = rows_of(one, plan.encoder, fitted.results)
    recommends = final.seeds[final.best]
    seeded = not isinstance(one, Challenger) or one.baseline.seeded
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


def _refuse_flags(one: Challenger, given: set[str], training: opt.Training) -> None:
    """A baseline is not trained in epochs, so what steers these would have no effect."""
    from evenhand.utils.errors import InputError

    given = given - {"seeds", "device"}
    if training.encoder == opt.Training().encoder:
        given.discard("encoder")
    if given:
        first = min(given, key=list(opt.Training.__dataclass_fields__).index).replace("_", "-")
        raise InputError(f"--{first} has no effect on {one.label}, which is not trained in epochs; leave it out.")


def say_size(model: Model) -> None:
    size = sum(tensor.nbytes for tensor in model.tensors().values())
    if size > _LARGE:
        print(f"note: the model takes {size / 1e9:.1f} GB on disk.", file=sys.stderr)
