"""Findings of `trellis doctor`, and how they are made."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.live.log import one_line


class Finding(msgspec.Struct, frozen=True):
    """One result of a check."""

    level: Literal["wrong", "note", "good"]  # `wrong` keeps messages from flowing, now or soon.
    where: str  # what was checked: a key of node.toml, or an address
    what: str  # the result, as a sentence
    remedy: str = ""  # what the operator should do, as a sentence; empty: nothing

    def line(self) -> str:
        """Return the finding as one line of text."""
        text = f"{self.level:<5}  {self.where}: {self.what}"
        return one_line(f"{text} {self.remedy}" if self.remedy else text)  # it may quote other nodes


def wrong(where: str, what: str, remedy: str) -> Finding:
    """Return a finding that keeps messages from flowing, now or soon."""
    return Finding("wrong", where, what, remedy)


def note(where: str, what: str, remedy: str) -> Finding:
    """Return a finding that the operator should know of, and that keeps no message from flowing."""
    return Finding("note", where, what, remedy)


def good(where: str, what: str) -> Finding:
    """Return the finding that a check has passed."""
    return Finding("good", where, what)


def refused(error: InputError, where: str = "") -> Finding:
    """Return the finding for an error with which a node would not start. `where`: used if the error names no place."""
    return wrong(error.where or where, f"{error.what}.", sentence(error.remedy))


def sentence(text: str) -> str:
    """Return the remedy of an error, which is written without capital and full stop, as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."
