"""What a file of items says of them: groups for a sampler, rows that meet a condition, titles, and attributes.

Attributes become one sparse matrix: categories, numbers, texts and given vectors, each column as it is. What is learned
of the columns (which categories there are, how rare a word is, where numbers lie) comes from the rows of items that a
model knows; a row of a new item never changes another one's features.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, pairwise
from typing import Any, Literal, get_args
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from evenhand.data.interactions import Interactions
from evenhand.data.reading.cleaning import codes_and_ids, looked_up
from evenhand.data.reading.columns import Column, NoRowsError, is_string, source_label
from evenhand.data.reading.read import column_names, read_columns, read_table
from evenhand.models.filters import positions
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import count, first_line_of

Kind = Literal["category", "number", "text", "vector"]

WORD_FEATURES = 1024
"""Words and pairs of words of a text column are hashed to this number of features."""
MOST_CATEGORIES = 1000
"""The most frequent values of a column count, the others do not."""
KNOTS = 10
"""Numbers are interpolated between this number of quantiles."""
_SHOWN = 5
"""How many ids a message names."""


def read_groups(source: str, data: Interactions, item: str = "item") -> tuple[int, ...]:
    """The group of every item of `data`, from `FILE:COLUMN`; groups are numbered in the order of their names.

    Every item must have just one group: without one a sampler could not draw it. Items and groups
    that do not occur in `data` are passed over.
    """
    file, colon, column = source.rpartition(":")
    if not colon or not file or not column:
        raise InputError(f"groups are given as FILE:COLUMN, not '{source}'.")
    table = read_columns(file, [Column("item", "id", item), Column("group", "id", column)])
    rows, ids = codes_and_ids(table["item"])
    groups, _ = codes_and_ids(table["group"])
    group_of = np.empty(len(ids), dtype=np.int64)
    group_of[rows] = groups
    torn = np.unique(rows[group_of[rows] != groups])
    if len(torn):
        raise InputError(f"{source_label(file)} gives several groups to {_some(ids.take(pa.array(torn)))}.")

    place = looked_up(data.item_ids, ids)
    missing = data.item_ids.filter(place.is_null())
    if len(missing):
        raise InputError(f"{source_label(file)} gives no group to {_some(missing)} of {data.n_items:,}.")
    _, numbered = np.unique(group_of[np.asarray(place)], return_inverse=True)
    return tuple(numbered.tolist())


def _some(ids: pa.Array) -> str:
    """`7 items (a, b, c, d, e…)`."""
    names = ", ".join(str(name) for name in ids[:_SHOWN].to_pylist())
    return f"{count(len(ids), 'item')} ({names}{'…' if len(ids) > _SHOWN else ''})"


def items_where(source: Any, item: str, where: str) -> pa.Array:
    """The ids of the rows for which a condition such as `stock > 0 and category = 'hat'` is true, by DuckDB.

    `item` is the column of ids.
    """
    if find_spec("duckdb") is None:
        raise InputError("--where needs DuckDB; install it with: pip install 'evenhand[sql]'.")
    duckdb: Any = import_module("duckdb")
    try:
        table = read_table(source, item)
    except NoRowsError:
        return pa.array([], pa.string())
    row = "row"
    while row in table.column_names:
        row += "_"
    ids = table[item].cast(table[item].type.value_type)
    plain = table.set_column(table.column_names.index(item), item, ids)
    try:
        # A condition, not a statement; and it reads no file.
        with duckdb.connect(config={"enable_external_access": "false"}) as database:
            rows = database.from_arrow(plain.append_column(row, pa.array(np.arange(len(plain)))))
            found = rows.filter(where).project(f'"{row}"').fetchnumpy()[row]
    except duckdb.Error as problem:
        raise InputError(
            f'--where "{where}" on {source_label(source)}: {first_line_of(problem).rstrip("!")}.'
        ) from None
    return ids.take(pa.array(np.sort(np.asarray(found)))).combine_chunks().drop_null().unique()


def read_titles(source: Any, item_ids: pa.Array, *, item: str = "item", title: str = "title") -> pa.Array:
    """string [n_items]: the title of every item, null where the file has none; of repeated ids the first counts."""
    table = read_columns(source, [Column("item", "id", item), Column("title", "text", title)], strict=False)
    ids = table["item"].cast(table["item"].type.value_type).combine_chunks()
    there, found = positions(ids, item_ids), np.full(len(item_ids), -1)
    rows = np.flatnonzero(there >= 0)[::-1]  # so that the first is written last
    found[there[rows]] = rows
    if len(item_ids) and (found < 0).all():
        raise InputError(f"{source_label(source)} has no title for any item of the model; check the column '{item}'.")
    return _taken(table["title"], found)


def carried_titles(titles: pa.Array | None, old_ids: pa.Array, new_ids: pa.Array) -> pa.Array | None:
    """The titles of the old items where these stand among the new ones."""
    return None if titles is None else _taken(titles, positions(new_ids, old_ids))


def note_on(titles: pa.Array) -> list[str]:
    """How many items have no title, where some have none."""
    return [f"{count(titles.null_count, 'item')} of {len(titles):,} without a title."] if titles.null_count else []


def _taken(titles: Any, place: np.ndarray) -> pa.Array:
    texts = pa.chunked_array([titles]) if isinstance(titles, pa.Array) else titles
    return pa.concat_arrays([pa.array([], pa.string()), *texts.take(pa.array(place, mask=place < 0)).chunks])


def read_attributes(source: Any, item: str, attributes: str | Iterable[str] | None) -> tuple[pa.Array, pa.Table]:
    """The ids of a table's items, each once, and the columns wanted (`name` or `name:kind`), named `name:kind`."""
    there = column_names(source)
    asked = attributes.split(",") if isinstance(attributes, str) else attributes
    wanted = dict(_named(one, there) for one in ([name for name in there if name != item] if asked is None else asked))
    if not wanted or item in wanted:
        raise InputError(f"{source_label(source)} needs columns of attributes beside '{item}'.")
    table = read_table(source, item)
    ids = pa.concat_arrays(table[item].chunks) if len(table[item].chunks) > 1 else table[item].chunk(0)
    codes = np.asarray(ids.indices.fill_null(-1))
    there_codes, first = np.unique(codes, return_index=True)
    first = first[there_codes >= 0]
    rows = table.select(list(wanted)).take(pa.array(first)).combine_chunks()
    kinds = [kind or _kind(rows[name]) for name, kind in wanted.items()]
    named = rows.rename_columns([f"{name}:{kind}" for name, kind in zip(wanted, kinds, strict=True)])
    return ids.dictionary.take(pa.array(codes[first])), named


