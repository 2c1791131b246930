"""A change of role: who may, what is in the way and the way out, and what is shown before."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest
from django.utils import timezone

from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry, Flavor
from clusters import services
from clusters.devcluster.server import kubeconfig_text
from clusters.documents.queues import FLEET_QUEUE, dispatched_queue
from clusters.manifests import guards
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post
from clusters.manifests.wish import PolicyWish
from clusters.models import Cluster, ObjectState, WorkloadState
from clusters.reconcile.claims import roles_for
from clusters.reconcile.context import registered
from clusters.reconcile.usage.counting import queue_sights
from clusters.reconcile.usage.states import held_on
from clusters.selectors.places import homes_of, policy_wish, submitted_on
from clusters.services import roles
from clusters.services.preflight.checks import PreflightTable
from tests.builders import SmallFleet, line
from tests.reconcile.fleet_rows import register

pytestmark = pytest.mark.django_db
HOME = "gpu-east"


@pytest.fixture
def home(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A single cluster that answers."""
    reached = PreflightTable(timezone.now(), ())
    monkeypatch.setattr(PreflightTable, "is_reachable", True)
    monkeypatch.setattr(roles, "examine", mock.Mock(return_value=reached))
    kubeconfig = kubeconfig_text(HOME, "https://gpu-east.example.com:6443", "secret")
    return register(HOME, kubeconfig, role="single", mode="portal")


def become(fleet: SmallFleet, role: str) -> Cluster:
    row = Cluster.objects.get(slug=HOME)
    return services.change_role(fleet.admin, cluster=row, role=role, reason="test")


def refused(fleet: SmallFleet, role: str) -> str:
    with pytest.raises(Rejected) as rejected:
        become(fleet, role)
    return str(rejected.value)


def test_a_change_of_role_is_for_admins_with_a_reason_and_logged(
    fleet: SmallFleet, home: Cluster
) -> None:
    with pytest.raises(NotAllowed):
        services.change_role(fleet.owner, cluster=home, role="manager", reason="test")
    with pytest.raises(NotAllowed):
        services.preview_role_change(fleet.owner, cluster=home, role="manager")
    with pytest.raises(Rejected, match="Say why"):
        services.change_role(fleet.admin, cluster=home, role="manager", reason=" ")
    assert become(fleet, "manager_runs_jobs").is_manager
    entry = AuditEntry.objects.get(action="cluster.role")
    assert entry.before == {"role": "single", "own_queue": ""}
    assert entry.after == {"role": "manager", "own_queue": "open"}
    # Asked for again, nothing happens.
    become(fleet, "manager_runs_jobs")
    assert AuditEntry.objects.filter(action="cluster.role").count() == 1


def worker(fleet: SmallFleet) -> None:
    register("gpu-west", "none", mode="portal")


def job(phase: str, queue: str = FLEET_QUEUE) -> Callable[[SmallFleet], None]:
    def make(fleet: SmallFleet) -> None:
        WorkloadState.objects.create(
            cluster=Cluster.objects.get(slug=HOME),
            uid="u",
            namespace="acme-vision",
            name="train",
            queue=queue,
            phase=phase,
            created_at=timezone.now(),
        )

    return make


def secret(fleet: SmallFleet) -> None:
    ObjectState.objects.create(
        cluster=Cluster.objects.get(slug=HOME),
        kind="Secret",
        name="multikueue-gpu-west",
        state="synced",
        changed_at=timezone.now(),
    )


def leaving(fleet: SmallFleet) -> None:
    Cluster.objects.update(state="draining")


@pytest.mark.parametrize(
    ("obstacle", "words"),
    [
        pytest.param(worker, "De-register every worker first", id="a worker"),
        pytest.param(job("running"), "acme-vision/train is in queue fleet", id="a running job"),
        pytest.param(job("pending"), "Let these jobs end", id="a waiting job"),
        pytest.param(secret, "Try again in a minute", id="a credential"),
        pytest.param(leaving, "is being de-registered", id="it leaves"),
    ],
)
def test_what_is_in_the_way_back_is_named_with_the_way_out(
    fleet: SmallFleet, home: Cluster, obstacle: Callable[[SmallFleet], None], words: str
) -> None:
    become(fleet, "manager_runs_jobs")
    obstacle(fleet)
    assert words in refused(fleet, "single")
    assert Cluster.objects.get(slug=HOME).is_manager


@pytest.mark.parametrize("made", [job("running", "default"), job("finished")])
def test_jobs_that_run_by_themselves_or_are_over_are_not_in_the_way(
    fleet: SmallFleet, home: Cluster, made: Callable[[SmallFleet], None]
) -> None:
    become(fleet, "manager")
    made(fleet)
    assert become(fleet, "single").is_single


def test_there_is_one_manager_and_single_clusters_stand_beside_it(
    fleet: SmallFleet, home: Cluster
) -> None:
    register("hub", "none", role="manager", mode="portal")
    assert "can stay a single cluster beside it" in refused(fleet, "manager_runs_jobs")
    with pytest.raises(Rejected, match="There is already a manager"):
        services.preview_role_change(fleet.admin, cluster=home, role="manager")


