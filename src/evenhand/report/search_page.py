"""The page of a search on two metrics: what was picked and what it costs, the front, and every trial."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from evenhand.data.write import write_text
from evenhand.experiments.search_result import PICKS, Goal, Trial, TuneResult, accurate_first, picked_trial
from evenhand.metrics.statistics import Estimate
from evenhand.report import charts
from evenhand.report.charts import Figure, Rows
from evenhand.report.render import (
    Cell,
    Column,
    Origin,
    Table,
    clean,
    described,
    isolated,
    measured,
    number,
    render,
    titled,
    without_folder,
)
from evenhand.utils.text import count

FRONT, PICKED, DEFAULTS = 0, 1, 4
"""Places of the colours that they have."""
_DIAMOND = '<path d="M13 0 19 6 13 12 7 6Z" fill="var(--s2)"/>'
_SQUARE = '<path d="M8.5 1.5h9v9h-9Z" fill="none" stroke="var(--s5)" stroke-width="2"/>'
_DOT = '<path d="M13 3a3 3 0 1 1-.01 0Z" fill="var(--muted)" opacity=".5"/>'


def write_search_page(
    result: TuneResult, path: Path, *, data: str, protocol: str, origin: Origin | None = None
) -> None:
    """Write the page to a file, whole or not at all."""
    write_text(path, search_page(result, data=data, protocol=protocol, origin=origin))


def search_page(result: TuneResult, *, data: str, protocol: str, origin: Origin | None = None) -> str:
    """The whole document; `data` says what was searched on."""
    failed = sum(trial.problem is not None for trial in result.trials)
    facts = [
        ("trials", len(result.trials)),
        ("on the front", len(result.front)),
        *([("failed", failed)] if failed else []),
        ("seconds in all", round(sum(trial.seconds for trial in result.trials))),
    ]
    train = [f"evenhand train DATA --method {shlex.quote(result.method)}"]
    train += [f"{name} {shlex.quote(str(value))}" for name, value in result.flags.items()]
    shown = [*result.front, *(trial for trial in result.trials[:1] if trial not in result.front)]
    return render(
        "search.html",
        label=result.chosen.label,
        names=[called(goal) for goal in result.goals],
        data=without_folder(data),
        protocol=protocol,
        facts=[(words, f"{value:,}") for words, value in facts],
        origin=origin,
        findings=result.sentences(called),
        front=front_figure(result),
        picks=_pick_table(result),
        train_command=" ".join(train),
        front_table=_trial_table("The front and the defaults", result, shown),
        full_table=_trial_table("Every trial", result, result.trials),
        notes=result.notes,
        words=[
            *((called(goal), described(goal.name).meaning) for goal in result.goals),
            ("front", "the trials that no other beats in one metric without losing in the other"),
            ("knee", "the point of the front farthest out from the line between its ends, both axes scaled"),
            ("searched", "; ".join(f"{name} {span}" for name, span in result.space.items())),
        ],
    )


def called(goal: Goal) -> str:
    """
    >>> from evenhand.experiments.search_result import parse_goals
    >>> called(parse_goals("ndcg@10")[0])
    'NDCG@10'
    """
    return titled(goal.name, goal.text.partition("@")[2])


def _trial_table(name: str, result: TuneResult, trials: Sequence[Trial]) -> Table:
    goals = [Column(called(goal), described(goal.name).meaning, goal.rises) for goal in result.goals]
    columns = [Column("Trial"), *goals, *map(Column, result.space), Column("Seconds")]
    return Table(name, columns, [_trial_row(result, trial) for trial in trials], sortable=True)


def _trial_row(result: TuneResult, trial: Trial) -> list[Cell | str]:
    marks = [f"picked ({result.pick})"] if trial is result.picked else []
    marks += ["defaults"] if trial is result.trials[0] else []
    marks += ["on the front"] if trial in result.front and trial is not result.picked else []
    marks += [f"failed: {clean(trial.problem)}"] if trial.problem else []
    return [
        Cell(trial.number, trial.number, ", ".join(marks)),
        *(_measured(trial, axis) for axis in range(len(result.goals))),
        *map(_parameter, trial.parameters.values()),
        Cell(number(trial.seconds, 1), trial.seconds),
    ]


def _measured(trial: Trial, axis: int) -> Cell:
    return Cell(number(None), float("nan")) if trial.problem else measured(estimate(trial, axis), 4)


def _parameter(value: Any) -> Cell:
    """Numbers sort as numbers."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Cell(value, value)
    return Cell(isolated(value))


def _pick_table(result: TuneResult) -> Table:
    rows: list[Sequence[Cell | str]] = []
    for pick in PICKS:
        trial = picked_trial(result.trials, result.goals, pick)
        values = (number(value, 4) for value in trial.verdict.values)
        rows.append((Cell(pick, below="picked" if pick == result.pick else ""), str(trial.number), *values))
    return Table("What each pick chooses", ("Pick", "Trial", *map(called, result.goals)), rows)


