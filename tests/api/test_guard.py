"""The guard over the API: its switch, and incidents and nominations in a cluster's answer."""

from __future__ import annotations

import pytest
from django.utils import timezone

from budgets.models import AuditEntry
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.models import Cluster, GuardIncident, NominationWay
from tests.api.conftest import People
from tests.api.rows import add_cluster

SETTINGS = "clusters/hub/settings"


@pytest.fixture
def hub(people: People) -> Cluster:
    cluster = add_cluster("hub", role="manager")
    cluster.mode = "kueue"
    cluster.kueue_configuration = {"multiKueue": {"dispatcherName": CHEAPEST_FIT}}
    cluster.save()
    return cluster


def test_guard_is_switched_by_admins_alone_and_audited(people: People, hub: Cluster):
    answer = people.send("admin", "PATCH", SETTINGS, {"guard": "cure", "reason": "tried before"})
    assert (answer.status_code, answer.json()["guard"]) == (200, "cure")
    assert AuditEntry.objects.get(action="cluster.guard").reason == "tried before"
    assert people.send("finance", "PATCH", SETTINGS, {"guard": "off"}).status_code == 403
    refused = people.send("admin", "PATCH", SETTINGS, {"guard": "loud"})
    assert refused.status_code == 422 and "guard" in str(refused.json())


def test_guard_of_a_worker_is_refused_with_the_way_out(people: People, hub: Cluster):
    add_cluster("gpu-east")
    answer = people.send("admin", "PATCH", "clusters/gpu-east/settings", {"guard": "cure"})
    assert answer.status_code == 422
    assert "Set the guard on the manager" in str(answer.json())


def test_cluster_answers_with_incidents_and_the_way_of_nominating(people: People, hub: Cluster):
    now = timezone.now()
    GuardIncident.objects.create(
        cluster=hub, defect="stuck-quota", workload_uid="u", namespace="acme-vision", name="train",
        found="its quota is kept", noticed_at=now,
    )  # fmt: skip
    NominationWay.objects.create(cluster=hub, way="policy", why="It is bound.", checked_at=now)
    answer = people.send("admin", "GET", "clusters/hub").json()
    [incident] = answer["incidents"]
    assert incident["defect"] == "stuck-quota" and incident["state"] == "open"
    assert incident["found"] == "its quota is kept" and incident["ended_at"] is None
    assert answer["nomination"]["way"] == "policy"
    assert answer["guard"] == "tell"
