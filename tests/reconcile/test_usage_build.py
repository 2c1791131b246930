"""Building states and intervals: the lock per job, what cannot be read, what is refused."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, connection

from budgets import services
from budgets.models import Discrepancy, Interval, MeterState, UsageRecord
from budgets.services.usage.reconciliation import note_problems
from budgets.texts import read_json
from budgets.units import MOST_COUNTED_GPUS
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.runtime.faults import Faults
from clusters.reconcile.usage import build as building
from clusters.reconcile.usage import record
from clusters.reconcile.usage.build import Source, build
from clusters.reconcile.usage.reading import EventReader
from clusters.reconcile.usage.record import Backlog, Observation, event_of, store_events
from tests.builders import START, SmallFleet, hours
from tests.reconcile.fleet_rows import register
from tests.reconcile.usage_hand import ORIGIN, build_next, usage_hand
from tests.waiting import PATIENCE_S

GPU = "nvidia.com/gpu"


@pytest.fixture
def hub(fleet: SmallFleet) -> Cluster:
    return register("hub", "apiVersion: v1", role="manager")


@pytest.fixture
def east(fleet: SmallFleet) -> Cluster:
    return register("gpu-east", "apiVersion: v1")


def source(cluster: Cluster) -> Source:
    return Source(cluster.pk, cluster.slug, frozenset({GPU}))


def recorded(cluster: Cluster, uid: str, version: int, **facts: Any) -> WorkloadEvent:
    """An event of workload acme-vision/train; `admitted` and `finished` are hours."""
    conditions = []
    for kind, at in facts.get("conditions", {}).items():
        since = at if isinstance(at, str) else hours(at).isoformat()
        conditions.append({"type": kind, "status": "True", "lastTransitionTime": since})
    status: dict[str, Any] = {"conditions": conditions}
    if facts.get("flavor"):
        assignment = {
            "name": "main",
            "count": 1,
            "flavors": {GPU: facts["flavor"]},
            "resourceUsage": {GPU: facts.get("gpus", "8")},
        }
        status["admission"] = {"clusterQueue": "acme-vision", "podSetAssignments": [assignment]}
    if facts.get("worker"):
        status["clusterName"] = facts["worker"]
    name, namespace = facts.get("name", "train"), facts.get("namespace", "acme-vision")
    return WorkloadEvent.objects.create(
        cluster=cluster.slug,
        uid=uid,
        resource_version=str(version),
        type=facts.get("type", "SEEN"),
        namespace=namespace,
        name=name,
        observed_at=hours(48) + timedelta(minutes=version),
        digest="0" * 64,
        payload={
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "creationTimestamp": START.isoformat(),
                "labels": {ORIGIN: facts.get("origin", "test")} if facts.get("is_copy") else {},
                "annotations": {},
                "ownerReferences": facts.get("owners", []),
            },
            "spec": {
                "podSets": [{"name": "main", "count": 1, "gpus": 8}],
                **facts.get("spec", {}),
            },
            "status": status,
        },
    )


RUNS = {"QuotaReserved": 1, "Admitted": 1}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("facts", "want_phase"),
    [
        pytest.param({}, "pending", id="new"),
        pytest.param(
            {"conditions": {"QuotaReserved": 1}, "flavor": "h100"}, "reserved", id="quota"
        ),
        pytest.param({"conditions": RUNS, "flavor": "h100"}, "running", id="admitted"),
        pytest.param(
            {"conditions": {**RUNS, "Evicted": 2}, "flavor": "h100"}, "evicted", id="stopping"
        ),
        pytest.param({"conditions": {"Evicted": 2}}, "pending", id="stopped"),
        pytest.param({"conditions": {**RUNS, "Finished": 2}}, "finished", id="finished"),
        pytest.param(
            {"conditions": {**RUNS, "Finished": 2}, "type": "DELETED"},
            "finished",
            id="cleaned up after its end",
        ),
        pytest.param({"conditions": RUNS, "type": "DELETED"}, "gone", id="deleted"),
        pytest.param({"conditions": RUNS, "type": "MISSING"}, "gone", id="missing"),
    ],
)
def test_build_phase(hub: Cluster, facts: dict[str, Any], want_phase: str) -> None:
    recorded(hub, "u", 1, **facts)
    build(source(hub), ["u"])
    assert WorkloadState.objects.get(uid="u").phase == want_phase


@pytest.mark.django_db
def test_build_newest_state_wins_whatever_the_order(hub: Cluster) -> None:
    recorded(hub, "u", 30, conditions={**RUNS, "Finished": 2})
    recorded(hub, "u", 9, conditions=RUNS, flavor="h100")
    build(source(hub), ["u"])
    assert WorkloadState.objects.get(uid="u").phase == "finished"


@pytest.mark.django_db
def test_build_again_writes_nothing(east: Cluster) -> None:
    recorded(east, "u", 1, conditions=RUNS, flavor="h100")
    build(source(east), ["u"])
    before = Interval.objects.get(uid="u"), WorkloadState.objects.get(uid="u").updated_at
    build(source(east), ["u"])
    after = Interval.objects.get(uid="u"), WorkloadState.objects.get(uid="u").updated_at
    assert (before[0].updated_at, before[1]) == (after[0].updated_at, after[1])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        pytest.param("a few", "'a few' is not a whole number of devices", id="no number"),
        pytest.param(str(2**63), f"nobody has {2**63} devices", id="more than a column holds"),
    ],
)
def test_build_unreadable_event_keeps_the_rest_and_is_named(
    east: Cluster, gpus: str, why: str
) -> None:
    recorded(east, "good", 1, conditions=RUNS, flavor="h100")
    recorded(east, "bad", 2, conditions=RUNS, flavor="h100", gpus=gpus, name="other")
    found = build(source(east), ["good", "bad"])
    assert Interval.objects.get().uid == "good"
    [problem] = found.problems
    assert (problem.uid, problem.code, problem.is_blocking) == ("bad", "bad_document", True)
    assert why in problem.message


NONSENSE = "yesterday"
SEEN = {version: hours(48) + timedelta(minutes=version) for version in range(5)}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("states", "want"),
    [
        pytest.param(
            [
                {"Admitted": NONSENSE},
                {"Admitted": NONSENSE},
                {"Admitted": NONSENSE, "Finished": 49},
            ],
            (SEEN[0], hours(49)),
            id="admitted at no time",
        ),
        pytest.param(
            [
                {"QuotaReserved": NONSENSE, "Admitted": NONSENSE},
                {"QuotaReserved": NONSENSE, "Admitted": NONSENSE},
                {"QuotaReserved": NONSENSE, "Admitted": NONSENSE, "Finished": 49},
            ],
            (SEEN[0], hours(49)),
            id="in each state the same admission",
        ),
        pytest.param(
            [{"Admitted": 1}, {"Admitted": 1, "Finished": NONSENSE}, {"Finished": NONSENSE}],
            (hours(1), SEEN[1]),
            id="ended at no time",
        ),
        pytest.param(
            [{"Admitted": 1, "Odd": "0001-01-01T00:00:00Z"}, {"Admitted": 1, "Finished": 2}],
            (hours(1), hours(2)),
            id="a time that tells nothing",
        ),
    ],
)
def test_nonsense_in_a_time_is_metered_by_what_was_seen_and_told_to_finance(
    east: Cluster, states: list[dict[str, Any]], want: tuple[Any, Any]
) -> None:
    for version, conditions in enumerate(states):
        conditions = {"QuotaReserved": 1} | conditions
        recorded(east, "u", version, flavor="h100", conditions=conditions)
    found = build(source(east), ["u"])
    row = Interval.objects.get(uid="u", kind=Interval.Kind.BILLABLE)
    assert (row.start, row.end) == want
    spans = record.seen_spans(east.slug, ["u"])
    note_problems(cluster=east.slug, uids=["u"], problems=found.problems, spans=spans)
    [told] = Discrepancy.objects.filter(kind=Discrepancy.Kind.HISTORY)
    assert told.subject == "u"
    assert "bad_document" in told.message


@pytest.mark.django_db
def test_build_refused_workload_does_not_hold_the_others(
    fleet: SmallFleet, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uid in ("bad", "good", "fine"):
        recorded(east, uid, 1, conditions=RUNS, flavor="h100", name=uid)
    real = building.build

    def refusing(at: Source, uids: Any) -> Any:
        if "bad" in uids:
            raise DataError("value too long")
        return real(at, uids)

    monkeypatch.setattr(building, "build", refusing)
    body = body_of(east)
    body._build_new()
    assert set(WorkloadState.objects.values_list("uid", flat=True)) == {"good", "fine"}
    assert "value too long" in body.faults.standing.says


def body_of(cluster: Cluster) -> Any:
    """A body that never talks to its cluster."""
    from types import SimpleNamespace

    from clusters.reconcile.context import registered
    from clusters.reconcile.usage import UsageBody
    from tests.reconcile.usage_hand import ago

    facts = registered(cluster.slug).facts  # type: ignore[union-attr]  # it was just registered
    return UsageBody(
        SimpleNamespace(  # type: ignore[arg-type]  # what is not used is left out
            cluster=facts,
            client=None,
            pulse=None,
            now=lambda: ago(0),
            stop=None,
            fence=lambda: None,
            role="usage",
            faults=Faults(cluster.slug),
        )
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("origin", "mode", "configured", "want"),
    [
        pytest.param("portal-7", "portal", "", (True, "undecided"), id="the portal's"),
        pytest.param("multikueue", "portal", "", (False, "billable"), id="a Kueue's beside it"),
        pytest.param("multikueue", "kueue", "", (True, "undecided"), id="our Kueue's"),
        pytest.param("ours", "kueue", "ours", (True, "undecided"), id="as it is set"),
        pytest.param("multikueue", "kueue", "ours", (False, "billable"), id="another Kueue's"),
    ],
)
def test_only_copies_of_this_fleets_managers_wait_for_a_name(
    hub: Cluster,
    east: Cluster,
    settings: Any,
    origin: str,
    mode: str,
    configured: str,
    want: tuple[bool, str],
) -> None:
    settings.PORTAL_INSTALLATION = "portal-7"
    section = {"multiKueue": {"origin": configured}} if configured else {}
    Cluster.objects.filter(pk=hub.pk).update(mode=mode, kueue_configuration=section)
    recorded(east, "u", 1, conditions=RUNS, flavor="h100", is_copy=True, origin=origin)
    build(source(east), ["u"])
    found = WorkloadState.objects.get(uid="u").is_remote_copy, Interval.objects.get(uid="u").kind
    assert found == want


@pytest.mark.django_db
def test_mark_of_before_a_change_still_makes_a_copy(hub: Cluster, east: Cluster) -> None:
    recorded(hub, "m", 1, conditions=RUNS, flavor="h100", worker="gpu-east")
    recorded(east, "u", 1, conditions=RUNS, flavor="h100", is_copy=True, origin="before")
    build(source(hub), ["m"])
    build(source(east), ["u"])
    assert WorkloadState.objects.get(uid="u").is_remote_copy


@pytest.mark.django_db
def test_copy_without_any_manager_is_a_job_of_its_namespace(east: Cluster) -> None:
    recorded(east, "u", 1, conditions=RUNS, flavor="h100", is_copy=True, origin="multikueue")
    build(source(east), ["u"])
    assert Interval.objects.get(uid="u").kind == "billable"


def told_by_the_cluster(document: dict[str, Any]) -> WorkloadEvent:
    """The event of a Workload as an API server sends it."""
    body = json.dumps(document).encode()
    seen = Observation(WorkloadEvent.Type.SEEN, read_json(body), hours(48))
    return event_of(seen, cluster="gpu-east", gpu_resources={GPU})


def pending_workload(name: str, *, gpus: str = "8", pods: int = 1, message: str = "") -> dict:
    resources = {"requests": {GPU: gpus}}
    told = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    return {
        "metadata": {
            "name": name,
            "namespace": "acme-vision",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": START.isoformat(),
        },
        "spec": {
            "queueName": "default",
            "podSets": [
                {
                    "name": "main",
                    "count": pods,
                    "template": {"spec": {"containers": [{"resources": resources}] * 3}},
                }
            ],
        },
        "status": {"conditions": [{**told, "lastTransitionTime": START.isoformat()}]},
    }


@pytest.mark.django_db
def test_nonsense_of_one_tenant_is_kept_and_holds_nobody_up(east: Cluster) -> None:
    # What a RayJob printed last before it failed, and numbers that Kubernetes takes.
    store_events(
        told_by_the_cluster(document)
        for document in (
            pending_workload("noisy", message="failed: \0\0 at \ud800"),
            pending_workload("greedy", gpus=str(2**63 - 1), pods=2**31 - 1),
            pending_workload("exa", gpus="9E"),
            pending_workload("good"),
        )
    )
    body = body_of(east)
    body._build_new()
    assert not body.faults.standing.parked
    states = {row.name: row for row in WorkloadState.objects.all()}
    assert states["noisy"].message == "failed: \ufffd\ufffd at \ufffd"
    assert states["good"].gpu_total == 24
    assert states["greedy"].gpu_total == states["exa"].gpu_total == MOST_COUNTED_GPUS
    MeterState.objects.update(complete_until=hours(30))
    services.meter_usage(hours(30))
    facts = UsageRecord.objects.filter(workspace__namespace="acme-vision")
    assert facts.get(hour=hours(1)).pending == 3600 * (2 * MOST_COUNTED_GPUS + 2 * 24)


@pytest.mark.django_db
@pytest.mark.parametrize("streamed_from", [1, 500], ids=["a stream", "statements"])
def test_events_are_stored_once_and_in_their_order(
    east: Cluster, monkeypatch: pytest.MonkeyPatch, streamed_from: int
) -> None:
    monkeypatch.setattr(record, "COPIED", streamed_from)
    told = [
        told_by_the_cluster(pending_workload(name, message="tab\t line\n \\N \\"))
        for name in ("d", "b", "c", "a")
    ]
    for batch in (told[:2], told[:2], [*told[2:], told[2]], []):
        store_events(batch)
    stored = WorkloadEvent.objects.order_by("pk")
    values = record.EVENT_COLUMNS
    assert list(stored.values_list(*values)) == [
        tuple(getattr(event, name) for name in values) for event in told
    ]


@pytest.mark.django_db
def test_build_problem_is_told_once(
    fleet: SmallFleet, east: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    recorded(east, "u", 1, conditions={"QuotaReserved": 99, "Admitted": 99}, flavor="h100")
    body = body_of(east)
    body._build_new()
    recorded(east, "u", 2, conditions={"QuotaReserved": 99, "Admitted": 99}, flavor="h100")
    body._build_new()
    assert caplog.text.count("workload_history_problem") == 1
    assert "code=clock_skew" in caplog.text


@pytest.mark.django_db
def test_build_takes_a_fixed_number_of_queries(
    hub: Cluster, east: Cluster, django_assert_max_num_queries: Any
) -> None:
    uids = [f"u{number}" for number in range(40)]
    for number, uid in enumerate(uids):
        recorded(east, uid, number + 1, conditions=RUNS, flavor="h100", name=uid)
    with django_assert_max_num_queries(24):
        build(source(east), uids)
    assert Interval.objects.count() == 40


def ledger_rows() -> tuple[list[Any], list[Any]]:
    """Everything that building writes, without keys and times of writing."""
    return tuple(
        sorted(
            model.objects.values_list(
                *(
                    field.attname
                    for field in model._meta.concrete_fields
                    if field.attname not in ("id", "updated_at", "gpus")
                )
            ),
            key=repr,
        )
        for model in (Interval, WorkloadState)
    )  # type: ignore[return-value]  # of two


def a_backlog(cluster: Cluster, *, jobs: int) -> None:
    """Jobs whose states lie between each other's, the way a watch leaves them."""
    steps: list[dict[str, Any]] = [
        {},
        {"conditions": RUNS, "flavor": "h100"},
        {"conditions": {**RUNS, "Finished": 5}, "flavor": "h100"},
        {"conditions": {**RUNS, "Finished": 5}, "flavor": "h100", "type": "DELETED"},
    ]
    for version, facts in enumerate(steps, start=1):
        for job in range(jobs):
            recorded(cluster, f"u{job}", 10 * job + version, name=f"j{job}", **facts)


