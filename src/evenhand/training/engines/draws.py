# mypy: disable-error-code="no-untyped-def"
"""Keyed random numbers and draws of unobserved items, compiled: the same numbers as in torch.

Twins of `evenhand.utils.keyed` and of the distributions in `evenhand.samplers`: given a key they draw the same items.
Like all compiled code here they take whole arrays and indices: a slice in a hot loop is an object to be counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from evenhand.samplers.auc import POOL_TRIES
from evenhand.utils.compiled import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11, _1 = (np.uint64(n) for n in (30, 27, 31, 11, 1))


def _fetch(typing, table, r, row, k):

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = [
            context.cast(builder, a, t, types.intp) for a, t in zip(arguments[1:], signature.args[1:], strict=True)
        ]
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], array, place)
        byte, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(ask, [builder.bitcast(pointer, byte), whole(0), whole(2), whole(1)])
        return context.get_dummy_value()

    return types.void(table, r, row, k), generate


fetch: Any = intrinsic(_fetch)
"""fetch(table, r, row, k) asks the memory for table[r, row, k], to find it near when it is read."""


@compiled(error_model="numpy", forceinline=True)
def uniform(key, position):
    """The number in [0, 1) at a position under a key, as `keyed.uniforms` has it."""
    x = key + (np.uint64(position) + _1) * _GOLDEN
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    x = x ^ (x >> _31)
    return np.float64(np.int64(x >> _11)) * 2.0**-53


@compiled(error_model="numpy", forceinline=True)
def scaled(number, size):
    """floor(number · size), never reaching `size` by rounding."""
    return min(np.int64(number * size), size - 1)


@compiled(error_model="numpy")
def free_item(indptr, items, user, place):
    """The item at `place` among those the user has not seen.

    Of a row of own items, entry j lies behind items[j] - j free ones: a binary search without branches.
    """
    start = indptr[user]
    length = indptr[user + 1] - start
    base = start
    while length > 1:
        half = length >> 1
        middle = base + half - 1
        base = base + half if items[middle] - (middle - start) <= place else base
        length -= half
    if length == 1 and items[base] - (base - start) <= place:
        base += 1
    return place + (base - start)


@compiled(error_model="numpy")
def free_items(indptr, items, user, mass, key, first, n, found, base, at, lane):
    """n draws for one user at once, into found[at, lane]: they search the same row, so they go in step."""
    start = indptr[user]
    length = indptr[user + 1] - start
    for j in range(n):
        found[at, lane, j] = scaled(uniform(key, first + j), mass)
        base[at, j] = start
    while length > 1:
        half = length >> 1
        for j in range(n):
            middle = base[at, j] + half - 1
            base[at, j] += half if items[middle] - (middle - start) <= found[at, lane, j] else 0
        length -= half
    for j in range(n):
        last = base[at, j]
        passed = last - start
        if length == 1 and items[last] - passed <= found[at, lane, j]:
            passed += 1
        found[at, lane, j] += passed


@compiled(error_model="numpy")
def holds(indptr, items, user, item):
    """Whether the user's row has this item."""
    low, end = indptr[user], indptr[user + 1]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low < end and items[low] == item


@compiled(error_model="numpy")
def pool_items(indptr, items, user, mass, key, first, n, pool, r, found, at, lane):
    """n draws for one user among the items of a pool [R, size], into found[at, lane]; of any item if all are own."""
    size = pool.shape[1]
    for j in range(n):
        number = uniform(key, first + j)
        place, item = scaled(number, size), np.int64(-1)
        for ahead in range(POOL_TRIES):
            item = pool[r, (place + ahead) % size]
            if not holds(indptr, items, user, item):
                break
            item = np.int64(-1)
        found[at, lane, j] = free_item(indptr, items, user, scaled(number, mass)) if item < 0 else item


@compiled(error_model="numpy")
def free_item_by_weight(indptr, items, before_item, before_pair, user, place):
    """The same where every item has a weight: both searches are over exact sums of integers."""
    start = indptr[user]
    own = before_pair[start]
    low, high = start, indptr[user + 1]
    while low < high:
        middle = (low + high) >> 1
        if before_item[items[middle]] - (before_pair[middle] - own) <= place:
            low = middle + 1
        else:
            high = middle
    point = place + before_pair[low] - own
    first, last = 0, len(before_item)
    while first < last:
        middle = (first + last) >> 1
        if before_item[middle] <= point:
            first = middle + 1
        else:
            last = middle
    return first - 1


@compiled(error_model="numpy")
def group_and_place(choice, begin, left, user, which, where):
    """A group by its share, and a place among the group's items that the user has not seen."""
    point = which * (1 - 2**-52) * choice[user, choice.shape[1] - 1]
    group = 0
    while choice[user, group] <= point:
        group += 1
    return begin[user, group] + scaled(where, left[user, group])
