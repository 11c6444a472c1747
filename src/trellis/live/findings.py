"""What `trellis doctor` finds, one sentence each."""

from __future__ import annotations

from typing import Literal

import msgspec

from trellis.errors import InputError
from trellis.live.log import one_line


class Finding(msgspec.Struct, frozen=True):
    level: Literal["wrong", "note", "good"]
    where: str  # a key of node.toml, or an address
    what: str  # a sentence
    remedy: str = ""

    def line(self) -> str:
        told = f"{self.level:<5}  {self.where}: {self.what}"
        return one_line(f"{told} {self.remedy}" if self.remedy else told)  # names and reasons in it are of others


def wrong(where: str, what: str, remedy: str) -> Finding:
    return Finding("wrong", where, what, remedy)


def note(where: str, what: str, remedy: str) -> Finding:
    return Finding("note", where, what, remedy)


def good(where: str, what: str) -> Finding:
    return Finding("good", where, what)


def refused(error: InputError, where: str = "") -> Finding:
    """Return a finding for what the program itself refuses, with its remedy. `where`: if the error does not say it."""
    return wrong(error.where or where, f"{error.what}.", sentence(error.remedy))


def sentence(text: str) -> str:
    """Return a remedy as it stands in an error, as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."
