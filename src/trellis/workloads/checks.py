"""Refuse options that make no sense, with one line that names the option as a user types it."""

from __future__ import annotations

import math

from trellis.errors import InputError

IDS_MAX = 2**31 - 1  # Dense ids have 32 bits.


def refuse_if(wrong: bool, where: str, what: str, remedy: str) -> None:
    """Raise InputError if `wrong`."""
    if wrong:
        raise InputError(where, what, remedy)


def check_count(option: str, value: int) -> None:
    """Raise InputError unless a number of things is at least 1 and small enough for dense ids."""
    where = f"--{option} {value}"
    refuse_if(value < 1, where, "must be positive", "give 1 or more")
    refuse_if(value > IDS_MAX, where, "is more than ids can number", f"give at most {IDS_MAX}")


def check_at_least(option: str, value: float, least: float) -> None:
    refuse_if(
        not (math.isfinite(value) and value >= least),
        f"--{option} {value:g}",
        f"must be a finite number of at least {least:g}",
        f"give {least:g} or more",
    )


def check_above(option: str, value: float, bound: float) -> None:
    refuse_if(
        not (math.isfinite(value) and value > bound),
        f"--{option} {value:g}",
        f"must be a finite number above {bound:g}",
        f"give more than {bound:g}",
    )


def check_share(option: str, value: float) -> None:
    refuse_if(not 0 <= value <= 1, f"--{option} {value:g}", "is no share", "give a number from 0 to 1")


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    refuse_if(value not in choices, f"--{option} {value}", "is unknown", f"choose from {', '.join(choices)}")
