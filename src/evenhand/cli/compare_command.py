"""`evenhand compare`: several methods on one data set, in one table with error bars."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from evenhand.cli import options as opt
from evenhand.cli import show
from evenhand.utils.errors import InputError, RunError
from evenhand.utils.text import count, one_line

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from evenhand.cli.plan import Plan
    from evenhand.experiments.compare import CompareResult


def command(
    methods: Annotated[
        str, "Methods and baselines, separated by commas; parameters as name:key=value."
    ] = "popular,itemknn,gfcf,als,rns,pns,dns,auc-ns",
    tune: Annotated[int, "First search each method's parameters on validation, in this number of trials."] = 0,
    tests: Annotated[
        str | None, "Compare by several kinds of test, each with its own split: iid, shift and time."
    ] = None,
    refit: Annotated[bool, "Fit every method to train + validation once all is chosen, then test."] = False,
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = None,
    out: Annotated[str | None, "Folder for results, recommendations and a report."] = None,
    resume: opt.Resume = False,
    explain: opt.Explain = False,
    *,
    work: opt.Work,
) -> None:
    """Train several methods alike and compare their accuracy and popularity bias."""
    from evenhand.cli.inputs import load_source
    from evenhand.cli.plan import flags_given, make_plan
    from evenhand.experiments.compare import compare, compare_tests
    from evenhand.experiments.output import run_folder, tracking, write_comparison
    from evenhand.paper.tables import with_mse

    report: Path | InputError | None = None
    if tune < 0:
        raise InputError(f"--tune takes a number of trials, not {tune}.")
    data, training = work.data, work.training
    kinds = _splittings(tests, data, work.splitting, refit)
    plan = make_plan(replace(work, splitting=next(iter(kinds.values()))), methods.split(","), k, out, hot, resume)
    if explain:
        plan.explain(work.json)
    with tracking(work.track, f"compare {data}") as record, run_folder(plan.folder, work.force, resume) as checkpoints:
        options: dict[str, Any] = {
            "encoder": plan.encoder,
            "seeds": training.seeds,
            "settings": plan.settings,
            "protocol": plan.protocol,
            "k": plan.conditions.k,
            "hot": plan.conditions.hot,
            "device": training.device,
            "other_tests": plan.source.other_tests,
            "progress": True,
            "checkpoints": checkpoints,
            "resume": resume,
            "tune": tune,
            "held": flags_given(training, work.sampling),
            "refit": refit,
        }
        if tests is None:
            result = compare(plan.source.split, plan.methods, **options)
        else:
            splits = {name: load_source(data, work.data_dir, work.reading, one).split for name, one in kinds.items()}
            result = compare_tests(splits, plan.methods, **options)
        if plan.protocol == "paper":
            result = with_mse(result, plan.source.split)
        if plan.folder is not None:
            lists = write_comparison(result, plan.folder, {"data": plan.data})
            report = _report(result, lists, plan, work)
        record(lambda run: run.comparison(result, plan.folder))
        if work.json:
            show.print_json(result.to_json())
        else:
            written = None if isinstance(report, InputError) else report
            title = f"{data}, {training.encoder}, {count(training.seeds, 'seed')}, protocol {plan.protocol}"
            _print(result, title, plan.folder, written)
        if isinstance(report, InputError):  # the checkpoints stay, so that nothing is trained again
            raise RunError(f"{str(report).removesuffix('.')}; the results are written, --resume adds the report.")


def _splittings(tests: str | None, data: str, splitting: opt.Splitting, refit: bool) -> dict[str, opt.Splitting]:
    """The split of each test that is asked for; options that would have no effect are refused."""
    from evenhand.cli.inputs import is_dataset
    from evenhand.data.reading.sources import given_parts
    from evenhand.experiments.verdict import AIMS, aims_named

    if refit and splitting.protocol == "paper":
        raise InputError("--refit belongs to the honest protocol; the paper's has no validation part.")
    if tests is None:
        return {"": splitting}
    names = aims_named(tests)
    plain = opt.Splitting(split_seed=splitting.split_seed)
    if splitting != plain:
        different = next(f for f in splitting.__dataclass_fields__ if getattr(splitting, f) != getattr(plain, f))
        raise InputError(f"--tests makes its own splits; leave --{different.replace('_', '-')} out.")
    if data == "-":
        raise InputError("--tests reads the data once for each test, which standard input does not allow; name a file.")
    whole = "random" if is_dataset(data) or given_parts(data) else None
    return {
        name: replace(plain, split=AIMS[name].how, test_part=whole if AIMS[name].how == "random" else None)
        for name in names
    }


def _report(result: CompareResult, lists: dict[str, pa.Table], plan: Plan, work: opt.Work) -> Path | InputError | None:
    """Write the report: where it is, or why the disk did not take it; a report never costs the run's results."""
    from evenhand.report import Origin, write_comparison_report

    assert plan.folder is not None
    path = plan.folder / "report.html"
    try:
        origin = Origin.of(sys.argv[1:], {"data": work.data, "test": work.splitting.test})
        write_comparison_report(result, lists, plan.source.split, path, _titles(work.data, work.data_dir), origin)
    except InputError as problem:
        return problem
    except Exception as problem:
        note = one_line(f"no report was written: {type(problem).__name__}: {problem}")
        print(f"note: {note}", file=sys.stderr)
        return None
    return path


def _titles(data: str, data_dir: str | None) -> pa.Table | None:
    """The items' titles, where the dataset has them at hand."""
    from evenhand.cli.inputs import is_dataset
    from evenhand.data.datasets.known import DATASETS
    from evenhand.data.datasets.load import item_titles

    if not is_dataset(data) or DATASETS[data].read_titles is None:
        return None
    try:
        return item_titles(data, data_dir, download=False)
    except InputError:
        return None


def _print(result: CompareResult, title: str, folder: Path | None, report: Path | None) -> None:
    shortened = show.print_rows(result.rows, title)
    chosen = [
        f"{label}, best of {count(len(found.trials), 'trial')}: "
        + ", ".join(f"{name}={value}" for name, value in found.parameters.items())
        for label, found in result.tuned.items()
    ]
    times = ", ".join(
        f"{label} {fit.seconds:.0f} s" + (f" ({show.span(fit.epochs)} epochs)" if fit.epochs else "")
        for label, fit in result.fits.items()
    )
    splits = {one.description: None for one in (result, *result.by_test.values())}
    split = (f"split {words}" for words in splits)
    show.print_notes([*split, *chosen, *result.notes, f"trained {times}", *show.compile_note(), *shortened])
    if len(result.answers) > 1:
        print()
        show.print_answers(result.answers)
    show.print_sentence(f"\n{result.sentence}")
    if folder is not None:
        files = "results.json, recommendations.parquet, config.json" + (", report.html" if report else "")
        show.print_sentence(f"Written to {folder}/: {files}")
        if report is not None:
            show.print_sentence(f"Open the report in a browser: {report}")
