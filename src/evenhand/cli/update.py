"""`evenhand update`: go on with a model when newer logs come in."""

from __future__ import annotations

from typing import Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli.flatten import flattened


@flattened
def command(
    model: Annotated[str, typer.Argument(help="A model folder that `evenhand train` wrote.")],
    data: Annotated[str, typer.Argument(help="A file of newer interactions.")],
    reading: opt.Reading,
    out: Annotated[str, typer.Option(help="Folder for the updated model.")],
    epochs: Annotated[int | None, typer.Option(help="Epochs at most.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    force: opt.Force = False,
    json: opt.Json = False,
) -> None:
    """Continue training on newer logs; new users and items are added."""
    from evenhand.cli import inputs, show
    from evenhand.experiments.output import check_folder
    from evenhand.ranking.model import load
    from evenhand.training.progress import epoch_bar
    from evenhand.training.update import updated

    folder = check_folder(out, force)
    old = load(model)
    new = inputs.read_file(data, reading, allow_small=True)
    with epoch_bar("update") as on_epoch:
        fitted = updated(old, new, epochs=epochs, device=device, on_epoch=on_epoch)
    fitted.model.save(folder, force=True)
    added = {
        "users": fitted.model.known.n_users - old.known.n_users,
        "items": fitted.model.known.n_items - old.known.n_items,
        "pairs": len(fitted.model.known) - len(old.known),
    }
    if json:
        show.print_json({"model": out, "added": added, "notes": list(fitted.notes)})
        return
    screen = show.console()
    show.print_notes(screen, fitted.notes)
    show.print_sentence(
        screen,
        f"{added['users']:,} users, {added['items']:,} items and {added['pairs']:,} pairs added; "
        f"model written to {folder}/.",
    )
