"""Look for the pieces of messages in the store, and put bodies and lists together when all are there.

A small message may refer to many large indexes, and the same references may come in many messages. So a reference is
examined again only if something can have changed. An index remembers how many of its pieces were there (`Held.found`),
and a message how many of its references were complete (`Waiting.found`). A look ends after a few incomplete references,
because a peer is asked for a few pieces at a time in any case. Lists are put together only if nothing is missing and
the message uses them.

P2  The number of references examined is linear in the bytes received: those of messages and those of pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trellis.protocols.pieces.messages import MISSING_MAX, Bytes, Index, Names, Ref
from trellis.protocols.pieces.store import Held, Store
from trellis.protocols.pieces.topic_lists import Topics
from trellis.protocols.pieces.waiting import Waiting
from trellis.protocols.wire import MESSAGE_BYTES_MAX, TOPICS_BYTES_MAX, TOPICS_MAX, WireError

_CACHED_TOPICS_MAX = 1_000_000


class Forgotten(Exception):
    """Raised if a piece that was there has been dropped for others since."""


class Assembly:
    """Assembles messages and lists from the pieces in the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lists: dict[bytes, tuple[Topics, int]] = {}  # reference -> a list that was put together, and its bytes
        self._cached = 0  # number of topics in these lists

    def look(self, one: Waiting) -> bool:
        """Return whether all pieces of a message are there. If not, `one.missing` has some of those that are missing.

        Raise WireError if a reference stands for something else than it says, or for too much.
        """
        packed = one.packed
        left = MISSING_MAX  # References that are still examined, from the first incomplete one on.
        for number in range(one.found, len(packed.lists) + (packed.whole is not None)):
            is_list = number < len(packed.lists)
            ref = packed.lists[number] if is_list else packed.whole
            assert ref is not None
            size = self._size(ref, Names if is_list else Bytes, one.missing)
            if size is not None and not one.missing:
                one.found += 1
                one.total += size
                if one.total + len(packed.body) > MESSAGE_BYTES_MAX:
                    raise WireError(f"a message of more than {MESSAGE_BYTES_MAX} bytes")
                continue
            left -= 1
            if not left or len(one.missing) >= MISSING_MAX:
                break
        return not one.missing

    def body(self, one: Waiting) -> bytes:
        """Return the encoded message. Raise Forgotten if a piece is not there any more."""
        if one.packed.whole is None:
            return one.packed.body
        return b"".join(part.data for part in self._parts(one.packed.whole))

    def list(self, ref: Ref) -> Topics:
        """Return a list of topics. Raise Forgotten if a piece is not there any more."""
        known = self._lists.get(ref.digest)
        if known is not None:
            return known[0]
        parts = self._parts(ref)
        topics = tuple(name for part in parts for name in part.names)
        if len(topics) > TOPICS_MAX:
            raise WireError(f"a list of {len(topics)} topics is over {TOPICS_MAX}")
        self._cached += len(topics)
        if self._cached > _CACHED_TOPICS_MAX:
            self._lists.clear()
            self._cached = len(topics)
        held = self.store.held(ref.digest)
        assert held is not None
        self._lists[ref.digest] = (topics, held.total)
        return topics

    def _size(self, ref: Ref, kind: type, missing: dict[bytes, None]) -> int | None:
        """Return the bytes that a reference stands for. None: some are missing, and are noted in `missing`."""
        if kind is Names and ref.digest in self._lists:
            return self._lists[ref.digest][1]
        held = self.store.held(ref.digest)
        if held is None:
            missing[ref.digest] = None
            return None
        if not isinstance(held.piece, Index):
            _check(held, ref, kind)
            return held.size
        bytes_max = TOPICS_BYTES_MAX if kind is Names else MESSAGE_BYTES_MAX
        if held.total > bytes_max:
            raise WireError(f"pieces of {held.total} bytes, where {bytes_max} are the limit")
        return held.total if self._is_complete(held, kind, missing) else None

    def _is_complete(self, index: Held, kind: type, missing: dict[bytes, None]) -> bool:
        """Return whether all pieces of an index are there, and note missing ones.

        Only pieces that were not there before are examined: up to the first missing one, and a few beyond it.
        """
        assert isinstance(index.piece, Index)
        if index.found and index.kind is not kind:
            raise WireError("a list of topics that is also a part of a message")
        left = MISSING_MAX
        is_complete = True
        for place in range(index.found, len(index.piece.refs)):
            ref = index.piece.refs[place]
            held = self.store.held(ref.digest)
            if held is None:
                missing[ref.digest] = None
                is_complete = False
            else:
                _check(held, ref, kind)
                if is_complete:
                    index.found, index.kind = index.found + 1, kind
            left -= not is_complete
            if not left:
                break
        return is_complete

    def _parts(self, ref: Ref) -> Sequence[Any]:
        """Return the pieces that a reference stands for. `look` must have found them."""
        held = self.store.held(ref.digest)
        if held is None:
            raise Forgotten
        if not isinstance(held.piece, Index):
            return [held.piece]
        parts: list[Any] = []
        for number, one in enumerate(held.piece.refs):
            part = self.store.get(one.digest)
            if part is None:
                held.found = number  # So the next look finds that it is missing.
                raise Forgotten
            parts.append(part)
        return parts


def _check(held: Held, ref: Ref, kind: type) -> None:
    """Raise WireError if a piece has another kind or size than its reference says."""
    if not isinstance(held.piece, kind) or held.size != ref.size:
        raise WireError("a piece of another kind or size than its reference says")
