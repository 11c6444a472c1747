"""Rows of different lengths in one array: what nodes know, their backups, their links.

A full row moves to the end of the pool and gets twice the room. Kernels cannot make the pool itself larger. So they
look before each step whether it `is_short`, and if so they stop, and the caller goes on with `more_room`.

L1  row r is `data[start[r] : start[r] + count[r]]`. Rows do not overlap.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit

ROOM_MIN = 4


class Pool(NamedTuple):
    data: Any  # int32[entries, width]
    start: Any  # int64[rows]
    room: Any  # int64[rows]
    count: Any  # int64[rows]
    used: Any  # int64[1]: entries that belong to rows, or did so before the rows moved


def make_pool(rows: int, width: int = 1, room: int = ROOM_MIN, free: int = 1024) -> Pool:
    """Return empty rows. `free`: entries at the end that belong to no row."""
    return Pool(
        np.zeros((rows * room + free, width), np.int32),
        np.arange(rows, dtype=np.int64) * room,
        np.full(rows, room, np.int64),
        np.zeros(rows, np.int64),
        np.array([rows * room], np.int64),
    )


def more_room(pool: Pool, free: int) -> Pool:
    """Return the same rows with `free` entries at the end. Rows give up most of the room that they do not use."""
    counts = pool.count
    rooms = np.maximum(ROOM_MIN, counts + counts // 8)
    ends = np.cumsum(rooms)
    used = int(ends[-1]) if len(ends) else 0
    found = Pool(
        np.zeros((used + max(free, used // 4), pool.data.shape[1]), np.int32),
        (ends - rooms).astype(np.int64),
        rooms.astype(np.int64),
        counts.copy(),
        np.array([used], np.int64),
    )
    copy_rows(pool, found)
    return found


@njit(folder=True)
def copy_rows(pool, found):
    """Copy the content of all rows."""
    for row in range(len(pool.start)):
        one, other = pool.start[row], found.start[row]
        for place in range(pool.count[row]):
            for column in range(pool.data.shape[1]):
                found.data[other + place, column] = pool.data[one + place, column]


@njit(folder=True, forceinline=True)
def is_short(pool, margin):
    """Return whether fewer than `margin` entries are free."""
    return pool.used[0] + margin > len(pool.data)


@njit(folder=True, forceinline=True)
def make_room(pool, row, need):
    """Let a row have room for `need` entries. The pool must not be short."""
    if pool.room[row] >= need:
        return
    begin, wider = pool.start[row], max(need, 2 * pool.room[row])
    assert pool.used[0] + wider <= len(pool.data), "the pool is short"
    for place in range(pool.count[row]):
        for column in range(pool.data.shape[1]):
            pool.data[pool.used[0] + place, column] = pool.data[begin + place, column]
    pool.start[row], pool.room[row] = pool.used[0], wider
    pool.used[0] += wider


@njit(folder=True)
def find_in_row(pool, row, value):
    """Return the place of an entry in its row by its first column, or -1."""
    begin = pool.start[row]
    for place in range(pool.count[row]):
        if pool.data[begin + place, 0] == value:
            return place
    return -1


@njit(folder=True)
def drop_from_row(pool, row, value):
    """Remove an entry from a row. The others keep their order. Return the place where it was, or -1."""
    place = find_in_row(pool, row, value)
    if place >= 0:
        begin = pool.start[row]
        pool.count[row] -= 1
        for later in range(begin + place, begin + pool.count[row]):
            for column in range(pool.data.shape[1]):
                pool.data[later, column] = pool.data[later + 1, column]
    return place


@njit(folder=True)
def add_to_row(pool, row, value):
    """Add an entry of one column at the end of a row."""
    make_room(pool, row, pool.count[row] + 1)
    pool.data[pool.start[row] + pool.count[row], 0] = value
    pool.count[row] += 1


def rows_of_links(nodes: int, one: Any, other: Any) -> Pool:
    """Return the neighbors of each node, ascending, given both ends of each link."""
    owners, peers = np.concatenate([one, other]), np.concatenate([other, one])
    order = np.lexsort((peers, owners))
    counts = np.bincount(owners, minlength=nodes).astype(np.int64)
    rooms = np.maximum(ROOM_MIN, counts + 2)
    ends = np.cumsum(rooms)
    used = int(ends[-1]) if nodes else 0
    pool = Pool(np.zeros((used + used // 4 + 4096, 1), np.int32), ends - rooms, rooms, counts, np.array([used]))
    places = np.repeat(pool.start - (np.cumsum(counts) - counts), counts) + np.arange(len(owners))
    pool.data[places, 0] = peers[order]
    return pool
