"""How the Workload of an owner is called.

Source: Kueue pkg/controller/jobframework/workload_names.go, v0.19.2.
"""

from __future__ import annotations

import hashlib

from clusters.documents.labels import SET_GROUP, SET_KIND

_NAME_LIMIT, _HASH_LENGTH = 253, 5


def workload_name(*, kind: str, group: str, name: str, uid: str, extra: str = "") -> str:
    """The name of the Workload that is made for an owner.

    Args:
        kind: Of the owner, as ``Job``.
        group: Its API group, as ``batch``.
        name: Its name.
        uid: Its UID, so that a Job of a name that was used before gets another Workload.
        extra: Tells several Workloads of one owner apart; empty for the first, or only one.
    """
    parts = (kind, group, name, uid, *filter(None, [extra]))
    digest = hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False)
    stem = f"{kind.lower()}-{name}"[: _NAME_LIMIT - _HASH_LENGTH - 1]
    return f"{stem}-{digest.hexdigest()[:_HASH_LENGTH]}"


def replica_workload_name(name: str, *, uid: str, replica: int | str) -> str:
    """The name of the Workload of one replica of a LeaderWorkerSet."""
    return workload_name(kind=SET_KIND, group=SET_GROUP, name=f"{name}-{replica}", uid=uid)
