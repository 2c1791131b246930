"""A cluster of its own: jobs are submitted there and run there, alone or beside a fleet."""

from __future__ import annotations

import pytest
from django.utils import timezone

from budgets import services as promises
from budgets.errors import NotAllowed, Rejected
from budgets.models import Capacity
from budgets.plan import ClusterPlace, Promises, plan_quota
from budgets.selectors import promises_in_force
from clusters import selectors, services
from clusters.manifests.names import PORTAL_ACCOUNT
from clusters.manifests.policies import policy_names
from clusters.manifests.translate import render
from clusters.models import AppliedGeneration, Cluster
from clusters.reconcile.claims import roles_for
from clusters.selectors.carried import standing_of
from clusters.selectors.maintenance import covered_workers
from clusters.selectors.places import (
    flavors_elsewhere,
    homes_of,
    policy_wish,
    site_of,
    submitted_kinds,
)
from clusters.selectors.previews import changed_quota, preview_manifests
from tests.builders import SmallFleet, line
from tests.builders import promises as wishes
from tests.reconcile.fleet_rows import dev_server, register

pytestmark = pytest.mark.django_db
ALONE = ClusterPlace("lab", is_manager=False, is_single=True)
JOBSET = {"integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}}


def lone_wish(**more: object) -> Promises:
    return (
        wishes()
        .flavor("h100")
        .account("acme")
        .workspace(
            "acme", "vision", line("h100", 8, 16, 4), split={("h100", "lab"): (8, 4)}, **more
        )
        .build()
    )


def quota_of(document: dict) -> list[str]:
    [flavor] = document["spec"]["resourceGroups"][0]["flavors"]
    [amount] = flavor["resources"]
    return [amount[name] for name in ("nominalQuota", "borrowingLimit", "lendingLimit")]


def test_a_cluster_of_its_own_carries_the_whole_line_and_nothing_of_multikueue() -> None:
    documents = render(plan_quota(lone_wish(), ALONE), site=site_of(is_manager=False, generation=1))
    [queue] = [row for row in documents if row["kind"] == "ClusterQueue"]
    assert quota_of(queue) == ["8", "8", "4"]
    assert "admissionChecksStrategy" not in queue["spec"]
    kinds = {row["kind"] for row in documents}
    assert kinds == {"Namespace", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue"}


def test_it_asks_for_the_check_of_a_spend_rule_as_a_manager_does() -> None:
    wish = lone_wish()
    capped = Promises(
        wish.flavors,
        wish.accounts,
        wish.pools,
        tuple(
            type(row)(**{**{n: getattr(row, n) for n in row.__slots__}, "checks_spend": True})
            for row in wish.workspaces
        ),
    )
    documents = render(plan_quota(capped, ALONE), site=site_of(is_manager=False, generation=1))
    [queue] = [row for row in documents if row["kind"] == "ClusterQueue"]
    checks = queue["spec"]["admissionChecksStrategy"]["admissionChecks"]
    [check] = [row for row in documents if row["kind"] == "AdmissionCheck"]
    assert checks == [{"name": check["metadata"]["name"]}]
    assert "multikueue" not in check["spec"]["controllerName"]


def test_a_flavor_that_stands_elsewhere_has_no_quota_here() -> None:
    """Or its ceiling could be reached in both places."""
    place = ClusterPlace("hub", True, elsewhere=frozenset({"h100"}))
    plan = plan_quota(lone_wish(), place)
    [queue] = plan.queues
    numbers = queue.quotas["h100"]
    assert (numbers.nominal, numbers.borrowing_limit, numbers.lending_limit) == (0, 0, 0)
    [cohort] = plan.cohorts
    assert cohort.quotas["h100"].nominal == 0


@pytest.fixture
def lab(fleet: SmallFleet) -> Cluster:
    """A manager, gpu-east and gpu-west of the fleet, and the single cluster lab beside them."""
    for slug, role in (("hub", "manager"), ("gpu-east", "worker"), ("gpu-west", "worker")):
        register(slug, "none", role=role, mode="portal")
    return register("lab", "none", role="single", mode="kueue")


def active() -> list[Cluster]:
    return list(Cluster.objects.active())


def test_each_flavor_stands_in_one_fleet(fleet: SmallFleet, lab: Cluster) -> None:
    flavor = promises.create_flavor(None, slug="lab-h100", name="Lab")
    services.state_capacity(fleet.admin, cluster="lab", flavor=flavor, gpus=16)
    found = flavors_elsewhere(active())
    assert found["lab"] == {"h100", "h100-spot", "a100", "l4"}
    assert found["hub"] == found["gpu-east"] == found["gpu-west"] == {"lab-h100"}


def test_with_one_fleet_nothing_is_asked(fleet: SmallFleet, django_assert_num_queries) -> None:
    alone = [Cluster(slug="lab", role="single")]
    with django_assert_num_queries(0):
        assert flavors_elsewhere(alone) == {}


def test_capacity_of_a_flavor_of_another_fleet_is_refused(fleet: SmallFleet, lab: Cluster) -> None:
    with pytest.raises(Rejected) as rejected:
        services.state_capacity(fleet.admin, cluster="lab", flavor=fleet.flavors["h100"], gpus=8)
    [fault] = rejected.value.faults
    assert fault.code == "stands_elsewhere"
    assert "Make another flavor" in fault.message
    assert not Capacity.objects.filter(cluster="lab").exists()
    with pytest.raises(NotAllowed):
        services.state_capacity(fleet.owner, cluster="lab", flavor=fleet.flavors["l4"], gpus=8)


def test_a_budget_over_both_counts_each_ceiling_once(fleet: SmallFleet, lab: Cluster) -> None:
    """The fleet's manager and the single cluster together allow what was promised, no more."""
    flavor = promises.create_flavor(None, slug="lab-h100", name="Lab", gpus_per_node=8)
    services.state_capacity(fleet.admin, cluster="lab", flavor=flavor, gpus=16)
    before = promises_in_force()
    fleet.revise(fleet.vision, line("h100", 8, 16), line("lab-h100", 8, 16))
    documents = changed_quota(before, promises_in_force())
    most: dict[str, int] = {}
    for slug in ("hub", "lab"):
        [queue] = [
            row
            for row in documents[slug]
            if row["kind"] == "ClusterQueue" and row["metadata"]["name"] == "acme-vision"
        ]
        for group in queue["spec"]["resourceGroups"]:
            for found in group["flavors"]:
                if found["name"] != "host":
                    [amount] = found["resources"]
                    reach = int(amount["nominalQuota"]) + int(amount["borrowingLimit"])
                    most[found["name"]] = most.get(found["name"], 0) + reach
    assert most == {"h100": 16, "lab-h100": 16}


def test_an_owner_is_shown_what_changes_where_jobs_are_submitted(
    fleet: SmallFleet, lab: Cluster
) -> None:
    flavor = promises.create_flavor(None, slug="lab-h100", name="Lab", gpus_per_node=8)
    services.state_capacity(fleet.admin, cluster="lab", flavor=flavor, gpus=16)
    before = promises_in_force()
    fleet.revise(fleet.vision, line("h100", 8, 16))
    shown = preview_manifests(fleet.owner, before, promises_in_force())
    assert {(row.cluster, *sorted(change.kind for change in row.changes)) for row in shown} == {
        ("hub", "ClusterQueue", "Cohort", "LocalQueue", "Namespace"),
        ("lab", "Cohort"),
    }
    fleet.revise(fleet.vision, line("h100", 8, 16), line("lab-h100", 8, 16))
    shown = preview_manifests(fleet.owner, before, promises_in_force())
    [lab_too] = [row for row in shown if row.cluster == "lab"]
    assert "ClusterQueue" in {change.kind for change in lab_too.changes}


def carried(fleet: SmallFleet) -> dict[str, set[str]]:
    """Cluster → namespaces that a first sync makes there."""
    found = {}
    clusters = active()
    homes = homes_of(clusters)
    for row in clusters:
        places = standing_of(row, workers=["gpu-east", "gpu-west"], homes=homes)
        documents = places.documents(promises_in_force())
        names = {row["metadata"]["name"] for row in documents if row["kind"] == "Namespace"}
        queues = {row["metadata"]["name"] for row in documents if row["kind"] == "ClusterQueue"}
        assert names == queues
        found[row.slug] = names
    return found


def test_a_cluster_carries_queues_of_those_whose_gpus_it_has(
    fleet: SmallFleet, lab: Cluster
) -> None:
    """Of a hundred clusters each would have the namespaces of everybody else's workspaces."""
    flavor = promises.create_flavor(None, slug="lab-h100", name="Lab", gpus_per_node=8)
    services.state_capacity(fleet.admin, cluster="lab", flavor=flavor, gpus=16)
    nobodys = carried(fleet)
    everybody = {"acme-vision", "acme-speech", "globex-search"}
    assert nobodys == {"hub": everybody, "gpu-east": everybody, "gpu-west": everybody, "lab": set()}
    fleet.revise(fleet.vision, line("lab-h100", 8, 16))
    fleet.revise(fleet.speech, line("h100", 8, 16), line("lab-h100", 8, 8))
    found = carried(fleet)
    assert found["lab"] == {"acme-vision", "acme-speech"}
    assert found["hub"] == found["gpu-west"] == {"acme-speech", "globex-search"}


def test_a_budget_does_not_wait_for_a_cluster_that_need_not_carry_it(
    fleet: SmallFleet, lab: Cluster
) -> None:
    def waits_for() -> list[str]:
        return [row.cluster for row in selectors.sync_state(fleet.owner, fleet.vision)]

    assert waits_for() == ["hub", "gpu-east", "gpu-west"]
    flavor = promises.create_flavor(None, slug="lab-h100", name="Lab", gpus_per_node=8)
    services.state_capacity(fleet.admin, cluster="lab", flavor=flavor, gpus=16)
    fleet.revise(fleet.vision, line("lab-h100", 8, 16))
    assert waits_for() == ["lab"]
    AppliedGeneration.objects.create(
        cluster=Cluster.objects.get(slug="hub"),
        subject="budget:acme-vision",
        observed_generation=1,
        applied_at=timezone.now(),
    )
    assert waits_for() == ["hub", "lab"], "one that has it gets every change of it"


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        ("portal", ("quota", "usage", "admission", "spend")),
        ("kueue", ("quota", "usage", "shadow", "spend")),
    ],
)
def test_its_shifts_are_those_of_admission_and_spend_not_of_dispatch(
    mode: str, want: tuple[str, ...]
) -> None:
    assert roles_for(Cluster(slug="lab", role="single", mode=mode)) == want


