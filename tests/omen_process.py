"""One OMen node in an interpreter of its own: inputs come on standard input, effects go to standard output.

Run by `tests/seeds/test_omen_processes.py`. Each frame is four bytes of length and MessagePack; messages of the
protocol travel in their wire form. Nothing else connects this node with any other.
"""

from __future__ import annotations

import sys
from random import Random

import msgspec

from trellis.protocols.effects import Effects, Send
from trellis.protocols.omen import CODEC, OMenConfig, OMenNode


def main() -> None:
    node: OMenNode | None = None
    while frame := sys.stdin.buffer.read(4):
        method, *arguments = msgspec.msgpack.decode(sys.stdin.buffer.read(int.from_bytes(frame, "big")))
        if method == "make":
            name, topics, seed, config, contacts, neighbours, incarnation = arguments
            settings = msgspec.convert(config, OMenConfig)
            node = OMenNode(
                name,
                tuple(topics),
                Random(seed),
                settings,
                contacts=contacts,
                neighbors=neighbours,
                incarnation=incarnation,
            )
            answer = b""
        else:
            assert node is not None
            if method == "on_message":
                arguments[1] = CODEC.decode(arguments[1])
            answer = packed(getattr(node, method)(*arguments) or [])
        sys.stdout.buffer.write(len(answer).to_bytes(4, "big") + answer)
        sys.stdout.buffer.flush()


def packed(effects: Effects) -> bytes:
    rows = []
    for effect in effects:
        if isinstance(effect, Send):
            rows.append(("Send", effect.to, CODEC.encode(effect.message)))
        else:
            rows.append((type(effect).__name__, *msgspec.structs.astuple(effect)))
    return msgspec.msgpack.encode(rows)


if __name__ == "__main__":
    main()
