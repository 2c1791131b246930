"""Under a live Kueue on a manager: who is nominated, and what is done about Kueue's defects.

``body`` is the controller and ``watched_workers`` what it sees. ``nominator`` does what an external
dispatcher owes to Kueue, in the one of the ``ways`` that ``probing`` finds possible.
``guarding`` looks for three ``defects`` of Kueue 0.19.2, tells of incidents, and cures them
where a cluster allows it; ``returns`` notices early that a lost worker is back.
"""

from __future__ import annotations

from clusters.reconcile.external.body import ExternalBody
