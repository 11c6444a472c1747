"""`trellis completion SHELL`: a script that lets a shell complete commands, options and file names."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer

from trellis.cli.common import examples, say

EXAMPLE = examples(
    "trellis completion bash > ~/.local/share/bash-completion/completions/trellis",
    "trellis completion zsh > ~/.zfunc/_trellis",
    "trellis completion fish > ~/.config/fish/completions/trellis.fish",
)
VARIABLE = "_TRELLIS_COMPLETE"  # how the script asks the program


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", show_default=False)]) -> None:
    """Print the completion script of a shell. Bash and fish read it from the places below; zsh from its fpath."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    say(get_completion_script(prog_name="trellis", complete_var=VARIABLE, shell=shell.value))


def answer(program: Any) -> NoReturn:
    """Tell the shell what may come next, and end. Offer nothing where something is wrong: a shell shows no errors."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()  # Typer knows how shells ask only after this call.
    with suppress(Exception):
        program.main([], prog_name="trellis", complete_var=VARIABLE, standalone_mode=False)
    raise SystemExit(1)