def catch_up(cluster: Cluster, *, memory: bool = True) -> int:
    """Build everything that is there; how many workloads were built, each time counted."""
    pending, built = Backlog(cluster.slug, 0), 0
    while (uids := pending.take()) is not None:
        for uid in sorted(uids):
            found = build(source(cluster), [uid])
            built += 1
            if memory:
                pending.note(found.events)
        pending.advance()
    return built


@pytest.mark.django_db
def test_backlog_is_built_once_and_comes_to_the_same_as_state_by_state(
    east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_backlog(east, jobs=7)
    monkeypatch.setattr(record, "AT_ONCE", 5)
    assert catch_up(east) == 7
    in_turn = ledger_rows()
    assert [len(rows) for rows in in_turn] == [7, 7]
    Interval.objects.all().delete()
    WorkloadState.objects.all().delete()
    assert catch_up(east, memory=False) > 7, "without the memory they are built again and again"
    assert ledger_rows() == in_turn


@pytest.mark.django_db
def test_backlog_of_states_that_are_all_built_is_passed_over(
    east: Cluster, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    a_backlog(east, jobs=2)
    monkeypatch.setattr(record, "AT_ONCE", 2)
    pending = Backlog(east.slug, 0)
    assert build_next(source(east), pending) == ()
    newest = WorkloadEvent.objects.order_by("-pk").values_list("pk", flat=True)[0]
    while pending.mark < newest:
        with django_assert_num_queries(1):
            assert build_next(source(east), pending) == ()
    assert build_next(source(east), pending) is None


@pytest.mark.django_db
def test_backlog_that_is_cut_off_is_built_from_its_mark(
    east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_backlog(east, jobs=7)
    catch_up(east)
    want = ledger_rows()
    Interval.objects.all().delete()
    WorkloadState.objects.all().delete()
    monkeypatch.setattr(record, "AT_ONCE", 5)
    cut_off = Backlog(east.slug, 0)
    for _ in range(2):
        assert build_next(source(east), cut_off) == ()
    uids = cut_off.take()
    assert uids is not None
    build(source(east), uids)
    # Here it is killed: what was built last stands, and its mark was not moved.
    after = Backlog(east.slug, cut_off.mark)
    while build_next(source(east), after) is not None:
        pass
    assert ledger_rows() == want
    before = list(Interval.objects.order_by("pk").values())
    again = Backlog(east.slug, 0)
    while build_next(source(east), again) is not None:
        pass
    assert list(Interval.objects.order_by("pk").values()) == before


@pytest.mark.django_db
def test_backlog_a_later_state_of_what_was_built_is_built(east: Cluster) -> None:
    recorded(east, "u", 1, conditions=RUNS, flavor="h100")
    pending = Backlog(east.slug, 0)
    assert build_next(source(east), pending) == ()
    assert build_next(source(east), pending) is None
    recorded(east, "u", 2, conditions={**RUNS, "Finished": 2}, flavor="h100")
    assert pending.take() == {"u"}
    assert build_next(source(east), pending) == ()
    assert Interval.objects.get().state == "closed"


@pytest.mark.django_db
@pytest.mark.parametrize("writer", ["an event", "another builder"])
def test_build_what_comes_between_making_and_locking_is_in_the_state(
    east: Cluster, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    recorded(east, "u", 1, conditions=RUNS, flavor="h100")
    real = building._locked_family

    def late(*given: Any) -> Any:
        if writer == "an event":
            recorded(east, "u", 2, conditions={**RUNS, "Finished": 2}, flavor="h100")
        else:
            WorkloadState.objects.update(phase="pending", updated_at=hours(0))
        return real(*given)

    monkeypatch.setattr(building, "_locked_family", late)
    build(source(east), ["u"])
    want = "finished" if writer == "an event" else "running"
    assert WorkloadState.objects.get(uid="u").phase == want


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_build_two_clusters_of_one_job_wait_for_each_other(
    hub: Cluster, east: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager's builder has read the events when the worker's copy starts.

    Without the lock the worker's builder finishes first, and the manager's then stores a history
    that lacks the start.
    """
    recorded(hub, "own", 1, conditions=RUNS, flavor="h100", worker="gpu-east")
    recorded(east, "copy", 2, is_copy=True)
    build(source(hub), ["own"])
    build(source(east), ["copy"])
    has_read, may_go_on = threading.Event(), threading.Event()
    real = EventReader.all_of

    def slow(reader: EventReader, places: Any) -> Any:
        found = real(reader, places)
        if places and threading.current_thread().name == "manager":
            has_read.set()
            may_go_on.wait(PATIENCE_S)
        return found

    monkeypatch.setattr(EventReader, "all_of", slow)

    def work(cluster: Cluster, uid: str) -> None:
        try:
            build(source(cluster), [uid])
        finally:
            connection.close()

    first = threading.Thread(target=work, args=(hub, "own"), name="manager")
    first.start()
    assert has_read.wait(PATIENCE_S)
    recorded(east, "copy", 3, is_copy=True, conditions=RUNS, flavor="h100")
    second = threading.Thread(target=work, args=(east, "copy"), name="worker")
    second.start()
    second.join(0.5)
    may_go_on.set()
    first.join(PATIENCE_S)
    second.join(PATIENCE_S)
    row = Interval.objects.get(kind="billable")
    assert (row.uid, row.state) == ("copy", "open")


@pytest.mark.django_db
@pytest.mark.embedded
def test_usage_body_runs_until_told_and_writes_what_it_was_told(fleet: SmallFleet) -> None:
    from clusters.kube.client import KubeClient
    from tests.reconcile.fleet_rows import dev_server
    from tests.reconcile.usage_hand import ago, kueue_on

    with dev_server("hub") as server:
        register("hub", server.kubeconfig, role="manager")
        with KubeClient.from_kubeconfig(server.kubeconfig) as client:
            kueue = kueue_on(client)
            with usage_hand("hub", is_watching=False) as hand:
                uid = kueue.submit("train")
                kueue.reserve_on_manager("train", ago(30))
                timer = threading.Timer(1.5, hand.context.stop.set)
                timer.start()
                hand.body.run()
                timer.join()
                assert hand.context.watch_age_s is not None
    assert WorkloadState.objects.get(uid=uid).phase == "reserved"
