"""Keep names of nodes or topics, and the dense ids that stand for them inside.

Ids follow the *shortlex* order of the names (shorter first, then by bytes): 2 before 10, n9 before n10. So the same set
of rows gives the same ids, whatever the order of the rows or of the parts of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trellis import ids

IdArray = npt.NDArray[np.int32]


class Names:
    """An immutable list of different names. The id of a name is its index."""

    def __init__(self, names: Iterable[str] | pa.Array) -> None:
        array = names if isinstance(names, pa.Array) else pa.array(list(names), pa.string())
        self.array: pa.StringArray = array if array.type == pa.string() else array.cast(pa.string())

    @classmethod
    def in_order(cls, names: Iterable[str] | pa.Array) -> tuple[Names, IdArray]:
        """Return the names in shortlex order, and the id of each given name there. The names must differ."""
        array = Names(names).array
        table = pa.table({"length": pc.binary_length(array), "name": array})
        order = pc.sort_indices(table, sort_keys=[("length", "ascending"), ("name", "ascending")])
        ids_of = np.empty(len(array), np.int32)
        ids_of[order.to_numpy()] = np.arange(len(array), dtype=np.int32)
        return cls(array.take(order)), ids_of

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> str:
        return self.array[int(index)].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self.array.to_pylist())

    def __contains__(self, name: object) -> bool:
        return name in self._id_by_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self.array.equals(other.array)

    __hash__ = None  # type: ignore[assignment] # compared by value, and large

    def __repr__(self) -> str:
        shown = ", ".join(self.array[:5].to_pylist())
        return f"Names({shown}{', ...' if len(self) > 5 else ''}; {len(self)})"

    @cached_property
    def _id_by_name(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self)}

    def id_of(self, name: str) -> int:
        """Return the id of `name`. Raise KeyError if it is unknown."""
        return self._id_by_name[name]

    def ids_of(self, names: pa.Array | pa.ChunkedArray | Iterable[str]) -> IdArray:
        """Return the id of each name, or -1 if it is unknown. This is vectorized."""
        if not isinstance(names, pa.Array | pa.ChunkedArray):
            names = pa.array(list(names), pa.string())
        known_ids = pc.fill_null(pc.index_in(names, value_set=self.array), -1)
        return np.asarray(known_ids, dtype=np.int32)

    def take(self, chosen: npt.ArrayLike) -> pa.StringArray:
        """Return the names of the given ids, as an Arrow array."""
        return self.array.take(pa.array(np.asarray(chosen)))

    def keys(self, seed: int | str) -> npt.NDArray[np.uint64]:
        """Return the tie-breaking key of each name (see `trellis.ids.key`)."""
        return np.fromiter((ids.key(seed, name) for name in self), np.uint64, len(self))
