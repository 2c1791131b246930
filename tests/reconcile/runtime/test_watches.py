"""Watches are asked by the heartbeat's thread while the shift's own adds others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from clusters.kube import resources as r
from clusters.reconcile.runtime.watches import Watches


def test_ages_can_be_asked_while_watches_are_added():
    watches = Watches(cast(Any, None), cluster="east", pulse=None, sink=lambda seen: None)
    found = cast(Any, watches)._reflectors

    def reflector(age_s: float, *, adds: bool = False) -> SimpleNamespace:
        def age() -> float:
            if adds:
                found[r.POD] = reflector(3.0)
            return age_s

        return SimpleNamespace(age=age)

    found[r.JOB] = reflector(1.0, adds=True)
    found[r.WORKLOAD] = reflector(2.0)
    assert watches.age() == 2.0
    assert watches.age() == 3.0