def features(table: pa.Table, learn: np.ndarray) -> sparse.csr_matrix:
    """float64 [n, f]: every row's attributes; `learn` (bool) are the rows that say what there is."""
    blocks = []
    for name in table.column_names:
        column, _, kind = name.rpartition(":")
        try:
            blocks.append(_BLOCKS[kind](table[name], learn))
        except (pa.ArrowException, ValueError, TypeError):
            raise InputError(f"the attribute '{column}' cannot be read as {kind}; name it as {column}:KIND.") from None
    return sparse.csr_matrix(sparse.hstack(blocks, format="csr"))


def _named(text: str, there: Sequence[str]) -> tuple[str, str | None]:
    """`title:text` as its column and its kind; a column may have a colon in its name."""
    name, kind = text.strip(), None
    if name not in there and ":" in name:
        name, _, kind = name.rpartition(":")
        if kind not in get_args(Kind):
            raise unknown("kind of attribute", kind, get_args(Kind))
    if name not in there:
        raise unknown("attribute", name, there)
    return name, kind


def _kind(column: pa.ChunkedArray) -> Kind:
    """What a column holds, by its type; texts that mostly differ are texts, those that repeat are categories."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return "category" if is_string(column.type.value_type) else "vector"
    if pa.types.is_boolean(column.type):
        return "category"
    if not is_string(column.type) and not pa.types.is_dictionary(column.type):
        return "number"
    values = _labels(column)
    return "category" if 2 * len(set().union(*values)) <= sum(map(bool, values)) else "text"


def _labels(column: pa.ChunkedArray) -> list[set[str]]:
    """The categories of every row: those of a list, or of a text with | between them."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_nested(column.type):
        return [{str(one) for one in row or () if one is not None} for row in column.to_pylist()]
    texts = pc.cast(column, pa.string()).to_pylist()
    return [{part.strip() for part in (text or "").split("|")} - {""} for text in texts]