def front_figure(result: TuneResult) -> Figure:
    """Every trial, the front through the best of them, and the pick; up is more accurate."""
    up, across = accurate_first(result.goals)
    default = [] if result.trials[0].problem else [result.trials[0]]
    succeeded = [trial for trial in result.trials if not trial.problem]
    marked = [*default, result.picked]
    x, y = (_domain(result.front, marked, succeeded, axis) for axis in (across, up))

    def rows(trials: Iterable[Trial]) -> Rows:
        values = ((t.verdict.values, _tip(t, result.goals)) for t in trials)
        return [{"x": found[across], "y": found[up], "tip": tip} for found, tip in values]

    def cross(trial: Trial, place: int) -> list[alt.Chart]:
        return charts.cross(place, estimate(trial, across), estimate(trial, up))

    other = rows(trial for trial in succeeded if trial not in result.front and trial not in marked)
    near = [row for row in other if x[0] <= row["x"] <= x[1] and y[0] <= row["y"] <= y[1]]
    thick = {"strokeWidth": 2}
    grey = {"fill": charts.MUTED, "stroke": charts.MUTED, "opacity": 0.4}
    hollow = {"fill": charts.PAPER, "stroke": charts.colour_of(DEFAULTS)}
    layers = [
        charts.points(near, FRONT, 34, shape="circle", **thick, **grey),
        charts.line(rows(result.front), FRONT),
        *(rule for trial in default for rule in cross(trial, DEFAULTS)),
        *cross(result.picked, PICKED),
        charts.points(rows(default), DEFAULTS, 120, shape="square", **thick, **hollow),
        charts.points(rows(result.front), FRONT, 60, shape="circle", **thick),
        charts.points(rows([result.picked]), PICKED, 190, shape="diamond", **thick),
    ]
    chart = alt.layer(*layers).encode(
        x=charts.axis(alt.X, "x", _axis_title(result.goals[across]), scale=_scale(x)),
        y=charts.axis(alt.Y, "y", _axis_title(result.goals[up]), scale=_scale(y)),
    )
    spoken = [
        f"{called(result.goals[up])} against {called(result.goals[across])} of {count(len(succeeded), 'trial')}",
        "On the front: " + "; ".join(_tip(trial, result.goals) for trial in result.front),
        f"Picked: trial {result.picked.number}",
        *(f"With the defaults, {_tip(trial, result.goals)}" for trial in default),
    ]
    legend = (
        (charts.system_key(FRONT), "the front"),
        (charts.legend_key(_DIAMOND), f"picked: trial {result.picked.number} ({result.pick})"),
        *((charts.legend_key(_SQUARE), f"the defaults: trial {trial.number}") for trial in default),
        (charts.legend_key(_DOT), "other trials"),
    )
    return Figure(
        "front",
        "What can be had of both",
        _caption(result, len(other) - len(near)),
        (charts.svg(chart, 300, ". ".join(spoken) + "."),),
        legend,
    )


def _tip(trial: Trial, goals: Sequence[Goal]) -> str:
    values = zip(goals, trial.verdict.values, strict=True)
    return f"trial {trial.number}: " + ", ".join(f"{called(g)} {number(v, 4)}" for g, v in values)


def _caption(result: TuneResult, outside: int) -> str:
    up, across = accurate_first(result.goals)
    high, wide = result.goals[up], result.goals[across]
    ways = "up" if high.rises else "down", "right" if wide.rises else "left"
    words = f"Better is {ways[0]} ({called(high)}) and {ways[1]} ({called(wide)})."
    if any(margin is not None for margin in result.picked.verdict.margins):
        words += " Thin lines are 95 % intervals over users."
    if outside:
        words += f" {count(outside, 'trial')} far from the front {'lies' if outside == 1 else 'lie'} outside."
    return words


def estimate(trial: Trial, axis: int) -> Estimate:
    """One of the values with its 95 % interval, which stays within what a share can be."""
    value, margin = trial.verdict.values[axis], trial.verdict.margins[axis] if trial.verdict.margins else None
    return Estimate(value) if margin is None else Estimate(value, max(0.0, value - margin), min(1.0, value + margin))


def _domain(front: Sequence[Trial], marked: Sequence[Trial], trials: Sequence[Trial], axis: int) -> tuple[float, float]:
    """What of an axis is shown: the front, the marked trials with their intervals, and trials not too far off."""
    ends = [end for one in (estimate(trial, axis) for trial in marked) for end in (one.value, one.low, one.high)]
    held = [*(trial.verdict.values[axis] for trial in front), *(end for end in ends if end is not None)]
    low, high = min(held), max(held)
    span, middle = (high - low) or 0.02, (low + high) / 2
    values = (trial.verdict.values[axis] for trial in trials)
    near = [value for value in values if abs(value - middle) <= 1.1 * span]
    low, high = min([low, *near]), max([high, *near])
    return low - 0.06 * span, high + 0.06 * span


def _axis_title(goal: Goal) -> str:
    return f"{called(goal)} ({'more' if goal.rises else 'less'} is better)"


def _scale(domain: tuple[float, float]) -> alt.Scale:
    return alt.Scale(domain=list(domain), zero=False, nice=False)
