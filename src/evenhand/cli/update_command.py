"""`evenhand update`: go on with a model when newer logs or new items come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

if TYPE_CHECKING:
    from evenhand.models.base import Model


def command(
    context: typer.Context,
    model: opt.ModelFolder,
    out: Annotated[str, "Folder for the updated model."],
    data: Annotated[str | None, typer.Argument(help="A file of newer interactions.")] = None,
    force: opt.Force = False,
    json: opt.Json = False,
    epochs: Annotated[int | None, "Epochs at most.", "Training"] = None,
    device: Annotated[str, "auto, cpu or cuda.", "Training"] = "auto",
    items_file: opt.ItemsFile = None,
    title: opt.Title = None,
    *,
    newcomers: opt.Newcomers,
    reading: opt.Reading,
) -> None:
    """Continue training on newer logs; new users and items are added.

    The file is read as the training log was, unless options say otherwise. With --new-items, items that nobody has yet
    join by their attributes, without any training of theirs; this goes without newer logs too.
    """
    from evenhand.cli import inputs, remembered, show
    from evenhand.experiments.output import check_folder, checkpoints_beside, extended_record, stops_explained
    from evenhand.methods import made_by
    from evenhand.models.factors import load
    from evenhand.models.folder import check_ours
    from evenhand.models.item_files import carried_titles, note_on
    from evenhand.training.checkpoints import discard
    from evenhand.training.method import RunOptions
    from evenhand.utils.atomic import one_process
    from evenhand.utils.progress import task

    if data is None and newcomers.new_items is None:
        raise InputError("give a file of newer interactions, or new items with --new-items, or both.")
    checkpoints = checkpoints_beside(out)
    force = force or checkpoints.is_dir()  # an update that was killed, at its last stroke perhaps
    folder = check_folder(out, force)
    check_ours(folder)
    old = updated = load(model)
    item = reading.item if remembered.is_given(context, "item") else None
    notes: list[str] = []
    with one_process(folder), stops_explained(checkpoints, "run the same command again to go on"):
        check_folder(folder, force)  # again: another process may have finished here meanwhile
        if data is not None:
            how, said = remembered.reading_for(data, reading, context, old)
            new = inputs.read_file(data, how, allow_small=True)
            record = extended_record(old.info.get("data"), data, inputs.files_of(data, None), how)
            with task("update") as on_epoch:
                run = RunOptions(on_epoch, checkpoints)
                found = made_by(old).update(old, new, epochs=epochs, device=device, run=run)
            updated = found.model.having(
                info={**found.model.info, "data": record},
                titles=carried_titles(old.titles, old.known.item_ids, found.model.known.item_ids),
            )
            notes += [*said, *new.notes, *found.notes, *_not_given(old)]
        updated, said = remembered.with_newcomers(updated, newcomers, item)
        updated = updated.having(titles=remembered.titles_for(updated, items_file, title))
        updated.save(folder, force=True)
        discard(checkpoints)
    notes = list(dict.fromkeys([*notes, *said]))
    notes += [] if updated.titles is None else note_on(updated.titles)
    added = {
        "users": updated.known.n_users - old.known.n_users,
        "items": updated.known.n_items - old.known.n_items,
        "pairs": len(updated.known) - len(old.known),
    }
    if json:
        show.print_json({"model": out, "added": added, "notes": notes})
        return
    show.print_notes(notes)
    users, items, pairs = (count(n, kind.removesuffix("s")) for kind, n in added.items())
    show.print_sentence(f"{users}, {items} and {pairs} added; model written to {folder}/.")


def _not_given(model: Model) -> Iterator[str]:
    """A model that was measured on a test part and never fitted to it does not know these pairs."""
    if model.metrics and "refitted on all parts" not in str(model.info.get("split")):
        yield (
            "the model was trained without the test part that it was measured on, and so is the update; give it that "
            "part too, or train without --no-refit."
        )
