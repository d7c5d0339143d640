"""`evenhand update`: go on with a model when newer logs come in."""

from __future__ import annotations

from typing import Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli.options import flattened


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
    from evenhand.methods import made_by
    from evenhand.metrics.lists import count
    from evenhand.models.factors import load
    from evenhand.utils.locks import one_process
    from evenhand.utils.progress import task

    folder = check_folder(out, force)
    old = load(model)
    new = inputs.read_file(data, reading, allow_small=True)
    with one_process(folder):
        check_folder(folder, force)  # again: another process may have finished here meanwhile
        with task("update") as on_epoch:
            found = made_by(old).update(old, new, epochs=epochs, device=device, on_epoch=on_epoch)
        updated, notes = found.model, found.notes
        updated.save(folder, force=True)
    added = {
        "users": updated.known.n_users - old.known.n_users,
        "items": updated.known.n_items - old.known.n_items,
        "pairs": len(updated.known) - len(old.known),
    }
    if json:
        show.print_json({"model": out, "added": added, "notes": list(notes)})
        return
    screen = show.console()
    show.print_notes(screen, notes)
    users, items, pairs = (count(n, kind.removesuffix("s")) for kind, n in added.items())
    show.print_sentence(screen, f"{users}, {items} and {pairs} added; model written to {folder}/.")
