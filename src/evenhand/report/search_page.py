"""The page of a search on two metrics: what was picked and what it costs, the front, and every trial."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenhand.audit.files import write_text
from evenhand.experiments.goals import PICKS, Goal
from evenhand.experiments.search_result import TuneResult, picked_trial
from evenhand.experiments.trials import Trial
from evenhand.report.html_text import clean, escape, isolated, number
from evenhand.report.labels import meaning
from evenhand.report.search_chart import called, front_chart, interval, legend
from evenhand.report.shell import details, document, section
from evenhand.report.tables import scrolling


def write_search_page(result: TuneResult, path: Path, *, data: str, protocol: str) -> None:
    """Write the page to a file, whole or not at all; `data` says what was searched on."""
    write_text(path, search_page(result, data=data, protocol=protocol))


def search_page(result: TuneResult, *, data: str, protocol: str) -> str:
    """The whole document."""
    label = clean(result.chosen.label, 60)
    names = [called(goal) for goal in result.goals]
    return document(
        f"{label}: {' and '.join(names)}",
        [
            _header(result, Path(data).name, protocol),
            _findings(result),
            _chart(result),
            _numbers(result),
            _notes(result),
            _words(result),
        ],
    )


def _header(result: TuneResult, data: str, protocol: str) -> str:
    failed = sum(trial.problem is not None for trial in result.trials)
    facts = [
        ("trials", len(result.trials)),
        ("on the front", len(result.front)),
        *([("failed", failed)] if failed else []),
        ("seconds in all", round(sum(trial.seconds for trial in result.trials))),
    ]
    cells = "".join(f"<div><dt>{words}</dt><dd>{value:,}</dd></div>" for words, value in facts)
    names = " against ".join(called(goal) for goal in result.goals)
    return (
        f'<header><p class="eyebrow">Search on two metrics</p>'
        f"<h1>{isolated(result.chosen.label)}: {escape(names)}</h1>"
        f'<p class="protocol">On {isolated(data)}, protocol <b>{escape(protocol)}</b>. All numbers are from '
        "validation; the search did not look at the test part.</p>"
        f'<dl class="facts">{cells}</dl></header>'
    )


def _findings(result: TuneResult) -> str:
    items = "".join(f"<li><p>{escape(sentence)}</p></li>" for sentence in result.told(called))
    return section("findings", "What was found", f'<ol class="findings">{items}</ol>')


def _numbers(result: TuneResult) -> str:
    """The front as a table, and behind it every trial."""
    hint = (
        '<p class="hint">Small figures are 95 % intervals over users. Trials are judged on the same users, '
        "so a difference between two of them is usually surer than their intervals look. The best of many "
        'trials owes something to luck. <span class="on-screen">Press a heading to sort.</span></p>'
    )
    shown = [*result.front, *(trial for trial in result.trials[:1] if trial not in result.front)]
    every = details("Every trial", _table("Every trial", result, result.trials))
    return section("numbers", "The front", hint + _table("The front and the defaults", result, shown) + every)


def _table(name: str, result: TuneResult, trials: Sequence[Trial]) -> str:
    heads = [_head("Trial"), *(_head(called(goal), goal) for goal in result.goals)]
    heads += [*(_head(parameter) for parameter in result.space), _head("Seconds")]
    rows = "".join(f"<tr>{_row(result, trial)}</tr>" for trial in trials)
    return scrolling(
        name,
        f'<table class="sortable"><thead><tr>{"".join(heads)}</tr></thead><tbody>{rows}</tbody></table>',
    )


def _head(text: str, goal: Goal | None = None) -> str:
    way = told = ""
    if goal:
        spoken = "higher" if goal.rises else "lower"
        told = f' title="{escape(meaning(goal.name))}"'
        way = f'<span aria-hidden="true">&#8202;{goal.arrow}</span>'
        way += f'<span class="quiet">, {spoken} is better</span>'
    return f'<th scope="col"{told}><button type="button">{escape(text)}{way}</button></th>'


def _row(result: TuneResult, trial: Trial) -> str:
    marks = [f"picked ({result.pick})"] if trial is result.picked else []
    marks += ["defaults"] if trial is result.trials[0] else []
    marks += ["on the front"] if trial in result.front and trial is not result.picked else []
    marks += [f"failed: {clean(trial.problem)}"] if trial.problem else []
    below = f"<small>{escape(', '.join(marks))}</small>" if marks else ""
    cells = [
        f'<th scope="row" data-value="{trial.number}">{trial.number}{below}</th>',
        *(_measured(trial, axis) for axis in range(len(result.goals))),
        *(_cell(value) for value in trial.parameters.values()),
        f'<td data-value="{trial.seconds!r}">{number(trial.seconds, 1)}</td>',
    ]
    return "".join(cells)


def _measured(trial: Trial, axis: int) -> str:
    """One of the values with its interval."""
    if trial.problem:
        return f'<td data-value=""><span class="none">{number(None)}</span></td>'
    value, ends = trial.verdict.values[axis], interval(trial, axis)
    between = ""
    if ends:
        told = f"{number(ends[0], 4)}\u2009–\u2009{number(ends[1], 4)}"
        between = f'<small><span class="quiet">95 % interval </span>{told}</small>'
    return f'<td data-value="{value!r}">{number(value, 4)}{between}</td>'


def _cell(value: Any) -> str:
    """A parameter: numbers sort as numbers."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f'<td data-value="{value!r}">{value}</td>'
    return f'<td class="text">{isolated(value)}</td>'


def _chart(result: TuneResult) -> str:
    drawing, caption = front_chart(result)
    figure = (
        f'<figure id="figure-front"><h3>What can be had of both</h3><ul class="legend">{legend(result)}</ul>'
        f"{drawing}<figcaption>{escape(caption)}</figcaption></figure>"
    )
    return section("charts", "The trade-off", f'<div class="figures">{figure}{_choices(result)}</div>')


def _choices(result: TuneResult) -> str:
    """What each pick would have chosen, with what to paste for the one that was."""
    rows = ""
    for pick in PICKS:
        trial = picked_trial(result.trials, result.goals, pick)
        cells = "".join(f"<td>{number(value, 4)}</td>" for value in trial.verdict.values)
        mark = "<small>picked</small>" if pick == result.pick else ""
        rows += f'<tr><th scope="row">{pick}{mark}</th><td>{trial.number}</td>{cells}</tr>'
    heads = ["Pick", "Trial", *(called(goal) for goal in result.goals)]
    columns = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    table = scrolling(
        "What each pick chooses",
        f"<table><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>",
    )
    words = [f"evenhand train DATA --method {shlex.quote(result.method)}"]
    words += [f"{name} {shlex.quote(str(value))}" for name, value in result.flags.items()]
    return (
        f'<figure id="figure-picks"><h3>What each pick chooses</h3>{table}<figcaption>To train what was '
        f"picked: <code>{escape(' '.join(words))}</code></figcaption></figure>"
    )


def _notes(result: TuneResult) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    return section("notes", "Notes", f'<ul class="notes">{items}</ul>') if items else ""


def _words(result: TuneResult) -> str:
    ranges = "; ".join(f"{name} {span}" for name, span in result.space.items())
    entries = [(called(goal), meaning(goal.name)) for goal in result.goals]
    entries += [
        ("front", "the trials that no other beats in one metric without losing in the other"),
        ("knee", "the point of the front farthest out from the line between its ends, both axes scaled"),
        ("searched", ranges),
    ]
    inside = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in entries)
    return section("words", "Words", details("What the words mean", f'<dl class="words">{inside}</dl>'))
