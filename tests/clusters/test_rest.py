"""What a cluster at rest asks of the database: it is asked for each cluster, all day long."""

from __future__ import annotations

from datetime import timedelta

import pytest

from budgets import services
from budgets.models import MeterState
from clusters.errors import Refusal, Unreachable
from clusters.models import ClusterHealth
from clusters.reconcile.health import Contact, record_contact
from tests.builders import SmallFleet, hours
from tests.reconcile.fleet_rows import register

pytestmark = pytest.mark.django_db


def test_progress_of_metering_is_one_query_and_never_goes_back(
    fleet: SmallFleet, django_assert_num_queries
):
    services.record_progress(cluster="gpu-east", complete_until=hours(2), last_event_id=7)
    with django_assert_num_queries(1):
        services.record_progress(cluster="gpu-east", complete_until=hours(3), watched_version="12")
    services.record_progress(cluster="gpu-east", complete_until=hours(1), last_event_id=5)
    state = MeterState.objects.get()
    assert (state.complete_until, state.last_event_id) == (hours(3), 7)
    assert state.watched_version == "12"


def test_progress_of_a_cluster_is_known_from_its_first_word_on(fleet: SmallFleet):
    services.record_progress(cluster="gpu-east")
    assert MeterState.objects.get().complete_until is None
    services.record_progress(cluster="gpu-east", message="late")
    services.record_progress(cluster="gpu-east", complete_until=hours(1))
    assert (MeterState.objects.get().message, MeterState.objects.get().complete_until) == (
        "late",
        hours(1),
    )


def test_health_is_one_query_and_keeps_since_when_a_cluster_is_lost(
    fleet: SmallFleet, django_assert_num_queries
):
    cluster = register("gpu-east", "")
    ClusterHealth.objects.all().delete()
    gone = Unreachable(Refusal("no answer", reason="Timeout"))
    record_contact(cluster.pk, Contact(hours(1)))
    with django_assert_num_queries(1):
        record_contact(cluster.pk, Contact(hours(2), gone))
    record_contact(cluster.pk, Contact(hours(3), gone))
    found = ClusterHealth.objects.get()
    assert (found.lost_since, found.last_contact_at) == (hours(2), hours(1))
    assert found.checked_at == hours(2) + timedelta(hours=1)
    record_contact(cluster.pk, Contact(hours(4)))
    assert ClusterHealth.objects.get().lost_since is None
