"""Every error that a user can cause, and how it reads.

    TrellisError                one clear line on standard error, exit code 2
    ├── InputError              a file or an argument is wrong: says where, what, and what to do next
    └── MissingExtra            a command needs packages that are not installed: says which to install

An error of ours that is not one of these is a bug and keeps its traceback.
"""

from __future__ import annotations


class TrellisError(Exception):
    """Something a user can act on. Its text is one line."""


class InputError(TrellisError):
    """`where: what; remedy`, for instance `a.tsv:18: node "n17" is repeated; remove one of the rows`."""

    def __init__(self, where: str, what: str, remedy: str) -> None:
        super().__init__(f"{where}: {what}; {remedy}" if where else f"{what}; {remedy}")
        self.where, self.what, self.remedy = where, what, remedy


class MissingExtra(TrellisError):
    """An optional part of the installation is missing."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"{module} is not installed; run: pip install 'trellis-overlay[{extra}]'")
