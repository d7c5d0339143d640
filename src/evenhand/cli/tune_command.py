"""`evenhand tune`: search the parameters of one method on validation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli import options as opt
from evenhand.cli import show
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import count, one_line, parse_integer

if TYPE_CHECKING:
    from evenhand.cli.plan import Plan
    from evenhand.experiments.compare import Row
    from evenhand.experiments.search_result import Trial
    from evenhand.experiments.search_space import Space
    from evenhand.experiments.tune import SideBySide, TuneResult
    from evenhand.training.method import Method


@dataclass(frozen=True)
class Training(opt.Training):
    """As for other commands, but one seed: a search is better spent on more trials."""

    seeds: Annotated[int, "Seeds a trial, whose mean counts."] = 1


@dataclass(frozen=True)
class Work(opt.Work):
    training: Training


def command(
    out: Annotated[str, "Folder for the trials; a search that is there goes on."],
    method: Annotated[
        str, "A method or baseline, as name or name:key=value; what is given is not searched."
    ] = "auc-ns",
    trials: Annotated[int, "Finished trials in all, the defaults among them."] = 20,
    metric: Annotated[str, "What to raise on validation; or two metrics to trade off: ndcg@10,ohr@10."] = "ndcg@10",
    pick: Annotated[str | None, "Of two metrics' front: knee (the default), most-accurate or least-biased."] = None,
    model: Annotated[str | None, "Then train what was chosen, and write the model to this folder."] = None,
    refit: Annotated[bool, "Train that model on all data, test included: for production."] = False,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="Search here: key=low..high, key=low..high:log, key=a,b.")
    ] = None,
    fix: Annotated[list[str] | None, "Do not search this: key=value."] = None,
    storage: Annotated[str | None, "A database's URL to keep the trials in, instead of the folder."] = None,
    study: Annotated[str | None, "Name of the search there, else the method."] = None,
    search_seed: Annotated[int, "Seed of the search."] = 0,
    side_by_side: Annotated[str, "Trials to ask for at once, which train together where they can; or auto."] = "auto",
    *,
    work: Work,
) -> None:
    """Search the parameters of one method on validation; a search that was interrupted goes on."""
    from evenhand.cli.plan import make_plan
    from evenhand.experiments.output import check_model_folder, search_folder, tracking, write_search
    from evenhand.experiments.search_result import check_pick, parse_goals
    from evenhand.experiments.tune import tune
    from evenhand.utils.progress import task

    chosen = check_pick(pick, len(parse_goals(metric)))
    check_model_folder(model, out, refit, work.force)
    plan = make_plan(work, [method], "10", None)
    (one,) = plan.methods
    fixed = fixed_values(one, fix or [], work)
    with tracking(work.track, f"tune {one.label}") as record:
        with search_folder(out, work.force, storage is None) as journal, task(f"{one.label}, trials") as on_trial:
            result = tune(
                plan.source.split,
                one,
                trials=trials,
                seeds=work.training.seeds,
                metric=metric,
                pick=chosen,
                protocol=plan.protocol,
                fixed=fixed,
                ranges=searched_ranges(one, ranges or []),
                storage=storage or journal,
                study=study,
                seed=search_seed,
                device=work.training.device,
                side_by_side=trials_at_once(side_by_side),
                on_trial=on_trial,
            )
        write_search(result, journal.parent, {"data": plan.data, "protocol": plan.protocol})
        report = _report(result, journal.parent, plan, work) if len(result.goals) > 1 else None
        record(lambda run: run.search(result, journal.parent))
    document = result.to_json() | {"rows": [trial.to_json(result.goals) for trial in result.trials]}
    if not work.json:
        _print(result, out, report)
    if model is not None:
        rows = _write_model(result, plan, work, model, refit)
        document["model"] = {"folder": model, "refitted": refit, "rows": [row.to_json() for row in rows]}
        if not work.json:
            print()
            title = f"{work.data}, the chosen parameters, protocol {plan.protocol}"
            show.print_notes(show.print_rows(rows, title))
            how = ", trained on all data; the numbers are from before that" if refit else ""
            show.print_sentence(f"Model written to {model}/{how}.")
    if work.json:
        show.print_json(document)


def fixed_values(method: Method, texts: Sequence[str], work: Work) -> dict[str, Any]:
    """What flags and `--fix key=value` hold."""
    from evenhand.cli.plan import flags_given
    from evenhand.methods import parse_value

    known = method.parameters()
    fixed = {name: known[name] for name in flags_given(work.training, work.sampling) & set(known)}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InputError(f"--fix is written key=value, not '{text}'.")
        _check_option(method, name)
        if name in fixed:
            raise InputError(f"{name} is given twice, by a flag and by --fix; leave one out.")
        fixed[name] = parse_value(value)
    return fixed


def searched_ranges(method: Method, texts: Sequence[str]) -> Space:
    from evenhand.experiments.search_space import parse_range

    found = {}
    for text in texts:
        name, span = parse_range(text, method)
        _check_option(method, name)
        if name in found:
            raise InputError(f"--range {name} is given twice; leave one out.")
        found[name] = span
    return found


def trials_at_once(text: str) -> SideBySide:
    if text == "auto":
        return "auto"
    number = parse_integer(text)
    if not number:
        raise InputError(f"--side-by-side takes a number from 1 on, or auto, not '{text}'.")
    return number


def _check_option(method: Method, name: str) -> None:
    """Refuse what the other commands have no option for, as nobody could use what is found."""
    known = method.parameters()
    if name not in known:
        raise unknown(f"parameter of '{method.label}'", name, known)
    options = {f.name for group in (Training, opt.Sampling) for f in fields(group)}
    settings = method.components().get("settings")
    if settings is not None and name in {f.name for f in fields(settings)} - options:
        raise InputError(f"{name} has no option on the command line; search it from Python, with tune().")


def _report(result: TuneResult, folder: Path, plan: Plan, work: Work) -> Path | None:
    """Write the page of the front. What goes wrong here is reported, and only the page is lost."""
    from evenhand.experiments.output import FRONT
    from evenhand.report import Origin, write_search_page

    path = folder / FRONT
    try:
        origin = Origin.of(sys.argv[1:], {"data": work.data, "test": work.splitting.test})
        write_search_page(result, path, data=work.data, protocol=plan.protocol, origin=origin)
    except Exception as problem:
        note = one_line(f"no report was written: {type(problem).__name__}: {problem}")
        print(f"note: {note}", file=sys.stderr)
        return None
    return path


def _write_model(result: TuneResult, plan: Plan, work: Work, folder: str, refit: bool) -> list[Row]:
    """Train what was chosen with the seeds of a trial; returns how it does on test."""
    from evenhand.cli.train_command import say_size
    from evenhand.experiments.compare import rows_of
    from evenhand.experiments.output import checkpoints_beside, stops_explained
    from evenhand.training.checkpoints import discard
    from evenhand.training.method import RunOptions
    from evenhand.utils.atomic import one_process
    from evenhand.utils.progress import task

    split, one, device = plan.source.split, result.ready, work.training.device
    lengths = tuple(k for k in (5, 10, 20) if k <= split.n_items) or (split.n_items,)
    kept = checkpoints_beside(folder)
    with one_process(Path(folder)), stops_explained(None, "run the same command again to go on"):
        if work.force:
            discard(kept)
        with task(one.label) as on_epoch:
            fitted = one.fit(
                split, seeds=work.training.seeds, protocol=plan.protocol, k=lengths, device=device,
                on_epoch=on_epoch, checkpoints=kept, resume="matching",
            )  # fmt: skip
        model = fitted.model
        if refit:
            with task(f"{one.label}, on all data") as on_epoch:
                model = one.refit(fitted, split, device=device, run=RunOptions(on_epoch, kept / "refit"))
        say_size(model)
        found = {"metric": result.metric, "pick": result.pick, "trial": result.picked.number}
        info: dict[str, Any] = {**model.info, "data": plan.data, "search": found}
        model.having(info=info).save(folder, force=True)
        discard(kept)
    return rows_of(one, fitted.results)


def _print(result: TuneResult, out: str, report: Path | None) -> None:
    two = len(result.goals) > 1
    shown = list(result.front) if two else result.best(10)
    if two and result.trials[0] not in shown:
        shown.append(result.trials[0])
    headings = ["trial", *(f"{goal.text} {goal.arrow}" for goal in result.goals), *result.space]
    rows = []
    for trial in shown:
        values = ("failed" if trial.problem else f"{value:.4f}" for value in trial.verdict.values)
        mark = [_mark(result, trial)] if two else []
        rows.append([str(trial.number), *values, *map(str, trial.parameters.values()), *mark])
    show.print_listing([*headings, ""] if two else headings, rows)
    show.print_notes(result.notes)
    default = result.trials[0].value
    best = (
        f"Best of {count(len(result.trials), 'trial')} on validation: {result.metric} {result.value:.4f}, "
        f"with the defaults {default:.4f} (trial 1)."
    )
    show.print_sentence(f"\n{' '.join(result.sentences()) if two else best}")
    flags = " ".join(f"{name} {shlex.quote(str(value))}" for name, value in result.flags.items())
    print(f"--method {shlex.quote(result.method)} {flags}".rstrip())  # one line, to be pasted
    files = "best.json, trials.parquet" + (f", {report.name}" if report else "")
    show.print_sentence(f"Written to {out}/: {files}")
    if report:
        show.print_sentence(f"Open the front in a browser: {report}")


def _mark(result: TuneResult, trial: Trial) -> str:
    words = [f"picked ({result.pick})"] if trial is result.picked else []
    if trial is result.trials[0]:
        words.append("defaults" if trial in result.front else "defaults, not on the front")
    return ", ".join(words)
