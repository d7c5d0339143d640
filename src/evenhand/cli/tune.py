"""`evenhand tune`: search the parameters of one method on validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli.flatten import flattened

if TYPE_CHECKING:
    from evenhand.experiments.tune import TuneResult

_SHOWN = 10
"""Trials in the table that is printed."""


@dataclass(frozen=True)
class Training(opt.Training):
    """As for other commands, but one seed: a search is better spent on more trials."""

    seeds: Annotated[
        int, typer.Option(help="Seeds a trial, whose mean counts.", rich_help_panel="Training")
    ] = 1


@flattened
def command(
    data: opt.Data,
    out: Annotated[str, typer.Option(help="Folder for the trials; a search that is there goes on.")],
    training: Training,
    sampling: opt.Sampling,
    splitting: opt.Splitting,
    reading: opt.Reading,
    method: Annotated[
        str, typer.Option(help="A method or rival, as name or name:key=value; what is given is not searched.")
    ] = "auc-ns",
    trials: Annotated[int, typer.Option(help="Finished trials in all, the defaults among them.")] = 20,
    metric: Annotated[str, typer.Option(help="What to raise on validation.")] = "ndcg@10",
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="Search here: key=low..high, key=low..high:log, key=a,b."),
    ] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Do not search this: key=value.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="A database's URL to keep the trials in, instead of the folder.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the search there, else the method.")] = None,
    search_seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    side_by_side: Annotated[
        str, typer.Option(help="Trials to ask for at once, which train together where they can; or auto.")
    ] = "auto",
    force: opt.Force = False,
    json: opt.Json = False,
    data_dir: opt.DataDir = None,
) -> None:
    """Search the parameters of one method on validation; a search that was interrupted goes on."""
    from evenhand.cli import show
    from evenhand.cli.plan import make_plan
    from evenhand.cli.searching import fixed_values, search_folder, searched_ranges, trials_at_once
    from evenhand.experiments.output import write_search
    from evenhand.experiments.setup import Setup
    from evenhand.experiments.tune import tune
    from evenhand.training.progress import epoch_bar

    plan = make_plan(
        data,
        [method],
        training,
        sampling,
        splitting,
        reading,
        k="10",
        data_dir=data_dir,
        out=None,
        force=force,
    )
    (one,) = plan.contenders
    setup = Setup.of(one, plan.encoder, plan.settings, plan.protocol)
    fixed = fixed_values(setup, fix or [], training, sampling)
    with (
        search_folder(out, force, local=storage is None) as journal,
        epoch_bar(f"{one.label}, trials") as on_trial,
    ):
        result = tune(
            plan.source.split,
            one,
            plan.encoder,
            trials=trials,
            seeds=training.seeds,
            metric=metric,
            settings=plan.settings,
            protocol=plan.protocol,
            fixed=fixed,
            ranges=searched_ranges(setup, ranges or []),
            storage=storage or journal,
            study=study,
            seed=search_seed,
            device=training.device,
            side_by_side=trials_at_once(side_by_side),
            on_trial=on_trial,
        )
    write_search(result, journal.parent, {"data": plan.data, "protocol": plan.protocol})
    if json:
        show.print_json(result.to_json() | {"rows": [trial.to_json() for trial in result.trials]})
        return
    _print(result, data, out)


def _print(result: TuneResult, data: str, out: str) -> None:
    import shlex

    from evenhand.cli import show
    from evenhand.data.words import count

    screen = show.console()
    headings = ["trial", f"{result.metric} ↑", *result.space]
    rows = [
        [str(t.number), "failed" if t.problem else f"{t.value:.4f}", *map(str, t.parameters.values())]
        for t in result.best(_SHOWN)
    ]
    show.print_listing(headings, rows)
    show.print_notes(screen, result.notes)
    default = result.trials[0].value
    show.print_sentence(
        screen,
        f"\nBest of {count(len(result.trials), 'trial')} on validation: {result.metric} {result.value:.4f}, "
        f"with the defaults {default:.4f} (trial 1).",
    )
    flags = " ".join(f"{name} {shlex.quote(str(value))}" for name, value in result.flags.items())
    print(f"--method {shlex.quote(result.method)} {flags}".rstrip())  # one line, to be pasted
    show.print_sentence(screen, f"Written to {out}/: best.json, trials.parquet")