@pytest.mark.parametrize(
    ("role", "words"),
    [("worker", "is a worker"), ("manager", "its queue default sends jobs to workers")],
)
def test_a_cluster_that_never_was_single_keeps_its_role(
    fleet: SmallFleet, home: Cluster, role: str, words: str
) -> None:
    other = register("other", "none", role=role, mode="portal")
    with pytest.raises(Rejected, match=words):
        services.change_role(fleet.admin, cluster=other, role="single", reason="test")


def test_a_cluster_that_is_not_written_to_keeps_its_role(fleet: SmallFleet, home: Cluster) -> None:
    Cluster.objects.update(writes_enabled=False)
    assert "Switch it on" in refused(fleet, "manager")
    Cluster.objects.update(writes_enabled=True, blocked_reason="newer")
    assert "Decide that first" in refused(fleet, "manager")
    assert "A cluster can be single" in refused(fleet, "worker")


def test_running_shifts_begin_anew_and_dispatch_comes(fleet: SmallFleet, home: Cluster) -> None:
    before = registered(HOME)
    become(fleet, "manager_runs_jobs")
    after = registered(HOME)
    assert before is not None
    assert after is not None
    assert not after.is_same_access(before)
    assert "dispatch" in roles_for(Cluster.objects.get(slug=HOME))
    become(fleet, "manager")
    again = registered(HOME)
    assert again is not None
    assert again.is_same_access(after), "only its queues are held"


def test_a_preview_names_each_object_and_writes_nothing(fleet: SmallFleet, home: Cluster) -> None:
    fleet.revise(fleet.vision, line("h100", 8, 16))
    [place] = services.preview_role_change(fleet.admin, cluster=home, role="manager_runs_jobs")
    assert place.cluster == HOME
    made = {(row.kind, row.name) for row in place.changes if row.words == "is made"}
    assert ("ClusterQueue", dispatched_queue("acme-vision")) in made
    assert ("LocalQueue", f"acme-vision/{FLEET_QUEUE}") in made
    assert ("AdmissionCheck", "gpu-budget-portal") in made
    assert not [row for row in place.changes if row.name == "acme-vision"], "the own queue stays"
    assert Cluster.objects.get(slug=HOME).is_single
    [held] = [
        row
        for row in services.preview_role_change(fleet.admin, cluster=home, role="manager")[
            0
        ].changes
        if row.name == "acme-vision"
    ]
    assert held.words == "spec.stopPolicy: None → Hold"


def test_a_flavor_stays_where_its_gpus_were_first(fleet: SmallFleet, home: Cluster) -> None:
    """The worker has GPUs of h100, too; without this the budget's own queue would lose it."""
    become(fleet, "manager_runs_jobs")
    register("gpu-west", "none", mode="portal")
    homes = homes_of(Cluster.objects.active())
    assert homes.flavors == {"h100": HOME, "h100-spot": HOME, "l4": HOME, "a100": ""}
    assert homes.elsewhere(HOME) == frozenset()
    assert homes.elsewhere("gpu-west") == {"h100", "h100-spot", "l4"}
    assert [row.slug for row in submitted_on(["a100"])] == [HOME]


def test_what_a_manager_dispatched_is_not_in_use_on_its_own_gpus(
    fleet: SmallFleet, home: Cluster
) -> None:
    """Else its nodes, and its own queue, would seem to disagree with the books."""
    become(fleet, "manager_runs_jobs")
    for queue, uid, flavor in (("default", "own", "h100"), (FLEET_QUEUE, "sent", "a100")):
        WorkloadState.objects.create(
            cluster=home,
            uid=uid,
            namespace="acme-vision",
            name=uid,
            queue=queue,
            phase="running",
            gpus={flavor: 8},
            created_at=timezone.now(),
        )
    assert held_on(home.pk) == {"h100": 8}
    used = [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "8"}]}]
    queues = [
        {"metadata": {"name": name}, "spec": {}, "status": {"flavorsUsage": used}}
        for name in ("acme-vision", dispatched_queue("acme-vision"))
    ]
    flavors = {"h100": ("nvidia.com/gpu", Flavor.ClockStart.ADMITTED)}
    sights = queue_sights(queues, flavors, at=timezone.now())
    assert [sight.queue for sight in sights] == ["acme-vision"]


def job_guards(**post: bool) -> list[str]:
    wish = PolicyWish(Post(True, True, "ours", **post))
    return [guard.message for guard in guards.queued_kind(wish, guards._JOB).guards]


def test_policies_keep_jobs_for_workers_out_of_the_own_queue(
    fleet: SmallFleet, home: Cluster
) -> None:
    assert any("submitted to queue fleet" in text for text in job_guards(has_own_queue=True))
    assert not any("queue fleet" in text for text in job_guards())
    become(fleet, "manager_runs_jobs")
    documents = policy_documents(policy_wish(Cluster.objects.get(slug=HOME)))
    [starts] = [row for row in documents if row["kind"] == "MutatingAdmissionPolicy"]
    [change] = starts["spec"]["mutations"]
    expression = change["applyConfiguration"]["expression"]
    sent, _, own = expression.partition(" : (")
    assert "== 'fleet'" in sent
    assert "managedBy" in sent
    assert "managedBy" not in own
