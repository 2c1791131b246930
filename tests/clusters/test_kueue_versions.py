"""What the check and the page say of the versions of Kueue on each cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets.errors import NotAllowed
from clusters import selectors
from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.server import DevServer
from clusters.documents.kueue_versions import FEATURES, Release, Support
from clusters.kube.client import KubeClient
from clusters.models import Cluster, ClusterHealth
from clusters.reconcile.health import Contact, record_contact
from clusters.services.preflight.rows import version_rows
from clusters.services.probes import kueue_line_of_crds
from tests.builders import SmallFleet
from tests.factories import UserFactory

OLD, NEW = Release(0, 18, 2), Release(0, 19, 2)
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
STEPS = {"multiKueue": {"incrementalDispatcherConfig": {"stepSize": 2}}}


def rows(
    release: Release | None, crds: str = "", *, mode: str = "kueue", **configuration: Any
) -> dict[str, tuple[str, str]]:
    found = version_rows(Cluster(mode=mode), release, crds, configuration)
    return {row.name: (row.state, row.found) for row in found}


def test_check_says_which_version_the_portal_supports():
    assert rows(NEW, "0.19") == {"Kueue version": ("ok", "0.19.2, which the portal supports")}
    state, words = rows(OLD, "0.18")["Kueue version"]
    assert state == "warn" and words == "0.18.2; the portal explains and forecasts by 0.19"
    for untried in (Release(0, 17), Release(0, 20)):
        state, words = rows(untried)["Kueue version"]
        assert state == "warn" and words.endswith("the portal was not tried with it")


def test_check_says_that_a_version_is_not_known():
    assert rows(None) == {"Kueue version": ("ok", "not known")}
    assert rows(None, "0.18")["Kueue version"] == ("ok", "not known; its CRDs are those of 0.18")


@pytest.mark.parametrize(
    ("release", "crds", "want"),
    [
        pytest.param(OLD, "0.19", "of 0.19, and the controller is 0.18.2", id="CRDs alone"),
        pytest.param(NEW, "0.18", "of 0.18, and the controller is 0.19.2", id="controller alone"),
        pytest.param(OLD, "0.18", None, id="before"),
        pytest.param(NEW, "0.19", None, id="after"),
        pytest.param(Release(0, 20), "0.19", None, id="newer CRDs look alike"),
        pytest.param(NEW, "", None, id="CRDs are not known"),
    ],
)
def test_check_notices_half_an_upgrade(release: Release, crds: str, want: str | None):
    found = rows(release, crds).get("Kueue's CRDs")
    assert found == (None if want is None else ("warn", want))


def test_check_names_a_setting_with_which_that_version_does_not_start():
    state, words = rows(OLD, **STEPS)["Kueue configuration"]
    assert state == "warn" and "multiKueue.incrementalDispatcherConfig" in words
    assert "Kueue configuration" not in rows(NEW, **STEPS)


def test_where_the_portal_decides_only_the_crds_count():
    state, words = rows(None, "0.18", mode="portal")["Kueue's CRDs"]
    assert state == "warn" and words.startswith("of 0.18 or older")
    assert rows(None, "0.19", mode="portal") == {}
    assert rows(OLD, "", mode="portal") == {}


@pytest.mark.embedded
def test_a_server_that_publishes_no_schemas_tells_no_version():
    with (
        DevServer(DevCluster(ClusterOptions(name="hub"))) as server,
        KubeClient.from_kubeconfig(server.kubeconfig) as client,
    ):
        assert kueue_line_of_crds(client) == ""


# Of the page.


def add(slug: str, tag: str = "", crds: str = "", **changes: Any) -> Cluster:
    preflight = {"checked_at": NOW.isoformat(), "kueue_crds": crds}
    cluster = Cluster.objects.create(
        **{
            "slug": slug, "name": slug.title(), "role": "worker", "mode": "kueue",
            "server": "https://x.invalid", "context": "x", "user_kind": "token",
            "kubeconfig_sealed": b"x", "preflight": preflight, **changes,
        }
    )  # fmt: skip
    ClusterHealth.objects.create(cluster=cluster, kueue_version=tag)
    return cluster


def names(features: tuple[Any, ...]) -> set[str]:
    return {feature.name for feature in features}


@pytest.mark.django_db
def test_versions_are_those_of_the_last_check(fleet: SmallFleet):
    add("hub", "v0.18.2", "0.18", role="manager")
    add("east", "v0.19.2", "0.19")
    hub, east = selectors.kueue_versions(fleet.admin)

    assert (hub.slug, hub.version, hub.crds, hub.support) == ("hub", "0.18.2", "0.18", "upgrade it")
    assert hub.lacks == FEATURES
    image = "By the image of kueue-controller-manager (v0.18.2)"
    assert hub.how == f"{image} and the published schemas of its CRDs."
    assert hub.checked_at == NOW
    assert (east.version, east.support, east.lacks, east.changes) == (
        "0.19.2",
        Support.FULL,
        (),
        (),
    )


@pytest.mark.django_db
def test_what_is_not_known_is_called_so(fleet: SmallFleet):
    add("east")
    add("lab", preflight={})
    east, lab = selectors.kueue_versions(fleet.admin)

    assert (east.version, east.crds, east.support) == ("", "", Support.UNKNOWN)
    assert east.how.startswith("Not known: the portal sees no Deployment")
    assert lab.how == "The preflight of this cluster was not run yet."
    assert not (east.lacks or east.changes or lab.lacks or lab.changes)


@pytest.mark.django_db
def test_a_worker_has_nothing_of_managers_alone(fleet: SmallFleet):
    add("east", "v0.18.2")
    [east] = selectors.kueue_versions(fleet.admin)
    of_managers = {feature.name for feature in FEATURES if feature.on_managers}
    assert names(east.lacks) == {feature.name for feature in FEATURES} - of_managers


@pytest.mark.django_db
def test_where_no_kueue_runs_its_crds_count_alone(fleet: SmallFleet):
    """A Deployment that somebody forgot there says nothing."""
    add("east", "v0.18.2", "0.18", mode="portal")
    add("west", "v0.18.2", "0.19", mode="portal")
    east, west = selectors.kueue_versions(fleet.admin)

    assert (east.version, east.support) == ("", Support.UPGRADE)
    assert names(east.lacks) == {"Jobs with up to 18 pod sets"}
    assert (west.support, west.lacks) == (Support.FULL, ())


@pytest.mark.django_db
def test_an_upgrade_changes_what_the_configuration_leaves_open(fleet: SmallFleet):
    add("east", "v0.18.2", kueue_configuration={"waitForPodsReady": {"timeout": "1h"}})
    add("west", "v0.18.2", kueue_configuration={"featureGates": {"LendingLimit": True}})
    east, west = selectors.kueue_versions(fleet.admin)

    assert not any("waitForPodsReady" in change for change in east.changes)
    assert any("waitForPodsReady" in change for change in west.changes)
    assert west.changes[0].startswith("Kueue 0.19 does not start while featureGates names Lending")


@pytest.mark.django_db
def test_a_newer_kueue_is_not_to_be_upgraded(fleet: SmallFleet):
    add("east", "v0.20.1", "0.19")
    [east] = selectors.kueue_versions(fleet.admin)
    assert (east.support, east.lacks, east.changes) == (Support.UNTRIED, (), ())


@pytest.mark.django_db
def test_only_people_who_see_the_platform_are_told(fleet: SmallFleet):
    add("east", "v0.19.2")
    for user in (fleet.owner, UserFactory()):
        with pytest.raises(NotAllowed):
            selectors.kueue_versions(user)


@pytest.mark.django_db
def test_queries_do_not_grow_with_clusters(fleet: SmallFleet):
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            selectors.kueue_versions(fleet.admin)
        return len(queries)

    add("east", "v0.19.2")
    before = cost()
    for number in range(8):
        add(f"more-{number}", "v0.18.2")
    assert cost() == before


@pytest.mark.django_db
def test_a_version_that_is_not_seen_any_more_is_forgotten():
    cluster = add("east", "v0.18.2")
    record_contact(cluster.pk, Contact(NOW))
    assert ClusterHealth.objects.get().kueue_version == "v0.18.2", "nobody asked"
    record_contact(cluster.pk, Contact(NOW, kueue_version=""))
    assert ClusterHealth.objects.get().kueue_version == ""
