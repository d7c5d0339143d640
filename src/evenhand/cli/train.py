"""`evenhand train`: one method, one model folder."""

from __future__ import annotations

from typing import Annotated

import typer

from evenhand.cli import options as opt


def command(
    data: opt.Data,
    out: Annotated[str, typer.Option(help="Folder for the model.")],
    method: Annotated[str, typer.Option(help="A method, as name or name:key=value.")] = "auc-ns",
    encoder: opt.EncoderName = "mf",
    seeds: opt.Seeds = 3,
    refit: Annotated[
        bool, typer.Option("--refit", help="Then train on all data, for as long as was best: for production.")
    ] = False,
    epochs: opt.Epochs = None,
    protocol: opt.Protocol = "honest",
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = None,
    test: opt.Test = None,
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
    """Train one method and save the model."""
    from evenhand.cli import inputs, show
    from evenhand.experiments.compare import rows_of
    from evenhand.experiments.output import claim_folder
    from evenhand.methods import contender
    from evenhand.training.progress import epoch_bar
    from evenhand.training.run import refitted, train
    from evenhand.training.settings import resolve_device

    ks = inputs.integers(k, "--k")
    resolve_device(device)
    contender(method)
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
    parts, _ = inputs.load_data(
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
    one = contender(method, shared)
    folder = claim_folder(out, force)
    with epoch_bar(one.label) as on_epoch:
        fitted = train(
            parts,
            model,
            one.sampler,
            seeds,
            settings,
            protocol=protocol,  # type: ignore[arg-type]
            device=device,
            ks=ks,
            hot=hot,
            on_epoch=on_epoch,
        )
    final = fitted.model
    if refit:
        with epoch_bar(f"{one.label}, on all data") as on_epoch:
            final = refitted(fitted, parts, model, one.sampler, settings, device=device, on_epoch=on_epoch)
    final.save(folder, force=True)
    rows = rows_of(one, model, fitted.results)
    if json:
        show.print_json(
            {"model": str(folder), "rows": [row.to_json() for row in rows], "notes": fitted.notes}
        )
        return
    screen = show.console()
    show.print_rows(screen, rows, f"{data}, {encoder}, protocol {protocol}")
    show.print_notes(screen, [parts.description, *fitted.notes])
    screen.print(f"Model written to {folder}/ (seed {final.seeds[final.best]} recommends).", soft_wrap=True)