def test_all_kinds_of_jobs_that_its_own_configuration_names_may_queue(lab: Cluster) -> None:
    lab.kueue_configuration = JOBSET
    lab.save()
    assert [kind.kind for kind in submitted_kinds()] == ["JobSet"]
    wish = policy_wish(lab)
    assert wish.takes_jobs
    assert [kind.kind for kind in wish.post.kinds] == ["JobSet"]
    names = {name for _, name in policy_names(wish)}
    # Nobody gives his own jobs the mark of a copy, which is billed to somebody else or nobody.
    assert any(name.endswith("-copies-by-manager") for name in names)


def test_a_window_over_a_flavor_everywhere_covers_it(fleet: SmallFleet, lab: Cluster) -> None:
    assert set(covered_workers(None)) == {"gpu-east", "gpu-west", "lab"}


def test_it_has_no_token_of_multikueue_and_no_guard(fleet: SmallFleet, lab: Cluster) -> None:
    with pytest.raises(Rejected, match="Only workers have such a token"):
        services.rotate_multikueue_token(fleet.admin, cluster=lab)
    with pytest.raises(Rejected, match="nothing is dispatched there"):
        services.set_guard(fleet.admin, cluster=lab, guard="cure", reason="test")
    accounts = [row for row in selectors.rights_documents(lab) if row["kind"] == "ServiceAccount"]
    assert [row["metadata"]["name"] for row in accounts] == [PORTAL_ACCOUNT]


