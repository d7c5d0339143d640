"""What a model folder is good for: `evenhand recommend`, `similar`, `export`, `update` and `serve`."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli import options as opt
from evenhand.cli import show
from evenhand.utils.errors import InputError
from evenhand.utils.text import count, one_line, visible

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.data.write import PartsFolder
    from evenhand.models.base import Model

_TABLE = "recommendations"
_JSON_ROW = 1200
"""Bytes of memory that one row of a JSON document takes while it is made, measured."""


def recommend(
    context: typer.Context,
    model: opt.ModelFolder,
    users: Annotated[str | None, "A file with a column of user ids; all users without it."] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Length of the lists.")] = 20,
    out: Annotated[
        str | None,
        "A .parquet, .csv or .tsv file, a folder/ or s3://… for parquet files in parts, or "
        "postgresql://USER@HOST/DATABASE; standard output (csv) without it.",
    ] = None,
    table: Annotated[str | None, f"Table of a database, or schema.table (default {_TABLE}).", "Lists"] = None,
    parts: Annotated[int | None, "Write this number of parts into the folder --out.", "Lists"] = None,
    force: Annotated[bool, "Write over existing files, or a table."] = False,
    json: opt.Json = False,
    *,
    filtering: opt.Filtering,
    new_users: Annotated[
        str | None, "A file of what new users interacted with: recommend to them.", "New users"
    ] = None,
    fallback: Annotated[
        bool, "Users without history get the popular items that the filters allow, marked in a column.", "New users"
    ] = False,
    newcomers: opt.Newcomers,
    items_file: opt.ItemsFile = None,
    title: opt.Title = None,
    seed: Annotated[str | None, "Another seed than the best one, or all for each.", "Lists"] = None,
    reading: opt.ListReading,
) -> None:
    """Recommend k items to every user, to those in a file, or to new ones with a history.

    Files are read as the training log was, unless options say otherwise. Ids that the model does not know are counted.
    """
    from torch import device

    from evenhand.cli import inputs
    from evenhand.cli.inputs import read_file
    from evenhand.data.write import formulas_noted, is_database, write_database, write_table
    from evenhand.models.filters import Asked, joined, notes_of, positions
    from evenhand.models.folder import load
    from evenhand.models.spread_files import write_lists
    from evenhand.utils.memory import check_memory

    if users is not None and new_users is not None:
        raise InputError("--users and --new-users exclude each other; run the command once for each.")
    folder, shown = _target(out, parts, table, force)
    chosen = _seed(seed)
    said = {role: getattr(reading, role) for role in ("user", "item") if inputs.is_given(context, role)}
    loaded, notes = inputs.with_newcomers(load(model), newcomers, said.get("item"))
    served = loaded
    titles = inputs.titles_for(loaded, items_file, title, said.get("item"))
    limits = _limits(filtering, items_file, said, loaded)
    which: dict[str, Any] = {"seed": chosen, "known": filtering.known, "fallback": fallback}
    ids, strangers = None if users is None else _ids(users, "user", said, loaded), None
    if new_users is not None:
        how, more = inputs.reading_for(new_users, reading, context, loaded)
        opt.two_columns(how.user, how.item)
        history = read_file(new_users, how, allow_small=True)
        served = loaded.fold_in(history)
        notes += [*more, *served.known.notes]
        left_out = history.user_ids.filter(positions(history.user_ids, served.known.user_ids) < 0)
        if fallback and len(left_out):
            strangers = loaded.recommend(left_out, k, **which, **limits)

    def finished(table: pa.Table) -> pa.Table:
        return loaded.titled(table.replace_schema_metadata(), titles)

    if folder is not None:
        asked = Asked.of(served.known, ids, fallback=fallback, **limits)

        def ready(table: pa.Table) -> pa.Table:
            return inputs.with_own_names(finished(table), loaded)

        written = write_lists(served, asked, k, folder, parts=parts, finished=ready, more=strangers, **which)
        notes += dict.fromkeys([*asked.notes, *(() if strangers is None else notes_of(strangers))])
        rows, into = sum(part.rows for part in written), f" in {count(len(written), 'part')}"
    else:
        lists = served.recommend(ids, k, **which, **limits)
        lists = lists if strangers is None else joined([lists, strangers])
        notes += notes_of(lists)
        lists, rows, into = finished(lists), len(lists), ""
        if out is not None:
            notes += formulas_noted(lists, out)
            named = inputs.with_own_names(lists, loaded)
            if is_database(out):
                write_database(named, out, table or _TABLE)
            else:
                write_table(named, Path(out))
    if json:
        if out is None:
            what, instead = f"a JSON document of {rows:,} rows", "write a file with --out, or ask for shorter lists"
            check_memory(rows * _JSON_ROW, device("cpu"), what, instead)
        document = {"recommendations": lists.to_pylist()} if out is None else {"out": shown, "rows": rows}
        show.print_json(document | ({} if folder is None else {"parts": len(written)}) | {"notes": notes})
        return
    # Standard output may be the csv file itself.
    for note in notes:
        print(f"note: {one_line(note)}", file=sys.stderr)
    if out is None:
        show.print_csv(inputs.with_own_names(lists, loaded))
    else:
        print(f"{count(rows, 'recommendation')} written to {visible(shown)}{into}.")


def _target(out: str | None, parts: int | None, table: str | None, force: bool) -> tuple[PartsFolder | None, str]:
    """The folder for lists in parts, where --out names one; anything else is checked as a file or a database.

    Also what --out is called in messages.
    """
    from evenhand.data.reading.sources import is_uri
    from evenhand.data.write import ENDINGS, PartsFolder, check_database, check_target, is_database, without_password
    from evenhand.utils.world import World

    world = World.current()
    if out is not None and is_database(out):
        if parts is not None or world.size > 1:
            raise InputError("a database takes the lists of one process, and no --parts.")
        check_database(out, table or _TABLE, force)
        return None, f"{without_password(out)}, table {table or _TABLE}"
    if table is not None:
        raise InputError("--table is one of a database; name it with --out postgresql://USER@HOST/DATABASE.")
    if parts is None and world.size == 1 and not (out is not None and (is_uri(out) or out.endswith("/"))):
        if out is not None:
            check_target(Path(out), force)
        return None, str(out)
    if out is None or Path(out).suffix in ENDINGS:
        raise InputError("lists in parts are parquet files in a folder; name the folder with --out.")
    folder = PartsFolder(out)
    with world.together():
        folder.check_target(force)
    return folder, out


def _limits(filtering: opt.Filtering, items_file: str | None, said: dict[str, str], model: Model) -> dict[str, Any]:
    """What may be recommended, as the arguments of `Model.recommend`."""
    import pyarrow.compute as pc

    from evenhand.cli import inputs
    from evenhand.cli.inputs import read_file
    from evenhand.data.reading.columns import NoRowsError
    from evenhand.models.item_files import items_where

    found: dict[str, Any] = {}
    source = filtering.filter or items_file
    for name, file in (("exclude", filtering.exclude), ("only", filtering.only)):
        if file is not None:
            found[name] = _ids(file, "item", said, model)
    if filtering.where is not None:
        if source is None:
            raise InputError("--where names columns of a file of items; give the file with --filter.")
        column = inputs.column_for(source, "item", said.get("item"), model)
        chosen = items_where(source, column, filtering.where)
        if not len(chosen):
            raise InputError(f"nothing is left to recommend: no row of {source} fulfils --where.")
        if "only" in found:
            chosen = chosen.filter(pc.is_in(chosen.cast("string"), value_set=found["only"].cast("string")))
        found["only"] = chosen
    elif filtering.filter is not None:
        raise InputError("--filter is a file of items; say with --where which rows count, as in --where 'stock > 0'.")
    if (file := filtering.exclude_pairs) is not None:
        user, item = (inputs.column_for(file, role, said.get(role), model) for role in ("user", "item"))
        with suppress(NoRowsError):
            found["exclude_pairs"] = read_file(file, opt.Reading(user=user, item=item), allow_small=True)
    return found


def _seed(text: str | None) -> int | str | None:
    if text is None or text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--seed takes a number or all, not '{text}'.") from None


def _ids(file: str, role: str, said: dict[str, str], model: Model) -> pa.Array:
    """The users or items of a file, each once, in its order."""
    from evenhand.cli.inputs import column_for
    from evenhand.data.reading.read import read_ids

    return read_ids(file, role, column_for(file, role, said.get(role), model))


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
    from evenhand.cli import inputs
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
    from evenhand.cli import inputs
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
