"""Keep growing sorted lists of ids in one pool, one per row: neighbors, topics, subscribers, backups, primaries.

A full row moves to the end of the pool and gets twice the space. The gap stays, so the pool is at most about four times
as large as its content. Kernels read a row as `data[start[row] : start[row] + length[row]]`.

I1  A row is ascending without repeats, so its content does not depend on the order of insertions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trellis.jit import njit
from trellis.model.names import IdArray

_ROOM_MIN = 4


class Rows:
    """`count` rows, all empty at first."""

    def __init__(self, count: int) -> None:
        self.data: IdArray = np.empty(_ROOM_MIN * max(count, 1), np.int32)
        self.start = np.arange(count, dtype=np.int64) * _ROOM_MIN
        self.length = np.zeros(count, np.int64)
        self._room = np.full(count, _ROOM_MIN, np.int64)
        self._used = np.array([_ROOM_MIN * count], np.int64)

    @property
    def arrays(self) -> tuple[IdArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return data, start and length, the arguments of kernels that read rows.

        They are replaced when the pool grows.
        """
        return self.data, self.start, self.length

    def __getitem__(self, row: int) -> IdArray:
        """Return a copy of a row, which does not change with the row."""
        begin = self.start[row]
        return self.data[begin : begin + self.length[row]].copy()

    def insert(self, rows: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Put each value into its row. The value must not be there already."""
        rows_, values_ = _pairs(rows, values)
        self.data = _insert(self.data, self.start, self.length, self._room, self._used, rows_, values_)

    def remove(self, rows: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Remove each value from its row. The value must be there."""
        _remove(self.data, self.start, self.length, *_pairs(rows, values))

    def clear(self, row: int) -> None:
        self.length[row] = 0


def _pairs(rows: npt.ArrayLike, values: npt.ArrayLike) -> tuple[IdArray, IdArray]:
    """Return two int32 arrays of one length. A single number is repeated."""
    rows_, values_ = np.asarray(rows, np.int32), np.asarray(values, np.int32)
    if rows_.ndim == 0:
        rows_ = np.full(values_.shape, rows_, np.int32)
    if values_.ndim == 0:
        values_ = np.full(rows_.shape, values_, np.int32)
    return rows_, values_


@njit(cache=True)
def union(first: Any, second: Any) -> Any:
    """Return the union of two ascending arrays, ascending."""
    both = np.empty(len(first) + len(second), np.int32)
    i, j, count = 0, 0, 0
    while i < len(first) or j < len(second):
        take_first = j == len(second) or (i < len(first) and first[i] <= second[j])
        value = first[i] if take_first else second[j]
        i += i < len(first) and first[i] == value
        j += j < len(second) and second[j] == value
        both[count] = value
        count += 1
    return both[:count]


@njit(cache=True)
def _insert(data: Any, start: Any, length: Any, room: Any, used: Any, rows: Any, values: Any) -> Any:
    """Insert the values. Return the pool, which is another array if it had to grow."""
    for i in range(len(rows)):
        row, value = rows[i], values[i]
        if length[row] == room[row]:
            begin, wider = start[row], 2 * room[row]
            if used[0] + wider > len(data):
                grown = np.empty(2 * len(data) + wider, np.int32)
                for at in range(used[0]):
                    grown[at] = data[at]
                data = grown
            for at in range(length[row]):
                data[used[0] + at] = data[begin + at]
            start[row], room[row] = used[0], wider
            used[0] += wider
        last = start[row] + length[row]
        index = _index_of(data, start[row], last, value)
        assert index == last or data[index] != value
        for at in range(last, index, -1):
            data[at] = data[at - 1]
        data[index] = value
        length[row] += 1
    return data


@njit(cache=True)
def _remove(data: Any, start: Any, length: Any, rows: Any, values: Any) -> None:
    for i in range(len(rows)):
        row, value = rows[i], values[i]
        last = start[row] + length[row]
        index = _index_of(data, start[row], last, value)
        assert index < last
        assert data[index] == value
        for at in range(index, last - 1):
            data[at] = data[at + 1]
        length[row] -= 1


@njit(cache=True)
def _index_of(data: Any, first: Any, last: Any, value: Any) -> Any:
    """Return the index at which the value is, or would be, in data[first:last]."""
    while first < last:
        middle = (first + last) // 2
        if data[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first
