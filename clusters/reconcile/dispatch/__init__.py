"""Dispatch in ``portal`` mode: one workload of the manager runs on one of its workers.

``links`` keeps the workers' images, ``group`` puts together what the decision looks at, the
decision is ``clusters.kueue.multikueue.decide`` (pure), ``nominating`` holds the dispatcher in
force with its ``trail`` of rounds and the workers' ``offers``, ``courier`` and ``worker_courier``
carry actions out, ``connections`` tells on the manager who is connected, ``body`` is the loop.
Kinds of jobs are in ``clusters.jobs``.
"""

from __future__ import annotations

from clusters.reconcile.dispatch.body import DispatchBody

__all__ = ["DispatchBody"]
