"""Word that there is work, once a transaction stands. Who listens is not known here.

It is only speed: whoever does the work looks for it by itself, too, so a word that is lost costs
seconds and nothing else.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from functools import partial

from django.db import transaction
from django.dispatch import Signal


class Work(StrEnum):
    """What there is to do."""

    SYNC = "sync"
    """A generation rose: clusters carry something older than what is wanted."""
    EXPORTS = "exports"
    ACTIONS = "actions"
    """Something is to be done to single jobs."""


announced = Signal()
"""Sent with ``work``, after the commit and once for all that a transaction changed."""


class _Waiting(threading.local):
    """What this thread will tell; a rollback leaves it here, and nothing that would tell it."""

    def __init__(self) -> None:
        self.work: set[Work] = set()


_waiting = _Waiting()


def announce(work: Work) -> None:
    """Tell those who do such work, once this transaction stands."""
    _waiting.work.add(work)
    transaction.on_commit(partial(_tell, work))


def _tell(work: Work) -> None:
    if work in _waiting.work:
        _waiting.work.discard(work)
        announced.send(Work, work=work)
