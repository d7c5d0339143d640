"""The chart of a search on two metrics: every trial, the front through the best of them, and the pick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from evenhand.experiments.goals import Goal, accurate_first
from evenhand.experiments.search_result import TuneResult
from evenhand.experiments.trials import Trial
from evenhand.report import draw
from evenhand.report.figure import interval_rules
from evenhand.report.html_text import count, number
from evenhand.report.labels import short

FRONT, PICKED, DEFAULTS = 0, 1, 4
"""Places of the colours that they have."""
_HEIGHT = 300
_AROUND = 0.6
"""How much of the picture, in ranges of what matters, may go to trials beyond it."""
_KEYS = {
    FRONT: '<path d="M1 6H25" stroke="var(--s1)" stroke-width="2"/><path d="M13 2a4 4 0 1 1-.01 0Z" fill="var(--s1)"/>',
    PICKED: '<path d="M13 0 19 6 13 12 7 6Z" fill="var(--s2)"/>',
    DEFAULTS: '<path d="M8.5 1.5h9v9h-9Z" fill="none" stroke="var(--s5)" stroke-width="2"/>',
    None: '<path d="M13 3a3 3 0 1 1-.01 0Z" fill="var(--muted)" opacity=".5"/>',
}


def called(goal: Goal) -> str:
    """
    >>> from evenhand.experiments.goals import parse_goals
    >>> called(parse_goals("ndcg@10")[0])
    'NDCG@10'
    """
    return f"{short(goal.name)}@{goal.text.partition('@')[2]}"


def tip(trial: Trial, goals: Sequence[Goal]) -> str:
    values = zip(goals, trial.verdict.values, strict=True)
    return f"trial {trial.number}: " + ", ".join(f"{called(g)} {number(v, 4)}" for g, v in values)


def legend(result: TuneResult) -> str:
    """What the marks mean, as the items of a list."""
    words = {
        FRONT: "the front",
        PICKED: f"picked: trial {result.picked.number} ({result.pick})",
        DEFAULTS: None if result.trials[0].problem else "the defaults: trial 1",
        None: "other trials",
    }
    return "".join(
        f'<li><svg class="key" aria-hidden="true" viewBox="0 0 26 12">{_KEYS[place]}</svg>{text}</li>'
        for place, text in words.items()
        if text
    )


def front_chart(result: TuneResult) -> tuple[str, str]:
    """The drawing, up is more accurate, and the words under it."""
    up, across = accurate_first(result.goals)
    default = [] if result.trials[0].problem else [result.trials[0]]
    succeeded = [trial for trial in result.trials if not trial.problem]
    told = [*default, result.picked]
    x, y = (_domain(result.front, told, succeeded, axis) for axis in (across, up))

    def rows(trials: Iterable[Trial]) -> list[dict[str, Any]]:
        return [{"x": t.verdict.values[across], "y": t.verdict.values[up], "tip": tip(t, result.goals)} for t in trials]

    def inside(row: dict[str, Any]) -> bool:
        return x[0] <= row["x"] <= x[1] and y[0] <= row["y"] <= y[1]

    other = rows(trial for trial in succeeded if trial not in result.front and trial not in told)
    near = [row for row in other if inside(row)]
    layers = [
        _points(near, fill=draw.MUTED, opacity=0.4, size=34, shape="circle"),
        alt.Chart(draw.values(rows(result.front))).mark_line(color=draw.colour_of(FRONT), strokeWidth=2, aria=False),
        *_intervals(default, DEFAULTS, across, up),
        *_intervals([result.picked], PICKED, across, up),
        _points(
            rows(default),
            fill=draw.PAPER,
            stroke=draw.colour_of(DEFAULTS),
            strokeWidth=2,
            size=120,
            shape="square",
        ),
        _points(rows(result.front), fill=draw.colour_of(FRONT), stroke=draw.PAPER, size=60, shape="circle"),
        _points(rows([result.picked]), fill=draw.colour_of(PICKED), stroke=draw.PAPER, size=190, shape="diamond"),
    ]
    chart = alt.layer(*layers).encode(
        x=alt.X("x:Q", title=_title(result.goals[across]), axis=_AXIS, scale=_scale(x)),
        y=alt.Y("y:Q", title=_title(result.goals[up]), axis=_AXIS, scale=_scale(y)),
    )
    described = [
        f"{called(result.goals[up])} against {called(result.goals[across])} of {count(len(succeeded), 'trial')}",
        "On the front: " + "; ".join(tip(trial, result.goals) for trial in result.front),
        f"Picked: trial {result.picked.number}",
        *(f"With the defaults, {tip(trial, result.goals)}" for trial in default),
    ]
    return draw.svg(chart, _HEIGHT, ". ".join(described) + "."), _caption(result, len(other) - len(near))


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


def _points(rows: list[dict[str, Any]], **look: Any) -> alt.Chart:
    return alt.Chart(draw.values(rows)).mark_point(**({"opacity": 1} | look)).encode(description="tip:N")


def _intervals(trials: Iterable[Trial], place: int, across: int, up: int) -> list[alt.Chart]:
    made = []
    for trial in trials:
        x, y = trial.verdict.values[across], trial.verdict.values[up]
        (left, right), (low, high) = (interval(trial, axis) or (None, None) for axis in (across, up))
        if left is not None:
            made.append(interval_rules(place, [{"x": left, "end": right, "y": y}], x2="end:Q"))
        if low is not None:
            made.append(interval_rules(place, [{"x": x, "y": low, "end": high}], y2="end:Q"))
    return made


def interval(trial: Trial, axis: int) -> tuple[float, float] | None:
    """The ends of the 95 % interval of one of the values; None where there is none."""
    margin = trial.verdict.margins[axis] if trial.verdict.margins else None
    if margin is None:
        return None
    value = trial.verdict.values[axis]
    return max(0.0, value - margin), min(1.0, value + margin)


def _domain(front: Sequence[Trial], told: Sequence[Trial], trials: Sequence[Trial], axis: int) -> tuple[float, float]:
    """What of an axis is shown: the front, what is told of with its intervals, and trials not too far off."""
    held = [trial.verdict.values[axis] for trial in (*front, *told)]
    held += [end for trial in told for end in interval(trial, axis) or ()]
    low, high = min(held), max(held)
    span, middle = (high - low) or 0.02, (low + high) / 2
    values = (trial.verdict.values[axis] for trial in trials)
    near = [value for value in values if abs(value - middle) <= (0.5 + _AROUND) * span]
    low, high = min([low, *near]), max([high, *near])
    return low - 0.06 * span, high + 0.06 * span


def _title(goal: Goal) -> str:
    return f"{called(goal)} ({'more' if goal.rises else 'less'} is better)"


def _scale(domain: tuple[float, float]) -> alt.Scale:
    return alt.Scale(domain=list(domain), zero=False, nice=False)


_AXIS = alt.Axis(tickCount=5, ticks=False)
