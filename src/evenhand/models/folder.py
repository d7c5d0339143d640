"""The model folder: what other programs and later versions may rely on.

Vectors or weights are safetensors, ids and pairs Arrow, the rest JSON, so that any language can read it and
nothing in it is ever executed; docs/models.md describes every file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.models.base import Model
from evenhand.models.blend_model import WEIGHTS, BlendModel, Part, Scale, parts_of
from evenhand.models.card import model_card
from evenhand.models.factors import FactorModel
from evenhand.models.item_weights import ItemWeightModel
from evenhand.models.new_items import TABLES
from evenhand.utils.atomic import atomic_folder
from evenhand.utils.errors import InputError
from evenhand.utils.text import as_json

FORMAT = 1
"""Version of the folder's layout; a folder of another version is refused."""
PARTS = 2
"""The layout of a folder that several processes wrote, each a part of the users and items."""
_MOST_PARTS = 100_000
CONTENT = ("model.safetensors", "users.arrow", "items.arrow", "known.arrow", "history.json")
"""What config.json holds checksums of."""
_TRIES = 20
FILES = (*CONTENT, "README.md", "config.json")
"""Everything in the folder; config.json is written last, and without it there is no model."""


def write_model(model: Model, folder: str | Path, *, force: bool = False) -> None:
    """Write the folder, whole or not at all; one that exists is only replaced with `force`."""
    check_ours(Path(folder))
    with atomic_folder(folder, FILES, force=force) as place:
        write_tensors(place / "model.safetensors", _separate(model.tensors()))
        write_arrow(place / "users.arrow", {"id": model.known.user_ids})
        write_arrow(place / "known.arrow", _pairs(model))
        write_rest(model, place, Path(folder).name, FORMAT)


def write_rest(
    model: Model, place: Path, name: str, layout: int, checksums: Mapping[str, str] | None = None, **more: Any
) -> None:
    """What there is once in any layout: items, history, the card of the folder `name` and, last, config.json.

    `checksums` are those of the other files; None takes them here.
    """
    titles = {} if model.titles is None else {"title": model.titles.cast(pa.string())}
    write_arrow(place / "items.arrow", {"id": model.known.item_ids, **titles})
    write_json(place / "history.json", [dict(record) for record in model.history])
    (place / "README.md").write_text(model_card(model, name), encoding="utf-8")
    here = CONTENT if checksums is None else ("items.arrow", "history.json")
    config = {
        "format": layout,
        "kind": model.kind,
        "seeds": list(model.seeds),
        "best": model.best,
        "info": model.info,
        "metrics": model.metrics,
        **more,
        "checksums": {file: sha256(place / file) for file in here} | dict(checksums or {}),
    }
    write_json(place / "config.json", config)


def part_names(number: int) -> tuple[str, str, str]:
    """The files of one part: rows, users, known pairs."""
    return f"part-{number:05d}.safetensors", f"users-{number:05d}.arrow", f"known-{number:05d}.arrow"


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, each in memory of its own: parts of a blend may share what they are made of."""
    found: dict[str, Tensor] = {}
    used: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        found[name] = plain.clone() if plain.data_ptr() in used else plain
        used.add(plain.data_ptr())
    return found


def check_ours(folder: Path) -> None:
    """Refuse to write a model over somebody's own README.md or config.json, whatever --force says."""
    card, config = folder / "README.md", folder / "config.json"
    foreign = [file.name for file in (card, config) if file.exists() and not _is_ours(file)]
    if foreign and not (folder / "model.safetensors").is_file():
        raise InputError(
            f"{folder} holds a {foreign[0]} that no model of evenhand wrote, and a model would replace it; choose "
            "another folder."
        )


def _is_ours(file: Path) -> bool:
    """Whether it is a model's config, or a card: a run that was killed may have left the one without the other."""
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text) if file.name == "config.json" else None
    except (OSError, ValueError, RecursionError):
        return False
    return {"format", "seeds"} <= found.keys() if isinstance(found, dict) else "made by evenhand." in text


def load(folder: str | Path, *, verify: bool = True) -> Model:
    """Read a model folder that `save` wrote; `verify` compares every file with its checksum.

    One that is replaced while it is read, as by a nightly job, is read again.
    """
    folder = Path(folder)
    for _ in range(_TRIES):
        before = _stamp(folder)
        try:
            model = _read_model(folder, verify)
        except InputError:
            if _stamp(folder) == before:
                raise
        else:
            if _stamp(folder) == before:
                return model
    raise InputError(f"{folder} was replaced each of the {_TRIES} times it was read; read it when it is at rest.")


