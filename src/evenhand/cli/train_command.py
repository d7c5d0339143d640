"""`evenhand train`: one method or baseline, one model folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli import show
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    from evenhand.experiments.output import Run
    from evenhand.models.base import Model

_LARGE = 10**9  # bytes of a model that are worth a word before they are written


def command(
    context: typer.Context,
    out: Annotated[str, "Folder for the model."],
    method: Annotated[str | None, "A method by its name, or name:key=value; without one, --recipe best."] = None,
    recipe: Annotated[str | None, "best: the best blend that the budget allows. fast: the same in 30 seconds."] = None,
    budget: Annotated[str | None, "Time for a recipe: 90s, 10m, 1h (default 10m on a CPU, 3m on a GPU)."] = None,
    aim: Annotated[str | None, "A recipe's: log (predict the log), items (each item finds its users), next."] = None,
    goal: Annotated[
        str | None,
        typer.Option("--for", help="accuracy, or exposure: hits get at most 1.2 times their share of demand."),
    ] = None,
    base: Annotated[str | None, "Blend the method with this: a baseline, or a folder or .npz of vectors."] = None,
    base_share: Annotated[
        float | None, "How much the base counts, 0 to 1; else chosen on pairs held out of train."
    ] = None,
    refit: Annotated[bool, "Fit to everything at the end, a given test file excepted."] = True,
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = None,
    items_file: opt.ItemsFile = None,
    title: opt.Title = None,
    resume: opt.Resume = False,
    explain: opt.Explain = False,
    *,
    work: opt.Work,
) -> None:
    """Train one method, or fit one baseline, and save the model."""
    from evenhand.cli.inputs import is_given, titles_in
    from evenhand.cli.plan import make_plan
    from evenhand.data.reading.read import column_names
    from evenhand.experiments.compare import rows_of
    from evenhand.experiments.output import run_folder, tracking
    from evenhand.experiments.verdict import headline
    from evenhand.methods import on_top_of, parse, recipe_text
    from evenhand.models.folder import check_ours
    from evenhand.training.method import RunOptions
    from evenhand.utils.progress import task
    from evenhand.utils.world import World

    world, training = World.current(), work.training
    resume = resume or world.restarted
    if recipe is not None and (method is not None or base is not None):
        raise InputError("--recipe stands for a method; leave --method and --base out.")
    if base is None and base_share is not None:
        raise InputError("--base-share says how much --base counts; name one.")
    # Options of training without a method mean auc-ns, as they did before there was a recipe.
    is_recipe = base is None and (recipe is not None or (method is None and not _given(training, work.sampling)))
    if not is_recipe and (given := [o for o, v in (("budget", budget), ("aim", aim), ("for", goal)) if v is not None]):
        raise InputError(f"--{given[0]} belongs to a recipe; leave --method and --base out.")
    if is_recipe and not is_given(context, "seeds"):
        training = replace(training, seeds=1)  # one model recommends; more would only be thrown away
        work = replace(work, training=training)
    text = method or (recipe_text(recipe or "best", budget, aim, goal) if is_recipe else "auc-ns")
    if is_recipe and aim is not None:
        work = replace(work, splitting=for_aim(work.splitting, aim))
    asked = parse(text) if base is None else on_top_of(base, method, base_share, training.encoder)
    if world.joined and not asked.spreads:
        raise InputError(f"{asked.label} is fitted by one process; start it without torchrun, or name a --method.")
    if asked.encoder_name is None:
        _refuse_flags(asked.label, training, {"encoder"} if base is not None else set())
    plan = make_plan(work, [text if base is None else asked], k, out, hot, resume)
    check_ours(Path(out))
    item = work.reading.item
    column = item if items_file is None or item in column_names(items_file) else "item"
    titles = titles_in(items_file, title, column, plan.source.split.train.item_ids)
    if explain:
        plan.explain(work.json)
    (one,) = plan.methods
    with (
        tracking(work.track, f"train {one.label}") as record,
        run_folder(plan.folder, work.force, resume) as checkpoints,
    ):
        with task(one.label) as on_epoch:
            fitted = one.fit_under(plan.conditions, RunOptions(on_epoch, checkpoints, resume))
        history = fitted.model.history
        if refit:
            with task(f"{one.label}, on all data") as on_epoch:
                fitted = one.for_production(fitted, plan.conditions, RunOptions(on_epoch, checkpoints))
        final = fitted.model
        say_size(final)
        final.having(info={**final.info, "data": plan.data}, titles=titles).save(out, force=True)
        rows = rows_of(one, fitted.results)

        def tell(run: Run) -> None:
            run.parameters({"data": work.data, **final.info})
            run.epochs(history)
            run.results(rows)
            run.files(out)

        record(tell)
    recommends = final.seeds[final.best]
    if work.json:
        seeds = list(fitted.model.seeds) if refit else list(range(training.seeds if one.seeded else 1))
        document = {"model": out, "seeds": seeds, "recommending_seed": recommends}
        show.print_json(document | {"rows": [row.to_json() for row in rows], "notes": list(fitted.notes)})
        return
    how = "" if one.encoder_name is None else f"{one.encoder_name}, "
    shortened = show.print_rows(rows, f"{work.data}, {how}protocol {plan.protocol}")
    show.print_notes([f"split {plan.source.split.description}", *fitted.notes, *show.compile_note(), *shortened])
    if "tried" in final.info:
        show.print_tried(final.info["tried"])
    if fitted.results:
        show.print_sentence(headline(fitted.results))
    which = f" (seed {recommends} recommends)" if one.seeded and not is_recipe else ""
    show.print_sentence(f"Model written to {out}/{which}.")


def for_aim(splitting: opt.Splitting, aim: str) -> opt.Splitting:
    """Validation and, where none is given, test drawn as the aim will ask; what was said otherwise stays."""
    from evenhand.baselines.recipe import AIMS

    rule = AIMS.get(aim)
    if aim == "log" or rule is None or splitting.split != opt.Splitting().split:
        return splitting
    return replace(splitting, validation=rule) if splitting.test is not None else replace(splitting, split=rule)


def _given(training: opt.Training, sampling: opt.Sampling) -> set[str]:
    """Options of training and sampling that differ from their defaults."""
    from evenhand.cli.plan import flags_given

    given = flags_given(training, sampling) - {"seeds", "device"}
    return given - {"encoder"} if training.encoder == opt.Training().encoder else given


def _refuse_flags(label: str, training: opt.Training, allowed: set[str]) -> None:
    """What is not trained in epochs has no use for the options that steer these."""
    if given := _given(training, opt.Sampling()) - allowed:
        first = min(given, key=list(opt.Training.__dataclass_fields__).index).replace("_", "-")
        raise InputError(f"--{first} has no effect on {label}, which is not trained in epochs; leave it out.")


def say_size(model: Model) -> None:
    size = sum(tensor.nbytes for tensor in model.tensors().values())
    if size > _LARGE:
        print(f"note: the model takes {size / 1e9:.1f} GB on disk.", file=sys.stderr)
