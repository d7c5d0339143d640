"""`evenhand compare`: several methods on one data set, in one table with error bars."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from evenhand.cli import options as opt


def command(
    data: opt.Data,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; parameters as name:key=value.")
    ] = "rns,pns,dns,auc-ns",
    encoder: opt.EncoderName = "mf",
    seeds: opt.Seeds = 3,
    epochs: opt.Epochs = None,
    protocol: opt.Protocol = "honest",
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = None,
    test: opt.Test = None,
    out: Annotated[str | None, typer.Option(help="Folder for results and recommendations.")] = None,
    force: opt.Force = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    dim: opt.Dim = None,
    layers: opt.Layers = None,
    batch: opt.BatchSize = None,
    lr: opt.Lr = None,
    weight_decay: opt.WeightDecay = None,
    milestones: opt.Milestones = None,
    patience: opt.Patience = None,
    alpha: opt.Alpha = None,
    beta: opt.Beta = None,
    gamma: opt.Gamma = None,
    candidates: opt.Candidates = None,
    probes: opt.Probes = None,
    ecdf: opt.Ecdf = None,
    sampler_scores: opt.SamplerScores = None,
    groups: opt.Groups = None,
    split: opt.How = "random",
    split_seed: opt.SplitSeed = 0,
    user: opt.User = "user",
    item: opt.Item = "item",
    rating: opt.Rating = None,
    timestamp: opt.Timestamp = None,
    min_rating: opt.MinRating = None,
    header: opt.Header = None,
    data_dir: opt.DataDir = None,
    test_part: opt.TestPart = None,
) -> None:
    """Train several methods alike and compare their accuracy and popularity bias."""
    configuration = {key: value for key, value in locals().items() if value is not None}
    from evenhand.cli import inputs, show
    from evenhand.experiments.compare import compare
    from evenhand.experiments.output import claim_folder, write_comparison
    from evenhand.methods import contender
    from evenhand.training.progress import contender_bars
    from evenhand.training.settings import resolve_device

    ks = inputs.integers(k, "--k")
    resolve_device(device)
    model = inputs.make_encoder(encoder, dim, layers)
    settings = inputs.make_settings(
        epochs=epochs,
        batch=batch,
        lr=lr,
        weight_decay=weight_decay,
        milestones=milestones,
        patience=patience,
        sampler_scores=sampler_scores,
    )
    names = [name for name in methods.split(",") if name.strip()]
    for name in names:
        contender(name)
    parts, others = inputs.load_data(
        data,
        test=test,
        protocol=protocol,
        how=split,
        split_seed=split_seed,
        data_dir=data_dir,
        test_part=test_part,
        columns={
            "user": user,
            "item": item,
            "rating": rating,
            "timestamp": timestamp,
            "min_rating": min_rating,
            "header": header,
        },
    )
    shared = inputs.sampler_values(
        alpha, ecdf, groups, parts.train, beta=beta, gamma=gamma, candidates=candidates, probes=probes
    )
    folder = claim_folder(out, force) if out else None
    with contender_bars(len(names)) as progress:
        result = compare(
            parts,
            [contender(name, shared) for name in names],
            model,
            seeds,
            settings,
            protocol=protocol,  # type: ignore[arg-type]
            ks=ks,
            hot=hot,
            device=device,
            other_tests=others,
            progress=progress,
        )
    if folder is not None:
        write_comparison(result, folder, configuration)
    if json:
        show.print_json(result.to_json())
        return
    screen = show.console()
    title = f"{data}, {encoder}, {seeds} seed{'s' if seeds > 1 else ''}, protocol {protocol}"
    show.print_rows(screen, result.rows, title)
    for name, rows in result.other_tests.items():
        show.print_rows(screen, [row for row in rows if row.k == _middle(ks)], f"unbiased test ({name})")
    show.print_notes(screen, [result.description, *result.notes])
    screen.print(_times(result))
    screen.print(f"\n{result.sentence}", soft_wrap=True, highlight=False)
    if folder is not None:
        screen.print(
            f"Written to {folder}/: results.json, recommendations.parquet, config.json", soft_wrap=True
        )


def _middle(ks: tuple[int, ...]) -> int:
    return 10 if 10 in ks else ks[0]


def _times(result: Any) -> str:
    parts = [
        f"{label} {fit.seconds:.0f} s ({min(fit.epochs)}–{max(fit.epochs)} epochs)"
        for label, fit in result.fits.items()
    ]
    return "trained: " + ", ".join(parts)