def _category(column: pa.ChunkedArray, learn: np.ndarray) -> sparse.csr_matrix:
    labels = _labels(column)
    counts = Counter(one for row, counted in zip(labels, learn, strict=True) if counted for one in row)
    place = {name: n for n, (name, _) in enumerate(sorted(counts.most_common(MOST_CATEGORIES)))}
    return _bag([[place[one] for one in row if one in place] for row in labels], len(place))


def _text(column: pa.ChunkedArray, learn: np.ndarray) -> sparse.csr_matrix:
    """Words and pairs of words, rare ones more, every row of length 1."""
    rows = []
    for text in pc.cast(column, pa.string()).to_pylist():
        words = re.findall(r"\w+", (text or "").lower())
        tokens = words + [f"{one} {other}" for one, other in pairwise(words)]
        rows.append([crc32(token.encode()) % WORD_FEATURES for token in tokens])
    bag = _bag(rows, WORD_FEATURES)
    within = bag[learn].getnnz(axis=0)
    bag = bag @ sparse.diags(np.log1p(max(int(learn.sum()), 1) / np.maximum(within, 1)))
    lengths = np.sqrt(bag.multiply(bag).sum(1)).A1
    return sparse.diags(1 / np.where(lengths > 0, lengths, 1)) @ bag


def _number(column: pa.ChunkedArray, learn: np.ndarray) -> sparse.csr_matrix:
    """Between two quantiles, a number is some of the one and the rest of the other; few values are categories."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("s")).cast(pa.int64())
    x = column.cast(pa.float64()).to_numpy()
    there = np.isfinite(x)
    if not (there & learn).any():
        return sparse.csr_matrix((len(x), 0))
    knots = np.unique(np.quantile(x[there & learn], np.linspace(0, 1, KNOTS)))
    hats = np.stack([np.where(there, np.interp(x, knots, hat), 0) for hat in np.eye(len(knots))], axis=1)
    return sparse.csr_matrix(hats)


def _vector(column: pa.ChunkedArray, learn: np.ndarray) -> sparse.csr_matrix:
    """Given vectors, their mean square length being 1; a row without one is zero."""
    rows = column.to_pylist()
    length = next((len(row) for row in rows if row), 0)
    found = np.array([row or [0.0] * length for row in rows], dtype=np.float64).reshape(len(rows), length)
    if not np.isfinite(found).all():
        raise ValueError
    size = np.sqrt((found[learn] ** 2).sum(1).mean()) if learn.any() else 0
    return sparse.csr_matrix(found / (size or 1))


def _bag(rows: Sequence[Sequence[int]], width: int) -> sparse.csr_matrix:
    """How often each column is named in each row."""
    row = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
    column = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=len(row))
    return sparse.csr_matrix((np.ones(len(row)), (row, column)), shape=(len(rows), width))


_BLOCKS: Mapping[str, Callable[[pa.ChunkedArray, np.ndarray], sparse.csr_matrix]] = {
    "category": _category,
    "number": _number,
    "text": _text,
    "vector": _vector,
}
