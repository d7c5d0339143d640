"""`evenhand train`: one method, one model folder."""

from __future__ import annotations

from typing import Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli.flatten import flattened


@flattened
def command(
    data: opt.Data,
    out: Annotated[str, typer.Option(help="Folder for the model.")],
    training: opt.Training,
    sampling: opt.Sampling,
    splitting: opt.Splitting,
    reading: opt.Reading,
    method: Annotated[str, typer.Option(help="A method, as name or name:key=value.")] = "auc-ns",
    refit: Annotated[
        bool, typer.Option("--refit", help="Then train on all data, for as long as was best: for production.")
    ] = False,
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = None,
    force: opt.Force = False,
    resume: opt.Resume = False,
    json: opt.Json = False,
    data_dir: opt.DataDir = None,
) -> None:
    """Train one method and save the model."""
    from dataclasses import replace

    from evenhand.cli import show
    from evenhand.cli.inputs import refuse_rival
    from evenhand.cli.plan import make_plan
    from evenhand.experiments.compare import rows_of
    from evenhand.experiments.output import run_folder
    from evenhand.methods import Contender
    from evenhand.training.progress import epoch_bar
    from evenhand.training.run import refitted, train

    refuse_rival(method)
    plan = make_plan(
        data,
        [method],
        training,
        sampling,
        splitting,
        reading,
        k=k,
        data_dir=data_dir,
        out=out,
        force=force,
        resume=resume,
    )
    split, (one,) = plan.source.split, plan.contenders
    assert isinstance(one, Contender)
    with run_folder(plan.folder, force, resume) as checkpoints:
        with epoch_bar(one.label) as on_epoch:
            fitted = train(
                split,
                plan.encoder,
                one.sampler,
                training.seeds,
                plan.settings,
                protocol=plan.protocol,
                device=training.device,
                ks=plan.ks,
                hot=hot,
                on_epoch=on_epoch,
                checkpoints=checkpoints,
                resume=resume,
                objective=one.objective,
            )
        final = fitted.model
        if refit:
            with epoch_bar(f"{one.label}, on all data") as on_epoch:
                final = refitted(
                    fitted,
                    split,
                    plan.encoder,
                    one.sampler,
                    plan.settings,
                    device=training.device,
                    on_epoch=on_epoch,
                    objective=one.objective,
                )
        replace(final, info={**final.info, "data": plan.data}).save(out, force=True)
    rows = rows_of(one, plan.encoder, fitted.results)
    recommends = final.seeds[final.best]
    if json:
        document = {"model": out, "seeds": list(fitted.model.seeds), "recommending_seed": recommends}
        show.print_json(document | {"rows": [row.to_json() for row in rows], "notes": list(fitted.notes)})
        return
    screen = show.console()
    shortened = show.print_rows(screen, rows, f"{data}, {training.encoder}, protocol {plan.protocol}")
    show.print_notes(screen, [f"split {split.description}", *fitted.notes, *shortened])
    show.print_sentence(screen, f"Model written to {out}/ (seed {recommends} recommends).")
