"""Dispatch in ``portal`` mode: one workload of the manager runs on one of its workers.

``links`` keeps the workers' images, ``group`` puts together what the decision looks at, the
decision itself is ``clusters.kueue.multikueue`` (pure), ``courier`` carries actions out,
``connections`` tells on the manager who is connected, ``body`` is the loop.
"""

from __future__ import annotations

from clusters.reconcile.dispatch.body import DispatchBody

__all__ = ["DispatchBody"]
