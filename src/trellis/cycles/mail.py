"""Messages in cycles: all are under way for the same number of ticks, so they arrive in the order of sending."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit

KIND, SENDER, TASK, TOLD_DEGREE, TOLD_TARGET, TO, DUE = range(7)  # of a letter. TASK: whom it is for; TO: of a redirect


class Mail(NamedTuple):
    letters: Any  # int32[most, 7]: a ring
    ends: Any  # int64[2]: letters that have arrived, and letters that were sent, since the beginning


def make_mail(most: int) -> Mail:
    """Return a mail without letters. Of more than `most` that are under way at once, the last ones are lost."""
    return Mail(np.zeros((most, 7), np.int32), np.zeros(2, np.int64))


@njit(folder=True)
def post(mail, kind, sender, task, degree, target, to, due):
    """Send a message of node `sender` to a task."""
    most = len(mail.letters)
    if mail.ends[1] - mail.ends[0] < most:
        letter = mail.letters[mail.ends[1] % most]
        letter[KIND], letter[SENDER], letter[TASK], letter[DUE] = kind, sender, task, due
        letter[TOLD_DEGREE], letter[TOLD_TARGET], letter[TO] = degree, target, to
        mail.ends[1] += 1


@njit(folder=True)
def has_arrived(mail, tick):
    """Return whether there is a letter that has arrived and was not read."""
    return mail.ends[0] < mail.ends[1] and mail.letters[mail.ends[0] % len(mail.letters), DUE] <= tick


@njit(folder=True)
def read(mail):
    """Return the next letter that was not read."""
    mail.ends[0] += 1
    return mail.letters[(mail.ends[0] - 1) % len(mail.letters)].copy()
