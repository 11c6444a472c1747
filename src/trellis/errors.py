"""The errors that a user can cause, and their texts.

    TrellisError                one clear line on standard error, exit code 2
    ├── InputError              a file or an argument is wrong: says where, what, and what to do next
    └── MissingExtra            a command needs packages that are not installed: says which to install

An error that is not one of these, nor one of the operating system, is a bug of ours: one line that says where, exit
code 70, and its traceback with TRELLIS_DEBUG=1 (`cli/failures.py`).
"""

from __future__ import annotations

import re


class TrellisError(Exception):
    """An error that the user can act on. Its text is one line."""


class InputError(TrellisError):
    """A wrong file or argument: `where: what; remedy`, as in `a.tsv:18: node "n17" is repeated; remove one of them`."""

    def __init__(self, where: str, what: str, remedy: str) -> None:
        super().__init__(f"{where}: {what}; {remedy}" if where else f"{what}; {remedy}")
        self.where, self.what, self.remedy = where, what, remedy


class MissingExtra(TrellisError):
    """An optional part of the installation is missing."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f'{module} is not installed, which the extra "{extra}" brings; {_how_to_install(extra)}')


def _how_to_install(extra: str) -> str:
    """Return how to install an extra. It names the packages, which works for a checkout and for a wheel."""
    import shlex
    import sys
    from importlib import metadata

    try:
        required = metadata.requires("trellis-overlay") or []
    except metadata.PackageNotFoundError:
        required = []
    belongs = re.compile(rf"""extra\s*==\s*['"]{extra}['"]""")
    packages = [requirement.partition(";")[0].strip() for requirement in required if belongs.search(requirement)]
    if not packages:
        return f"install it as docs/install.md says, with [{extra}]"
    return f"run: {shlex.join([sys.executable or 'python3', '-m', 'pip', 'install', *packages])}"
