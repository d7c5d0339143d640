"""Runs the command line inside the test's process, and makes small files for it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import typer.main

from evenhand.cli import main
from evenhand.data.interactions import Interactions
from evenhand.data.write import write_table

# Typer would make all commands anew at each call, which takes as long as a small one runs.
typer.main.get_command = cache(typer.main.get_command)

TINY = ("--epochs", "2", "--seeds", "2", "--dim", "8", "--batch", "256")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@contextmanager
def one_thread() -> Iterator[None]:
    """The data here is too small for threads to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def evenhand(*arguments: object, encoding: str = "utf-8") -> Ended:
    """`evenhand ARGUMENTS…`, with what it printed in that encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    code: Any = "main did not end the process"
    try:
        with (
            one_thread(),
            patch.object(sys, "argv", ["evenhand", *map(str, arguments)]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            main()
    except SystemExit as ended:
        code = ended.code
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    return Ended(code, *texts)


def small_log() -> Interactions:
    """60 users and 80 items, the first of them the most popular, with times; about 850 pairs."""
    generator = np.random.default_rng(0)
    chance = 0.6 / np.sqrt(1 + np.arange(80))
    users, items = np.nonzero(generator.random((60, 80)) < np.maximum(chance, 0.15))
    return Interactions.from_pairs(users, items, timestamps=generator.permutation(len(users)))


def write_log(log: Interactions, path: Path) -> Path:
    """As csv, tsv or parquet, by the ending."""
    write_table(log.to_table(), path)
    return path
