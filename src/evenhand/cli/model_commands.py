"""What a model folder is good for besides lists: `evenhand similar`, `export`, `update` and `serve`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli import options as opt
from evenhand.utils.errors import InputError
from evenhand.utils.text import count, visible


def similar(
    model: opt.ModelFolder,
    item: Annotated[str, typer.Argument(help="The id of an item.")],
    k: Annotated[int, typer.Option("--k", "-k", help="How many items.")] = 10,
    json: opt.Json = False,
    items_file: opt.ItemsFile = None,
    title: opt.Title = None,
    seed: Annotated[int | None, "Another seed than the best one.", "Lists"] = None,
) -> None:
    """List the items most similar to one, by the cosine of their vectors or by their weights."""
    from evenhand.cli import inputs, show
    from evenhand.models.folder import load

    loaded = load(model)
    titles = inputs.titles_for(loaded, items_file, title)
    table = loaded.titled(loaded.similar(item, k, seed=seed), titles)
    if json:
        show.print_json({"item": item, "similar": table.to_pylist()})
        return
    shown = ["item"] if titles is None else ["item", "title"]
    texts = ([str(row["item"]), row.get("title") or "", f"{row['score']:.4f}"] for row in table.to_pylist())
    show.print_listing((*shown, loaded.likeness), (text if titles is not None else text[::2] for text in texts))


def export_vectors(
    model: opt.ModelFolder,
    to: Annotated[str, "parquet, npz or faiss."],
    out: Annotated[str, "A folder for parquet and faiss, a .npz file for npz."],
    seed: Annotated[int | None, "Another seed than the best one."] = None,
    force: Annotated[bool, "Write over what is there."] = False,
    json: opt.Json = False,
) -> None:
    """Write the user and item vectors, with their ids, to files that other systems read."""
    from evenhand.cli import show
    from evenhand.models.folder import load
    from evenhand.models.vector_files import check_export, export

    check_export(to, Path(out), force)
    loaded = load(model).as_vectors()
    export(loaded, to, out, seed=seed, force=force)
    n_users, n_items = loaded.known.n_users, loaded.known.n_items
    if json:
        used = loaded.seeds[loaded.replica(seed)]
        show.print_json({"out": out, "to": to, "seed": used, "users": n_users, "items": n_items})
    else:
        print(f"Vectors of {count(n_users, 'user')} and {count(n_items, 'item')} written to {visible(out)}.")


def update(
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
    from evenhand.cli import inputs, show
    from evenhand.experiments.output import check_folder, checkpoints_beside, extended_record, stops_explained
    from evenhand.methods import made_by
    from evenhand.models.folder import check_ours, load
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
    item = reading.item if inputs.is_given(context, "item") else None
    notes: list[str] = []
    with one_process(folder), stops_explained(checkpoints, "run the same command again to go on"):
        check_folder(folder, force)  # again: another process may have finished here meanwhile
        if data is not None:
            how, said = inputs.reading_for(data, reading, context, old)
            new = inputs.read_file(data, how, allow_small=True)
            record = extended_record(old.info.get("data"), data, inputs.files_of(data, None), how)
            with task("update") as on_epoch:
                run = RunOptions(on_epoch, checkpoints)
                found = made_by(old).update(old, new, epochs=epochs, device=device, run=run)
            updated = found.model.having(
                info={**found.model.info, "data": record},
                titles=carried_titles(old.titles, old.known.item_ids, found.model.known.item_ids),
            )
            notes += [*said, *new.notes, *found.notes]
            if old.metrics and "refitted on all parts" not in str(old.info.get("split")):
                notes.append(
                    "the model was trained without the test part that it was measured on, and so is the update; "
                    "give it that part too, or train without --no-refit."
                )
        updated, said = inputs.with_newcomers(updated, newcomers, item)
        updated = updated.having(titles=inputs.titles_for(updated, items_file, title))
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


def serve_model(
    model: opt.ModelFolder,
    host: Annotated[str, "Address to listen on; 0.0.0.0 for every one."] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8000,
    json: opt.Json = False,
) -> None:
    """Answer HTTP requests with recommendations and similar items; a folder that is replaced is loaded as it runs.

    It needs `pip install 'evenhand[serve]'`. Ctrl-C or SIGTERM ends it once the requests under way are answered.
    """
    import logging

    from evenhand.cli import show
    from evenhand.serve import serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)

    def ready(address: str, served: dict[str, object]) -> None:
        if json:
            show.print_json({"url": address, "model": served})
        else:
            sizes = f"{count(int(str(served['users'])), 'user')} × {count(int(str(served['items'])), 'item')}"
            print(
                f"{visible(model)} ({served['method']}, {sizes}) at {address}; the API is described at {address}/docs."
            )
        sys.stdout.flush()

    try:
        serve(model, host, port, ready=ready)
    except KeyboardInterrupt:  # uvicorn has ended in good order and passes the signal on
        print("stopped.", file=sys.stderr)
