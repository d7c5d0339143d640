"""The model card: what a person who finds the folder needs to know, in Markdown.

It says only what the model itself records, so a model made by hand has a short one.
"""

from __future__ import annotations

import html
import json
import math
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evenhand.metrics.catalogue import CARD, HEADLINE, METRICS
from evenhand.utils.text import count, visible

if TYPE_CHECKING:
    from evenhand.models.base import Model

SHOWN = {name: f"{METRICS[name].title} {METRICS[name].arrow}" for name in CARD}
"""The metrics of the table and their headings; config.json holds the others too."""
_RATES = (
    f"{METRICS[HEADLINE].title}: {METRICS[HEADLINE].meaning}; 0 is none, 1 all of them. "
    "OHR and OCR: of the hot and of the cold items shown, the share that is not wanted. UHR and UCR: of the "
    "hot and of the cold items wanted, the share that is not shown."
)
_LIMITS = (
    "It knows only the users and items in this folder. New users can be folded in from their history, new items "
    "join by their attributes (`evenhand update --new-items`).",
    "Scores order the items of one user. They are no probabilities, and those of two users do not compare.",
    "It repeats what the log rewards: what was never shown could not be chosen, and the rates above are "
    "measured on the same kind of log.",
)
_TOLD = {
    "parameters": "rival",
    "chosen epochs": "chosen_epochs",
    "hot items": "hot",
    "encoder": "encoder",
    "settings": "settings",
    "new items": "new_items",
    "versions": "versions",
}
"""What else a card tells of the training, and where it stands in the model's `info`."""
_CARD = """\
# {name}

A recommender{kind}{method}, made by evenhand. {explained}

## Data

{data}

## Training

{training}

## Accuracy and bias

{results}

## Use

```python
import evenhand as eh

model = eh.load({folder})
lists = model.recommend(k=20)  # a table: user, item, score, rank
```

```sh
evenhand recommend {argument} -k 20 --out lists.parquet
```

## Limits

{limits}
"""


def model_card(model: Model, name: str) -> str:
    """README.md of the model folder called `name`."""
    info, known, name = model.info, model.known, visible(name) or "model"
    encoder, source = info.get("encoder", {}), info.get("data")
    sizes = (known.n_users, "user"), (known.n_items, "item"), (len(known), "known pair")
    data = {
        "source": source.get("source") if isinstance(source, Mapping) else source,
        "split": info.get("split"),
        "fingerprint": info.get("fingerprint"),
    }
    seeds = ", ".join(map(str, model.seeds)) + f" (seed {model.seeds[model.best]} recommends)"
    training = {"protocol": info.get("protocol"), "seeds": seeds} | {what: info.get(key) for what, key in _TOLD.items()}
    return _CARD.format(
        name=_text(name),
        kind=_of(" of kind ", encoder.get("name") if isinstance(encoder, Mapping) else encoder),
        method=_of(", trained with ", info.get("method")),
        explained=model.explained,
        data="\n".join([*_listed(data), "- " + ", ".join(count(n, noun) for n, noun in sizes)]),
        training="\n".join(_listed(training)),
        results="\n".join(_results(model)),
        folder=json.dumps(name, ensure_ascii=False),
        argument=shlex.quote(name),
        limits="\n".join(f"- {limit}" for limit in _LIMITS),
    )


def _listed(entries: Mapping[str, Any]) -> list[str]:
    return [f"- {what}: {_text(value)}" for what, value in entries.items() if value not in (None, "", {}, [])]


def _text(value: Any) -> str:
    """One line for any JSON value."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(inner)}" for key, inner in value.items() if inner is not None)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    line = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    return html.escape(visible(line), quote=False)


def _of(before: str, value: Any) -> str:
    return f"{before}{_text(value)}" if value else ""


def _results(model: Model) -> Iterator[str]:
    if not model.metrics:
        yield "No results on held-out data were recorded."
        return
    present = [name for name in SHOWN if any(name in row for row in model.metrics.values())]
    several = len(model.seeds) > 1
    spread = f", mean ± standard deviation over {len(model.seeds)} seeds" if several else ""
    yield f"On the test part{spread}:"
    yield ""
    yield "| k | " + " | ".join(SHOWN[name] for name in present) + " |"
    yield "|---" * (len(present) + 1) + "|"
    for k, row in model.metrics.items():
        yield f"| {k} | " + " | ".join(_number(row.get(name)) for name in present) + " |"
    yield ""
    yield _RATES


def _number(summary: Mapping[str, Any] | None) -> str:
    mean, std = (None, None) if summary is None else (summary.get("mean"), summary.get("std"))
    if mean is None or not math.isfinite(mean):
        return "–"
    return f"{mean:.4f}" + ("" if std is None else f" ± {std:.4f}")
