"""Who reads what of a log that several processes share out: consecutive row groups of parquet files, in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from evenhand.data.reading.columns import Column, Loaded, NoRowsError, faults_reported, source_label, without_folder
from evenhand.data.reading.sources import PARQUET_ENDINGS, File, find_files
from evenhand.data.reading.typed_files import Footer, pieces
from evenhand.data.reading.values import to_numbers
from evenhand.data.reading.wire import total
from evenhand.utils.errors import InputError
from evenhand.utils.text import count
from evenhand.utils.world import World

Cleaned = TypeVar("Cleaned")


@dataclass(frozen=True, eq=False)
class Shares:
    """The files of a log, and which rows of them are this rank's."""

    world: World
    label: str
    files: Sequence[File]
    footers: Sequence[Footer]
    names: dict[str, str]
    """role → what the files call it, of all columns that any file has."""
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(source: Any, world: World, columns: Sequence[Column]) -> Shares:
        with world.together():
            files = find_files(source)
            label = files[0].label if len(files) == 1 else source_label(source)
            other = next((file for file in files if file.ending not in PARQUET_ENDINGS), None)
            if other is not None:
                raise InputError(f"{other.label} is no parquet file, and several processes read such files only.")
            with faults_reported(label):
                looked = [Footer.of(file, columns).to_json() for file in files[world.rank :: world.size]]
        answers = world.gathered(looked)
        footers = [Footer(**answers[n % world.size][n // world.size]) for n in range(len(files))]
        filled = [(file, footer) for file, footer in zip(files, footers, strict=True) if sum(footer.groups)]
        if not filled:
            raise NoRowsError(f"{label} holds no rows.")
        _check_alike(filled)
        known = {role: name for _, footer in filled for role, name in footer.names.items()}
        names = {column.role: known[column.role] for column in columns if column.role in known}
        notes = (
            (f"{without_folder(label)} holds {count(len(filled), 'file')}, read as one log.",) if len(files) > 1 else ()
        )
        return Shares(world, label, [file for file, _ in filled], [footer for _, footer in filled], names, notes)

    @property
    def id_types(self) -> dict[str, pa.DataType]:
        """role → int64 or string."""
        found = {role: {footer.id_types[role] for footer in self.footers} for role in ("user", "item")}
        return {
            role: pa.int64() if kinds & {"int64", "uint64", "double"} else pa.string() for role, kinds in found.items()
        }

    def mine(self) -> Iterator[tuple[File, list[int], int]]:
        """The row groups of this rank, file by file, and the rows of the file before them; ranks follow one another."""
        rank, size = self.world.rank, self.world.size
        rows = sum(sum(footer.groups) for footer in self.footers)
        before = 0
        for file, footer in zip(self.files, self.footers, strict=True):
            starts = list(accumulate(footer.groups, initial=0))
            groups = [g for g, start in enumerate(starts[:-1]) if (before + start) * size // rows == rank]
            if groups:
                yield file, groups, starts[groups[0]]
            before += starts[-1]

    def pieces(self, columns: Sequence[Column]) -> Iterator[Loaded]:
        for file, groups, first_row in self.mine():
            for piece in pieces(file, columns, groups, first_row):
                yield replace(piece, label=self.label, names=self.names | piece.names)

    def in_step(self, columns: Sequence[Column], clean: Callable[[Loaded], Cleaned]) -> Iterator[Cleaned | None]:
        """The pieces of this rank, cleaned; None while other ranks have more."""
        mine = self.pieces(columns)
        while True:
            with self.together():
                piece = next(mine, None)
                found = None if piece is None else clean(piece)
            if not total(self.world, np.array([found is not None]).astype(np.int64))[0]:
                return
            yield found

    def largest_time(self, time: Column) -> np.ndarray:
        """float64 [1]: the largest time of the whole log, which says its unit; a first look at that column alone."""
        largest = 0.0
        with self.together():
            for file, groups, first_row in self.mine():
                for piece in pieces(file, [time], groups, first_row):
                    if time.role in piece.names:
                        values = to_numbers(replace(piece, label=self.label), time.role, "time").to_numpy()
                        largest = max(largest, float(np.nanmax(np.abs(values), initial=0.0)))
        return np.array([max(self.world.gathered(largest))])

    @contextmanager
    def together(self) -> Iterator[None]:
        with self.world.together(), faults_reported(self.label):
            yield


def _check_alike(filled: Sequence[tuple[File, Footer]]) -> None:
    """Refuse ids of several types, by the first file that differs."""
    types: dict[str, str] = {}
    for file, footer in filled:
        for role, found in footer.id_types.items():
            kind = types.get(role, "large_string") if found == "null" else found
            if types.setdefault(role, kind) != kind:
                raise InputError(
                    f"column '{footer.names[role]}' of {file.label} has ids of type {kind}, those before it "
                    f"{types[role]}; write all files alike."
                )