@pytest.mark.embedded
def test_it_is_registered_beside_a_fleet_of_the_other_mode(fleet: SmallFleet) -> None:
    """The matrix of modes is about who dispatches to whom."""
    register("hub", "none", role="manager", mode="kueue")
    with dev_server("lab") as server:
        made = services.register_cluster(
            fleet.admin,
            slug="lab",
            name="Lab",
            role="single",
            mode="portal",
            kubeconfig=server.kubeconfig,
        )
    assert made.is_single
    assert made.multikueue_token_expires_at is None
    assert made.preflight["modes_on_offer"] == ["portal"]


def test_a_fleet_has_one_manager_and_any_number_of_clusters_of_their_own_beside_it(
    lab: Cluster,
) -> None:
    register("lab-2", "none", role="single")
    with pytest.raises(Exception, match=r"one_manager|UNIQUE"):
        register("hub-2", "none", role="manager")


@pytest.mark.embedded
def test_a_registered_cluster_keeps_its_role_and_the_way_to_another_is_told(
    fleet: SmallFleet,
) -> None:
    with dev_server("lab") as server:
        wish = {"name": "Lab", "mode": "portal", "kubeconfig": server.kubeconfig}
        services.register_cluster(fleet.admin, slug="lab", role="single", **wish)
        with pytest.raises(Rejected) as rejected:
            services.register_cluster(fleet.admin, slug="hub", role="manager", **wish)
        with pytest.raises(Rejected) as other:
            services.register_cluster(fleet.admin, slug="node", role="worker", **wish)
    assert "To make a manager of Lab, change its role on its page" in str(rejected.value)
    assert "to make a worker of the single Lab, de-register it first" in str(other.value)
