"""When a job ended, as its status tells: of anybody's job, however it is written."""

from __future__ import annotations

from typing import Any, cast

import pytest

from budgets.intervals import needed_fields
from budgets.intervals.documents import MOST_OWNERS
from clusters.errors import NotFound, Refusal
from clusters.kube.client import KubeClient
from clusters.reconcile.usage.unwatched import ended_at
from tests.ledger.test_documents import WORKLOAD

AT = "2026-03-01T10:00:00Z"


class Cluster:
    """Serves one job under every name, and counts who asks."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        self.status, self.asked = status, 0

    def get(self, resource: Any, name: str, *, namespace: str) -> dict[str, Any]:
        self.asked += 1
        if self.status is None:
            raise NotFound(Refusal("gone"))
        metadata = {"name": name, "namespace": namespace, "uid": "u0"}
        return {"metadata": metadata, "spec": {}, "status": self.status}

    def end(self, *owners: dict[str, Any]) -> str | None:
        metadata = {"name": "w", "namespace": "t", "ownerReferences": list(owners)}
        return ended_at(cast(KubeClient, self), {"metadata": metadata})


def owner(number: int = 0, kind: str = "Job", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": f"j{number}", "uid": f"u{number}", **more}


def failed(**more: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Failed", "status": "True", **more}]}


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({"completionTime": AT}, AT, id="complete"),
        pytest.param(failed(lastTransitionTime=AT), AT, id="failed"),
        pytest.param(failed(), None, id="failed without a time"),
        pytest.param(failed(lastTransitionTime=None), None, id="failed at no time"),
        pytest.param({"completionTime": "soon"}, None, id="no time"),
        pytest.param({"completionTime": "2026-03-01T10:00:00"}, None, id="no zone"),
        pytest.param({"completionTime": 7}, None, id="a number"),
        pytest.param({"conditions": 7}, None, id="no conditions"),
    ],
)
def test_the_end_is_a_time_or_nothing(status: dict[str, Any], want: str | None):
    assert Cluster(status).end(owner()) == want


def test_of_a_group_a_few_pods_are_asked_and_kept():
    pods = [owner(number, "Pod") for number in range(2_000)]
    gone = Cluster(None)
    assert gone.end(*pods) is None
    assert gone.asked == MOST_OWNERS
    metadata = WORKLOAD["metadata"] | {"ownerReferences": pods}
    kept = needed_fields(WORKLOAD | {"metadata": metadata})["metadata"]["ownerReferences"]
    assert [each["uid"] for each in kept] == ["u0", "u1", "u2", "u3"]


def test_who_controls_an_object_is_kept_wherever_it_stands():
    owners = [*(owner(number, "Pod") for number in range(9)), owner(9, controller=True)]
    metadata = WORKLOAD["metadata"] | {"ownerReferences": owners}
    kept = needed_fields(WORKLOAD | {"metadata": metadata})["metadata"]["ownerReferences"]
    assert [each["uid"] for each in kept] == ["u9"]
