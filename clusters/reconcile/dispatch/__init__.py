"""Dispatch in ``portal`` mode: one workload of the manager runs on one of its workers.

``body`` is the controller. ``workers`` keeps a ``link`` to each worker, with a cache of what is
there; ``local`` is the manager's side of a workload and ``group`` all that a decision looks at. The
decision is ``clusters.kueue.multikueue.decide`` (pure); ``nominating`` holds the dispatcher in
force with its ``trail`` of rounds and the workers' ``offers``. What is to be done on the manager is
in ``manager_writes``, as requests; what on a worker, in ``copies``. ``connections`` tells on the
manager who is connected. Kinds of jobs are in ``clusters.jobs``.
"""

from __future__ import annotations

from clusters.reconcile.dispatch.body import DispatchBody
