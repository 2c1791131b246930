"""Dispatch in ``portal`` mode: one workload of the manager runs on one of its workers.

``body`` is the controller; ``workers`` says who is dispatched to, and who has left. The decision is
``clusters.kueue.multikueue.decide`` (pure). What is to be done on the manager is in
``manager_writes``, as requests, with who is connected; what on a worker, and all that dispatch
shares with nominating for a Kueue, in ``clusters.reconcile.multikueue``.
"""

from __future__ import annotations

from clusters.reconcile.dispatch.body import DispatchBody
