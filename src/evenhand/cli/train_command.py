"""`evenhand train`: one method or baseline, one model folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli.options import flattened

if TYPE_CHECKING:
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
    from evenhand.cli import show
    from evenhand.cli.plan import make_plan
    from evenhand.experiments.compare import rows_of
    from evenhand.experiments.output import run_folder
    from evenhand.experiments.verdict import headline
    from evenhand.methods import RECIPES, on_top_of, parse
    from evenhand.utils.errors import InputError, unknown
    from evenhand.utils.progress import task

    if recipe is not None and (method is not None or base is not None):
        raise InputError("--recipe stands for a method; leave --method and --base out.")
    if recipe is not None and recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    if base is None and base_share is not None:
        raise InputError("--base-share says how much --base counts; name one.")
    source = context.get_parameter_source("seeds")
    if recipe is not None and (source is None or source.name == "DEFAULT"):
        training = replace(training, seeds=1)  # one model recommends; more would only be thrown away
    text = RECIPES[recipe] if recipe else method or "auc-ns"
    asked = parse(text) if base is None else on_top_of(base, method, base_share, training.encoder)
    if asked.encoder_name is None:
        _refuse_flags(asked.label, training, {"encoder"} if base is not None else set())
    plan = make_plan(
        data,
        [text if base is None else asked],
        training,
        sampling,
        splitting,
        reading,
        k=k,
        data_dir=data_dir,
        out=out,
        force=force,
        hot=hot,
        resume=resume,
    )
    if explain:
        plan.explain(json)
    (one,) = plan.methods
    with run_folder(plan.folder, force, resume) as checkpoints:
        with task(one.label) as on_epoch:
            fitted = one.fit_under(plan.conditions, on_epoch=on_epoch, checkpoints=checkpoints, resume=resume)
        final = fitted.model
        if refit:
            with task(f"{one.label}, on all data") as on_epoch:
                final = one.refit(fitted, plan.conditions.split, device=training.device, on_epoch=on_epoch)
        say_size(final)
        final.having(info={**final.info, "data": plan.data}).save(out, force=True)
    rows = rows_of(one, fitted.results)
    recommends = final.seeds[final.best]
    if json:
        seeds = list(range(training.seeds if one.seeded else 1))
        document = {"model": out, "seeds": seeds, "recommending_seed": recommends}
        show.print_json(document | {"rows": [row.to_json() for row in rows], "notes": list(fitted.notes)})
        return
    screen = show.console()
    how = "" if one.encoder_name is None else f"{one.encoder_name}, "
    shortened = show.print_rows(screen, rows, f"{data}, {how}protocol {plan.conditions.protocol}")
    show.print_notes(screen, [f"split {plan.source.split.description}", *fitted.notes, *shortened])
    if fitted.results:
        show.print_sentence(screen, headline(fitted.results))
    which = f" (seed {recommends} recommends)" if one.seeded else ""
    show.print_sentence(screen, f"Model written to {out}/{which}.")


def _refuse_flags(label: str, training: opt.Training, allowed: set[str]) -> None:
    """A baseline is not trained in epochs, so what steers these would have no effect."""
    from evenhand.cli.searching import flags_given
    from evenhand.utils.errors import InputError

    given = flags_given(training, opt.Sampling()) - {"seeds", "device"} - allowed
    if training.encoder == opt.Training().encoder:
        given.discard("encoder")
    if given:
        first = min(given, key=list(opt.Training.__dataclass_fields__).index).replace("_", "-")
        raise InputError(f"--{first} has no effect on {label}, which is not trained in epochs; leave it out.")


def say_size(model: Model) -> None:
    size = sum(tensor.nbytes for tensor in model.tensors().values())
    if size > _LARGE:
        print(f"note: the model takes {size / 1e9:.1f} GB on disk.", file=sys.stderr)