def _stamp(folder: Path) -> tuple[int, int] | None:
    """Changes when the folder is replaced; config.json is its last file."""
    try:
        found = (folder / "config.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read_model(folder: Path, verify: bool) -> Model:
    config = _read_config(folder)
    with read_as("a model", folder):
        for name in config.files if verify else ():
            if not (folder / name).is_file():
                raise InputError(f"{folder} is damaged: {name} is missing; copy the folder again.")
            if sha256(folder / name) != config.checksums.get(name):
                raise InputError(f"{folder} is damaged: {name} is not the file that was saved; copy the folder again.")
        model = _assembled(folder, config)
        if wrong := model.damage():
            raise InputError(f"{folder} is damaged: {wrong}.")
    return model


@contextmanager
def read_as(what: str, path: Path) -> Iterator[None]:
    """Whatever is wrong inside a file, its reader has its own kind of error for it; here it becomes one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as problem:
        raise InputError(f"{path} cannot be read as {what}: {_reason(problem)}.") from problem


def _assembled(folder: Path, config: _Config) -> Model:
    tensors, users, pairs = _read_parts(folder, config)
    items = read_arrow(folder / "items.arrow")
    known = _known(folder, users, items["id"], pairs)
    history = json.loads((folder / "history.json").read_text(encoding="utf-8"))
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise InputError(f"{folder} is damaged: history.json is not a list of records.")
    common: dict[str, Any] = {name: getattr(config, name) for name in ("seeds", "best", "info", "metrics")}
    common |= {"known": known, "history": tuple(history), "titles": _titles(folder, items)}
    if config.kind != BlendModel.kind:
        return _part(config.kind, tensors, pairs, common)
    parts = tuple(_part(kind, own, pairs, {"known": known, "seeds": config.seeds}) for kind, own in parts_of(tensors))
    scale: Scale = next(scale for scale, name in WEIGHTS.items() if name in tensors)
    return BlendModel(
        parts,
        tuple(tensors[WEIGHTS[scale]].tolist()),
        scale=scale,
        fitted_to=known.take(pairs["touched"].to_numpy()),
        **common,
    )


def _part(kind: str, tensors: Mapping[str, Tensor], pairs: pa.Table, common: Mapping[str, Any]) -> Part:
    if kind in TABLES:
        seen = common["known"].take(pairs["touched"].to_numpy())
        recency = float(tensors.get("recency", torch.tensor(0.0)))
        return ItemWeightModel(TABLES[kind].from_tensors(tensors), seen=seen, recency=recency, **common)
    names = ("user_tables", "item_tables")
    tables = (tensors[names[0]], tensors[names[1]]) if set(names) <= set(tensors) else None
    return FactorModel(tensors["user_vectors"], tensors["item_vectors"], tables=tables, **common)


@dataclass(frozen=True)
class _Config:
    """config.json, checked."""

    kind: str
    seeds: tuple[int, ...]
    best: int
    info: Mapping[str, Any]
    metrics: Mapping[str, Any]
    checksums: Mapping[str, str]
    parts: int
    """How many parts it lies in; 0 for one file of each kind."""

    @property
    def files(self) -> tuple[str, ...]:
        """What there are checksums of."""
        if not self.parts:
            return CONTENT
        return (*(name for part in range(self.parts) for name in part_names(part)), "items.arrow", "history.json")


def _read_config(folder: Path) -> _Config:
    path = folder / "config.json"
    if not folder.exists():
        raise InputError(f"{folder} does not exist; name a model folder that `evenhand train` wrote.")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, not a model folder that `evenhand train` wrote.")
    if not path.is_file():
        raise InputError(f"{folder} is not a model folder: it has no config.json.")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(f"{folder} cannot be read as a model: config.json: {_reason(problem)}.") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int) or "seeds" not in raw:
        raise InputError(f"{folder} cannot be read as a model: its config.json is not that of a model.")
    if raw["format"] not in (FORMAT, PARTS):
        way_out = "update evenhand" if raw["format"] > FORMAT else "use the version that wrote it"
        raise InputError(
            f"{folder} has format {raw['format']}, this version of evenhand reads {FORMAT} and {PARTS}; {way_out} or "
            "train the model again."
        )
    entry: Callable[..., Any] = raw.get
    seeds, best, info, metrics, checksums = map(entry, ("seeds", "best", "info", "metrics", "checksums"))
    kind, parts = entry("kind", FactorModel.kind), entry("parts") if raw["format"] == PARTS else []
    sound = {
        "seeds": isinstance(seeds, list) and seeds and all(type(one) is int and abs(one) < 2**63 for one in seeds),
        "best": type(best) is int and isinstance(seeds, list) and 0 <= best < len(seeds),
        "info": isinstance(info, dict),
        "metrics": isinstance(metrics, dict) and all(map(_is_results, metrics.values())),
        "checksums": isinstance(checksums, dict),
        "parts": isinstance(parts, list) and (raw["format"] == PARTS) <= len(parts) <= _MOST_PARTS,
    }
    for name, good in sound.items():
        if not good:
            raise InputError(f"{folder} is damaged: '{name}' in its config.json is missing or wrong.")
    if kind not in (FactorModel.kind, BlendModel.kind, *TABLES):
        raise InputError(f"{folder} holds a model of kind '{kind}', which this evenhand does not know; update it.")
    return _Config(kind, tuple(seeds), best, info, metrics, checksums, len(parts))


def _is_results(row: Any) -> bool:
    """Whether it is one row of `metrics`: names, each with its mean and spread, or with nothing."""
    if not isinstance(row, dict) or not all(found is None or isinstance(found, dict) for found in row.values()):
        return False
    numbers = (found.get(name) for found in row.values() if found for name in ("mean", "std"))
    return all(number is None or isinstance(number, (int, float)) for number in numbers)


def _pairs(model: Model) -> dict[str, pa.Array]:
    known = model.known
    columns = {"user": pa.array(known.users), "item": pa.array(known.items)}
    if model.seen is not None:
        columns["touched"] = pa.array(model.seen.contains(known.users, known.items))
    if model.uses_times and known.timestamps is not None:
        columns["timestamp"] = pa.array(known.timestamps)
    return columns


def _read_parts(folder: Path, config: _Config) -> tuple[dict[str, Tensor], pa.ChunkedArray, pa.Table]:
    """Tensors, user ids and known pairs, put together where they lie in parts."""
    from safetensors.torch import load_file

    names = [part_names(n) for n in range(config.parts)] or [("model.safetensors", "users.arrow", "known.arrow")]
    stores = [load_file(folder / rows) for rows, _, _ in names]
    tensors = stores[0] if len(stores) == 1 else {n: torch.cat([s[n] for s in stores], dim=1) for n in stores[0]}
    users, pairs = (pa.concat_tables(read_arrow(folder / one[place]) for one in names) for place in (1, 2))
    return tensors, users["id"], pairs


def _known(folder: Path, user_ids: pa.ChunkedArray, item_ids: pa.ChunkedArray, pairs: pa.Table) -> Interactions:
    users, items = (_ids(folder, ids) for ids in (user_ids, item_ids))
    user, item = (pairs[name].to_numpy().astype(np.int64) for name in ("user", "item"))
    if len(user) and not (user.min() >= 0 <= item.min() and user.max() < len(users) and item.max() < len(items)):
        raise InputError(f"{folder} is damaged: known.arrow holds pairs of unknown users or items.")
    if (np.diff(user * len(items) + item) <= 0).any():
        raise InputError(f"{folder} is damaged: the pairs in known.arrow are not in order.")
    times = pairs["timestamp"] if "timestamp" in pairs.column_names else None
    if times is not None and (times.type != pa.float64() or times.null_count):
        raise InputError(f"{folder} is damaged: the timestamps in known.arrow are no numbers.")
    return Interactions(
        user_ids=users,
        item_ids=items,
        indptr=np.concatenate([[0], np.cumsum(np.bincount(user, minlength=len(users)))]).astype(np.int64),
        items=item.astype(np.int32),
        timestamps=None if times is None else times.to_numpy(),
    )


def _titles(folder: Path, table: pa.Table) -> pa.Array | None:
    if "title" not in table.column_names:
        return None
    if table.schema.field("title").type != pa.string():
        raise InputError(f"{folder} is damaged: the titles of its items are no texts.")
    return pa.concat_arrays([pa.array([], pa.string()), *table["title"].chunks])


def _ids(folder: Path, column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    if str(array.type) not in ("int64", "string") or array.null_count or len(array.unique()) < len(array):
        raise InputError(f"{folder} is damaged: its ids are not integers or texts, each once.")
    return array


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path)
        # It makes the file readable to its owner alone, whatever the umask says.
        path.chmod(mode)
    except SafetensorError as problem:
        # It hides the system's error, such as a full disk, in one of its own.
        raise OSError(str(problem)) from problem


def write_arrow(path: Path, columns: Mapping[str, pa.Array]) -> None:
    table = pa.table(dict(columns))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    # Arrow believes the offsets in a file; a false one would be read as an address.
    table.validate(full=True)
    return table


def write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(as_json(document), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(problem: BaseException) -> str:
    """Why something failed, in half a sentence."""
    return " ".join(str(problem).split()).rstrip(".") or type(problem).__name__
