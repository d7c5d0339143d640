"""Options that several commands share, with one help text each."""

from __future__ import annotations

from typing import Annotated

import typer

_READ, _SPLIT, _TRAIN, _SAMPLER = "Reading", "Split", "Training", "Sampler"

Data = Annotated[str, typer.Argument(help="A dataset's name (see `evenhand data list`) or a file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that already holds files.")]
Ks = Annotated[str, typer.Option("--k", help="List lengths, separated by commas.")]
Hot = Annotated[
    str | None,
    typer.Option(help="Which items are hot: paper, honest, a share of items (0.2) or a train count (50)."),
]

User = Annotated[str, typer.Option(help="Column of user ids.", rich_help_panel=_READ)]
Item = Annotated[str, typer.Option(help="Column of item ids.", rich_help_panel=_READ)]
Rating = Annotated[str | None, typer.Option(help="Column of ratings.", rich_help_panel=_READ)]
Timestamp = Annotated[str | None, typer.Option(help="Column of timestamps.", rich_help_panel=_READ)]
MinRating = Annotated[
    float | None, typer.Option(help="Keep rows with at least this rating.", rich_help_panel=_READ)
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Whether a text file starts with names.", rich_help_panel=_READ
    ),
]
DataDir = Annotated[
    str | None, typer.Option(help="Where to look for a named dataset first.", rich_help_panel=_READ)
]
TestPart = Annotated[
    str | None,
    typer.Option(
        help="Which test part of a named dataset: random, randomised, uniform…", rich_help_panel=_READ
    ),
]

Test = Annotated[
    str | None, typer.Option("--test", help="A file of test interactions.", rich_help_panel=_SPLIT)
]
How = Annotated[
    str,
    typer.Option("--split", help="random, per-user, leave-last-out or time.", rich_help_panel=_SPLIT),
]
SplitSeed = Annotated[
    int, typer.Option(help="Seed of the split; training seeds do not change it.", rich_help_panel=_SPLIT)
]
Protocol = Annotated[
    str,
    typer.Option(
        help="honest: stop and choose on validation. paper: fixed epochs, best test epoch.",
        rich_help_panel=_SPLIT,
    ),
]

EncoderName = Annotated[str, typer.Option("--encoder", help="mf or lightgcn.", rich_help_panel=_TRAIN)]
Seeds = Annotated[int, typer.Option(help="How many seeds train side by side.", rich_help_panel=_TRAIN)]
Epochs = Annotated[int | None, typer.Option(help="Epochs at most.", rich_help_panel=_TRAIN)]
Dim = Annotated[int | None, typer.Option(help="Length of the vectors.", rich_help_panel=_TRAIN)]
Layers = Annotated[int | None, typer.Option(help="Hops of LightGCN.", rich_help_panel=_TRAIN)]
BatchSize = Annotated[int | None, typer.Option("--batch", help="Positives a step.", rich_help_panel=_TRAIN)]
Lr = Annotated[float | None, typer.Option(help="Learning rate of Adam.", rich_help_panel=_TRAIN)]
WeightDecay = Annotated[float | None, typer.Option(help="L2 on every parameter.", rich_help_panel=_TRAIN)]
Milestones = Annotated[
    str | None,
    typer.Option(help="Epochs after which the rate falls to a tenth: 20,60,80.", rich_help_panel=_TRAIN),
]
Patience = Annotated[
    int | None, typer.Option(help="Epochs without a better validation NDCG.", rich_help_panel=_TRAIN)
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=_TRAIN)]

Alpha = Annotated[
    str | None, typer.Option(help="Trust in the score rank: ½ to 1, or auto.", rich_help_panel=_SAMPLER)
]
Beta = Annotated[float | None, typer.Option(help="Weight of popularity, from 0.", rich_help_panel=_SAMPLER)]
Gamma = Annotated[
    float | None, typer.Option(help="Range of false-positive rates, 0 to 1.", rich_help_panel=_SAMPLER)
]
Candidates = Annotated[
    int | None, typer.Option(help="Pool size of dns and auc-ns.", rich_help_panel=_SAMPLER)
]
Probes = Annotated[
    int | None, typer.Option(help="Probes a side that estimate the gain.", rich_help_panel=_SAMPLER)
]
Ecdf = Annotated[
    str | None,
    typer.Option(help="Score rank: exact, or from this many shared draws.", rich_help_panel=_SAMPLER),
]
SamplerScores = Annotated[
    str | None,
    typer.Option(help="Scores a sampler sees in LightGCN: propagated or raw.", rich_help_panel=_SAMPLER),
]
Groups = Annotated[
    str | None,
    typer.Option(help="fairstatic: FILE:COLUMN that groups the items.", rich_help_panel=_SAMPLER),
]
