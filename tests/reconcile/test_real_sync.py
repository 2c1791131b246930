"""Quota sync on real API servers and a real Kueue, under the generated least rights."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from budgets import services as promises
from budgets.errors import Rejected
from budgets.models import Budget
from clusters import services as enrolment
from clusters.errors import ClusterError, Forbidden, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection, WriteOptions
from clusters.models import Cluster, Drift, ObjectState
from clusters.reconcile.identity import confirm
from clusters.vault import unseal
from tests.builders import SmallFleet, line
from tests.controlplane.fleet import Fleet
from tests.controlplane.queues import condition_of, job
from tests.kube.documents import workload
from tests.reconcile.real_clusters import grant_rights
from tests.reconcile.real_road import WORKERS, Road
from tests.resources import CLUSTER_ROLE
from tests.waiting import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db]


def is_active(client: KubeClient, queue: str) -> bool:
    try:
        return condition_of(client.get(r.CLUSTER_QUEUE, queue), "Active") == "True"
    except NotFound:
        return False


def test_budget_stands_on_a_real_kueue_and_its_road_is_looked_after(
    kueue_road: Road, fleet: SmallFleet
) -> None:
    clients = (kueue_road.manager, *kueue_road.workers)
    fleet.revise(fleet.vision, line("h100", 16, 32), line("h100-spot", 0, 16))
    kueue_road.until(lambda: all(is_active(client, "acme-vision") for client in clients))
    kueue_road.until(kueue_road.is_settled)
    for slug in WORKERS:
        cluster = Cluster.objects.get(slug=slug)
        assert cluster.health.multikueue_active == "True"
        faults = [row for row in cluster.preflight["rows"] if row["state"] == "fault"]
        assert faults == []

    # A hand edit is noticed, named and put back.
    body = {"spec": {"stopPolicy": "Hold"}}
    options = WriteOptions(field_manager="kubectl-edit")
    kueue_road.workers[0].patch(r.CLUSTER_QUEUE, "acme-vision", body, options=options)
    edited_at = time.monotonic()
    kueue_road.until(lambda: Drift.objects.filter(resolution="put back").exists())
    assert time.monotonic() - edited_at < 10
    drift = Drift.objects.get()
    assert (drift.field, drift.manager) == ("spec.stopPolicy", "kubectl-edit")

    # A queue that holds a running job is drained first, and its finalizer is respected.
    document = job("runs", gpus=1, run_for="600s")
    document["metadata"]["namespace"] = "acme-vision"
    kueue_road.manager.create(r.JOB, document)

    def runs() -> bool:
        return any(
            found.get("status", {}).get("active")
            for client in kueue_road.workers
            for found in client.list(r.JOB).items
            if found["metadata"]["name"] == "runs"
        )

    kueue_road.until(runs)
    promises.archive_workspace(fleet.admin, workspace=fleet.vision, reason="over")
    Budget.objects.filter(workspace=fleet.vision).update(held_flavors=[])
    kueue_road.until(lambda: not runs())

    def is_gone() -> bool:
        return not any(
            queue["metadata"]["name"] == "acme-vision"
            for client in clients
            for queue in client.list(r.CLUSTER_QUEUE).items
        )

    kueue_road.until(is_gone)
    for client in clients:
        client.get(r.NAMESPACE, "acme-vision")


def test_generated_rights_forbid_what_the_portal_does_not_need(
    kueue_road: Road, fleet: SmallFleet
) -> None:
    client = kueue_road.hands[1].context.client
    with pytest.raises(Forbidden):
        client.delete(r.NAMESPACE, "default")
    with pytest.raises(Forbidden):
        client.list(r.SECRET)
    with pytest.raises(Forbidden):
        client.create(CLUSTER_ROLE, {"metadata": {"name": "mine"}, "rules": []})
    manager = kueue_road.hands[0].context.client
    with pytest.raises(Forbidden):
        manager.get(r.SECRET, "somebody-elses", namespace="kueue-system")


def in_namespace(name: str, *, suspend: bool = True) -> dict[str, object]:
    document = job(name, gpus=1)
    document["metadata"]["namespace"] = "acme-vision"
    document["spec"]["suspend"] = suspend
    return document


def until_refused(write: Callable[[], object]) -> ClusterError:
    """API servers take a moment to see a new policy."""

    def refusal() -> ClusterError | None:
        try:
            write()
        except ClusterError as error:
            return error
        return None

    found: ClusterError = eventually(refusal, why="it was never refused")
    return found


def test_policies_keep_jobs_under_the_budget_without_a_kueue(
    bare_road: Road, fleet: SmallFleet
) -> None:
    manager, worker = bare_road.manager, bare_road.workers[0]
    bare_road.until(bare_road.is_settled)
    count = iter(range(1000))

    # Manager: a job begins suspended, under the queue, and is managed from there.
    def begun() -> dict[str, object]:
        document = in_namespace(f"try-{next(count)}", suspend=False)
        del document["metadata"]["labels"]  # type: ignore[attr-defined]  # a plain document
        return manager.create(r.JOB, document)

    made = eventually(lambda: (found := begun())["spec"].get("suspend") and found)
    assert made["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"  # type: ignore[index]  # as above
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"  # type: ignore[index]  # as above

    # Manager: nobody but the portal starts it.
    name = made["metadata"]["name"]  # type: ignore[index]  # as above
    start = {"spec": {"suspend": False}}
    refused = until_refused(lambda: manager.patch(r.JOB, name, start, namespace="acme-vision"))
    assert "waits for its quota" in refused.message
    bare_road.hands[0].context.client.patch(r.JOB, name, start, namespace="acme-vision")

    # Worker: no job but through the manager, no bare pod with GPUs.
    refused = until_refused(lambda: worker.create(r.JOB, in_namespace(f"try-{next(count)}")))
    assert "Submit jobs of this workspace on the manager" in refused.message
    pod = {
        "metadata": {"name": "bare", "namespace": "acme-vision"},
        "spec": in_namespace("x")["spec"]["template"]["spec"],  # type: ignore[index]  # as above
    }
    refused = until_refused(lambda: worker.create(r.POD, pod, options=WriteOptions(dry_run=True)))
    assert "count against the budget" in refused.message
    # One by itself waits behind the gate, or it would run beside the budget.
    queued = {"kueue.x-k8s.io/queue-name": "default"}
    named = {**pod, "metadata": {**pod["metadata"], "labels": queued}}
    refused = until_refused(lambda: worker.create(r.POD, named, options=WriteOptions(dry_run=True)))
    assert "scheduling gate kueue.x-k8s.io/admission" in refused.message
    # Nor does anybody else mark what takes quota as a copy, whose use another one would pay.
    taking = workload("acme-vision", "taking")
    worker.create(r.WORKLOAD, taking, options=WriteOptions(dry_run=True))
    marked = {"labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue"}}
    copy = {**taking, "metadata": {**taking["metadata"], **marked}}
    refused = until_refused(
        lambda: worker.create(r.WORKLOAD, copy, options=WriteOptions(dry_run=True))
    )
    assert "marks copies that the manager cluster makes" in refused.message
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    gated = {**named, "spec": {**pod["spec"], "schedulingGates": gates}}  # type: ignore[dict-item]  # as above
    refused = until_refused(lambda: worker.create(r.POD, gated, options=WriteOptions(dry_run=True)))
    assert "Submit jobs of this workspace on the manager" in refused.message


def test_edit_reaches_three_real_clusters_in_under_two_seconds(
    bare_road: Road, fleet: SmallFleet
) -> None:
    bare_road.until(bare_road.is_settled)
    took = []
    clients = (bare_road.manager, *bare_road.workers)
    for edit in range(8):
        ceiling = 40 + edit
        fleet.revise(fleet.speech, line("h100", 8, ceiling))
        begun = time.monotonic()
        for hand in bare_road.hands:
            hand.body.turn()
        for client in clients:
            spec = client.get(r.CLUSTER_QUEUE, "acme-speech")["spec"]
            (entry,) = spec["resourceGroups"][0]["flavors"][0]["resources"]
            assert int(entry["nominalQuota"]) + int(entry["borrowingLimit"]) == ceiling
        took.append(time.monotonic() - begun)
    assert max(took) < 2, took


def test_two_installations_share_real_clusters_in_peace(bare_road: Road, fleet: SmallFleet) -> None:
    bare_road.until(bare_road.is_settled)
    other = {
        "metadata": {
            "name": "theirs",
            "labels": {
                "app.kubernetes.io/managed-by": "gpu-budget-portal",
                "gpu-budget-portal.dev/installation": "another",
            },
        },
        "spec": {},
    }
    worker = bare_road.workers[0]
    worker.create(r.COHORT, other)
    bare_road.hands[1].sweep()
    bare_road.hands[1].settle()
    assert worker.get(r.COHORT, "theirs")["spec"] == {}
    assert not ObjectState.objects.filter(name="theirs").exists()
    worker.delete(r.COHORT, "theirs")


def test_policies_of_two_installations_keep_neither_off_its_workspaces(
    bare_road: Road, fleet: SmallFleet, bare_fleet: Fleet, settings
) -> None:
    """Both portals use the same accounts of the cluster, which policies cannot tell apart."""
    bare_road.until(bare_road.is_settled)
    ours, theirs = settings.PORTAL_INSTALLATION, f"t{time.monotonic_ns() % 10**9}"
    settings.PORTAL_INSTALLATION = theirs
    grant_rights(bare_fleet.workers[0], role="worker", mode="portal")
    settings.PORTAL_INSTALLATION = ours
    worker = bare_road.workers[0]
    # In force as soon as they refuse what ours do not speak of.
    marks = {"gpu-budget-portal.dev/installation": theirs}
    worker.create(r.NAMESPACE, {"metadata": {"name": theirs, "labels": marks}})
    asks = in_namespace("x")["spec"]["template"]["spec"]  # type: ignore[index]  # a plain document
    pod = {"metadata": {"name": "bare", "namespace": theirs}, "spec": asks}
    until_refused(lambda: worker.create(r.POD, pod, options=WriteOptions(dry_run=True)))
    fleet.revise(fleet.vision, line("h100", 8, 24))
    worker.delete(r.LOCAL_QUEUE, "default", namespace="acme-vision")

    def is_made_again() -> bool:
        listed = worker.list(r.LOCAL_QUEUE, Selection(namespace="acme-vision")).items
        return bool(listed) and bare_road.is_settled()

    bare_road.until(is_made_again)


def test_namespace_that_was_there_before_says_how_an_admin_hands_it_over(
    bare_road: Road, fleet: SmallFleet
) -> None:
    bare_road.until(bare_road.is_settled)
    name, worker = f"acme-b{time.monotonic_ns() % 10**9}", bare_road.workers[0]
    worker.create(r.NAMESPACE, {"metadata": {"name": name, "labels": {"team": "before"}}})
    made = promises.create_workspace(
        fleet.admin, account=fleet.acme, slug=name.removeprefix("acme-"), name="Before",
        home_flavor=fleet.flavors["h100"],
    )  # fmt: skip
    fleet.revise(made, line("h100", 0, 8))
    row = ObjectState.objects.filter(cluster__slug=WORKERS[0], kind="Namespace", name=name)
    bare_road.until(lambda: row.exclude(state="synced").exists())
    said = row.get()
    assert (said.state, said.message.count(". ")) == ("failed", 1)
    # The very words, as an admin would run them.
    command = said.message.partition("kubectl label namespace ")[2]
    namespace, _, label = command.partition(" ")
    key, _, value = label.partition("=")
    assert worker.get(r.NAMESPACE, name)["metadata"]["labels"].get(key) is None
    worker.patch(r.NAMESPACE, namespace, {"metadata": {"labels": {key: value}}})
    bare_road.until(bare_road.is_settled)
    assert worker.get(r.NAMESPACE, name)["metadata"]["labels"]["team"] == "before"
    assert worker.get(r.LOCAL_QUEUE, "default", namespace=name)


def test_a_real_cluster_is_registered_once(bare_road: Road, fleet: SmallFleet) -> None:
    known = Cluster.objects.get(slug=WORKERS[0])
    confirm(known.slug, bare_road.workers[0])
    known.refresh_from_db()
    assert known.uid == bare_road.workers[0].get(r.NAMESPACE, "kube-system")["metadata"]["uid"]
    with pytest.raises(Rejected) as rejected:
        enrolment.register_cluster(
            None,
            slug="twin",
            name="Twin",
            role="worker",
            mode="portal",
            kubeconfig=unseal(known.kubeconfig_sealed),
        )
    assert known.slug in rejected.value.faults[0].message
