"""Several processes as one: what each one gets from the others, who holds which rows, and mistakes of one of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import evenhand
from evenhand.utils import world as module
from evenhand.utils.errors import InputError
from evenhand.utils.world import Blocks, World
from ranks import on_ranks
from run_cli import evenhand as evenhand_command


def wrong_on(rank: int, one: int) -> None:
    if rank == one:
        raise InputError("line 3 is wrong.")


def everything(world: World) -> dict[str, Any]:
    """One of each, so that a few processes answer all questions."""
    rank, size = world.rank, world.size
    found: dict[str, Any] = {"rank": rank, "size": size}
    parts = [torch.full((rank + to, 2), 10 * rank + to) for to in range(size)]  # of other lengths, some empty
    found["exchange"] = [part.tolist() for part in world.exchange(parts)]
    found["sent"] = world.sent
    module.LARGEST = 24  # three rows of two int32 a message
    long = torch.arange(20 * size, dtype=torch.int32).reshape(-1, 2) + 1000 * rank
    found["cut"] = world.swap(long, [10] * size).tolist()
    found["bool"] = world.swap(torch.tensor([rank == to for to in range(size)]), [1] * size).tolist()
    found["total"] = world.total(torch.tensor([rank, 1])).tolist()
    found["agree"] = world.agree(rank + 7)
    found["share"] = world.share({"name": "é", "rank": rank} if rank == 0 else None)
    found["gathered"] = world.gathered([rank, None])
    world.barrier()
    with pytest.raises(InputError, match=r"^line 3 is wrong\.$"), world.together():
        wrong_on(rank, size - 1)
    with world.together():
        pass
    found["current"] = World.current() is world
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_every_rank_gets_what_the_others_sent(size: int) -> None:
    answers = on_ranks(size, everything)
    for rank, found in enumerate(answers):
        assert (found["rank"], found["size"], found["current"]) == (rank, size, True)
        assert found["exchange"] == [[[10 * other + rank] * 2] * (other + rank) for other in range(size)]
        assert found["sent"] == sum(16 * (rank + to) for to in range(size) if to != rank)
        rows = np.arange(20 * size).reshape(-1, 2)[10 * rank : 10 * rank + 10]
        assert found["cut"] == np.concatenate([rows + 1000 * other for other in range(size)]).tolist()
        assert found["bool"] == [other == rank for other in range(size)]
        assert found["total"] == [sum(range(size)), size]
        assert found["agree"] == 7
        assert found["share"] == {"name": "é", "rank": 0}
        assert found["gathered"] == [[other, None] for other in range(size)]


def mistake_of_one(world: World) -> str:
    """Rank 1 fails while the others wait for its part."""
    try:
        with world.reporting():
            if world.rank == 1:
                raise InputError("the file of rank 1 has no column 'item'.")
            world.total(torch.tensor(1))
    except InputError as problem:
        return str(problem)
    finally:
        world.last_word()
    return "nothing"


def test_a_mistake_of_one_rank_reaches_those_who_wait_for_it() -> None:
    assert on_ranks(3, mistake_of_one, wait_for=30, seconds=15) == ["the file of rank 1 has no column 'item'."] * 3


def commands(world: World) -> tuple[int, str]:
    """`evenhand compare` and its like are refused by rank 0 alone."""
    ended = evenhand_command("compare", "demo")
    return ended.code, ended.err


def test_rank_0_alone_refuses_what_runs_in_one_process() -> None:
    (code, said), (other, nothing) = on_ranks(2, commands)
    assert (code, other, nothing) == (2, 2, "")
    assert said.startswith("evenhand: `evenhand compare` runs in one process; over several runs: train, ")
    assert said.count("\n") == 1


def test_alone_nothing_is_sent() -> None:
    world = World.from_environment()
    assert (world.rank, world.size, world.speaks) == (0, 1, True)
    rows = torch.arange(3)
    assert world.exchange([rows])[0] is rows
    assert world.total(rows) is rows
    assert world.agree(5) == 5
    assert world.share({"a": 1}) == {"a": 1}
    assert world.gathered(3) == [3]
    world.barrier()
    with pytest.raises(InputError, match="mine"), world.together():
        raise InputError("mine")
    with pytest.raises(InputError, match="mine"), world.reporting():
        raise InputError("mine")
    world.last_word()
    assert world.sent == 0


@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 5))
def test_every_row_has_one_owner_and_one_place(n: int, block: int, size: int) -> None:
    placed = Blocks(n, block, size)
    ids = np.arange(n)
    for rank in range(size):
        mine = placed.mine(rank)
        assert mine.tolist() == ids[placed.owner(ids) == rank].tolist()
        assert placed.local(mine).tolist() == list(range(placed.count(rank)))
    assert placed.owner(torch.arange(n)).tolist() == placed.owner(ids).tolist()


def test_a_small_table_is_spread_as_well() -> None:
    assert len(set(Blocks.of_users(500, 4).owner(np.arange(500)).tolist())) == 4
    assert Blocks.of_users(10**6, 4).block == 1024
    assert Blocks.of_items(10**6, 4).block == 64


def test_no_object_travels() -> None:
    """torch's collectives for objects pickle them, as do its own checkpoints."""
    for path in Path(evenhand.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(gather|reduce|broadcast|scatter|send|recv)_object|distributed\.checkpoint", text), path
