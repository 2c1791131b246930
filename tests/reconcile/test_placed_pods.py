"""Which pods of a placed Workload go where, and when a node of theirs has failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.documents.times import stamp
from clusters.jobs import marking
from clusters.jobs.marking import StartRefused, marks_for
from clusters.kube import resources as r
from clusters.kueue.configuration import Gates
from clusters.kueue.workload.placement import PlacedPods, Placement, placement_document
from clusters.reconcile.admission import node_health
from clusters.reconcile.admission.errands import Errands
from clusters.reconcile.admission.node_health import Ground, ending_write, look_at_nodes
from clusters.reconcile.admission.placed_pods import release_write, released
from clusters.reconcile.admission.placement import kept_node, kept_pod
from clusters.reconcile.runtime.cache import Cache
from clusters.reconcile.runtime.queue import WorkQueue

HOST, RACK = "kubernetes.io/hostname", "example.com/rack"
INDEX, PART = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"
GATE = {"name": "kueue.x-k8s.io/topology"}
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
Document = dict[str, Any]


def assigned(name: str, *counted: tuple[str, int], count: int | None = None) -> Document:
    placement = Placement((HOST,), tuple(PlacedPods((node,), n) for node, n in counted))
    return {
        "name": name,
        "count": sum(n for _, n in counted) if count is None else count,
        "flavors": {"nvidia.com/gpu": "racks"},
        "topologyAssignment": placement_document(placement, splits_by_prefix=True),
    }


def workload(
    *assignments: Document,
    requests: dict[str, Document] | None = None,
    failed: tuple[str, ...] = (),
) -> Document:
    found = requests or {}
    sets = [
        {
            "name": item["name"],
            "count": item["count"],
            "template": {"spec": {}},
            "topologyRequest": found.get(item["name"], {"podIndexLabel": INDEX}),
        }
        for item in assignments
    ]
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    return {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {"podSets": sets},
        "status": {
            "admission": {"clusterQueue": "q", "podSetAssignments": list(assignments)},
            "conditions": conditions,
            "unhealthyNodes": [{"name": name} for name in failed],
        },
    }


def pod(name: str, *, told: str = "", of: str = "main", on: str = "", **marks: Any) -> Document:
    labels = {"kueue.x-k8s.io/podset": of}
    labels |= {
        {"index": INDEX, "part": PART}[key]: str(marks[key])
        for key in ("index", "part")
        if key in marks
    }
    offset = {"kueue.x-k8s.io/pod-index-offset": marks["offset"]} if "offset" in marks else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "resourceVersion": "3",
            "labels": labels,
            "annotations": {"kueue.x-k8s.io/workload": "w", **offset},
        },
        "spec": {
            **({"nodeSelector": {HOST: told}} if told else {"schedulingGates": [GATE]}),
            **({"nodeName": on} if on else {}),
        },
        "status": {"phase": marks.get("phase", "Running" if on else "Pending")},
    }


def told(document: Document, *pods: Document) -> dict[str, str]:
    found = {item.pod["metadata"]["name"]: item for item in released(document, pods)}
    return {name: item.selector[HOST] for name, item in sorted(found.items())}


TWO = assigned("main", ("n1", 2), ("n2", 1))
PARTS = {"main": {"podIndexLabel": INDEX, "subGroupIndexLabel": PART, "subGroupCount": 2}}


@pytest.mark.parametrize(
    ("document", "pods", "want"),
    [
        pytest.param(
            workload(TWO),
            [pod("a", index=2), pod("b", index=0), pod("c", index=1)],
            {"a": "n2", "b": "n1", "c": "n1"},
            id="by their index",
        ),
        pytest.param(
            workload(TWO), [pod("a", index=2)], {"a": "n2"}, id="by their index, the others to come"
        ),
        pytest.param(
            workload(TWO),
            [pod("a"), pod("b"), pod("c")],
            {"a": "n1", "b": "n1", "c": "n2"},
            id="in order without one",
        ),
        pytest.param(
            workload(TWO),
            [pod("a", index=0), pod("b", index=0), pod("c", index=1)],
            {"a": "n1", "b": "n1", "c": "n2"},
            id="in order where an index is there twice",
        ),
        pytest.param(
            workload(TWO),
            [pod("a", index=7), pod("b", index="1" * 5000), pod("c", index="٣")],
            {"a": "n1", "b": "n1", "c": "n2"},
            id="in order where an index is nonsense",
        ),
        pytest.param(
            workload(TWO),
            [pod("a", index=0, told="n2", on="n2"), pod("b", index=1), pod("c", index=2)],
            {"b": "n1", "c": "n1"},
            id="in order where what runs contradicts its index",
        ),
        pytest.param(
            workload(TWO),
            [pod("old", index=0, told="n1", on="n1", phase="Failed"), pod("new", index=0)],
            {"new": "n1"},
            id="a new pod takes the place of one that ended",
        ),
        pytest.param(
            workload(TWO),
            [pod(name, told="n1", on="n1") for name in "ab"] + [pod("c"), pod("d")],
            {"c": "n2"},
            id="no more than there is room for",
        ),
        pytest.param(
            workload(assigned("main", ("n1", 2), count=3)),
            [pod(name, index=number) for number, name in enumerate("abc")],
            {"a": "n1", "b": "n1"},
            id="a number without a domain",
        ),
        pytest.param(
            workload(assigned("main", ("n1", 2), ("n2", 2)), requests=PARTS),
            [pod("a", index=1, part=1), pod("b", index=0, part=1), pod("c", index=1, part=0)],
            {"a": "n2", "b": "n2", "c": "n1"},
            id="parts that number their pods each by themselves",
        ),
        pytest.param(
            workload(TWO, failed=("n1",)),
            [pod("a", index=0), pod("b", index=2)],
            {"b": "n2"},
            id="none to a node that failed",
        ),
        pytest.param(
            workload(
                assigned("leader", ("n1", 1)),
                assigned("main", ("n1", 1), ("n2", 1)),
                requests={
                    name: {"podIndexLabel": INDEX, "podSetGroupName": "all"}
                    for name in ("leader", "main")
                },
            ),
            [pod("l", of="leader", index=0), pod("x", index=1), pod("y", index=2)],
            {"l": "n1", "x": "n1", "y": "n2"},
            id="workers count on from their leader",
        ),
        pytest.param(
            workload(TWO),
            [pod("a", index=5, offset="5"), pod("b", index=7, offset="5")],
            {"a": "n1", "b": "n2"},
            id="numbers that begin later",
        ),
    ],
)
def test_pods_go(document, pods, want):
    assert told(document, *pods) == want


def test_letting_a_pod_go_takes_off_this_gate_alone_and_only_in_the_state_that_was_seen():
    document = pod("a", index=0)
    document["spec"]["schedulingGates"] = [{"name": "example.com/other"}, GATE]
    [item] = released(workload(TWO), [document])
    write = release_write(item)
    assert write.body == {
        "metadata": {"resourceVersion": "3"},
        "spec": {"schedulingGates": [{"name": "example.com/other"}], "nodeSelector": {HOST: "n1"}},
    }


def node(name: str, *, ready: str | None = "True", taint: str = "", since: float = 0) -> Document:
    at = stamp(NOW - timedelta(seconds=since))
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": at}] if ready else []
    taints = [{"key": taint, "effect": "NoExecute"}] if taint else []
    return {
        "metadata": {"name": name},
        "spec": {"taints": taints},
        "status": {"conditions": conditions},
    }


def look(document: Document, *nodes: Document, pods=(), gates: Gates = Gates()):  # noqa: B008
    flavors = {"racks": {"spec": {"tolerations": [{"key": "known", "operator": "Exists"}]}}}

    def found(hostname: str) -> list[Document]:
        return [item for item in nodes if item["metadata"]["name"] == hostname]

    return look_at_nodes(document, Ground(found, pods, flavors, gates, NOW))


def failed(health) -> Any:
    return None if health.write is None else health.write.body["status"].get("unhealthyNodes", ())


ON_N1 = pod("a", told="n1", on="n1")
LEAVING = pod("a", told="n1", on="n1") | {}
LEAVING["metadata"]["deletionTimestamp"] = "2026-05-01T12:00:00Z"
NOT_BY_PODS = Gates(tas_replace_node_on_pod_termination=False)


@pytest.mark.parametrize(
    ("nodes", "pods", "gates", "want"),
    [
        pytest.param([node("n1"), node("n2")], [], Gates(), None, id="all is well"),
        pytest.param([node("n2")], [ON_N1], Gates(), "n1", id="gone"),
        pytest.param([node("n1", ready=None), node("n2")], [ON_N1], Gates(), "n1", id="mute"),
        pytest.param([node("n1", ready="Unknown"), node("n2")], [ON_N1], Gates(), None, id="runs"),
        pytest.param([node("n1", ready="False"), node("n2")], [], Gates(), "n1", id="not ready"),
        pytest.param(
            [node("n1", ready="False"), node("n2")], [LEAVING], Gates(), "n1", id="pods leave"
        ),
        pytest.param(
            [node("n1", ready="False", since=31), node("n2")], [ON_N1], NOT_BY_PODS, "n1", id="long"
        ),
        pytest.param(
            [node("n1", ready="False", since=5), node("n2")], [], NOT_BY_PODS, None, id="not yet"
        ),
        pytest.param([node("n1", taint="bad"), node("n2")], [], Gates(), "n1", id="taint"),
        pytest.param([node("n1", taint="bad"), node("n2")], [ON_N1], Gates(), None, id="drains"),
        pytest.param(
            [node("n1", taint="bad"), node("n2")], [ON_N1], NOT_BY_PODS, "n1", id="at once"
        ),
        pytest.param([node("n1", taint="known"), node("n2")], [], Gates(), None, id="tolerated"),
        pytest.param(
            [node("n2")], [], Gates(tas_failed_node_replacement=False), None, id="gate is off"
        ),
    ],
)
def test_a_node_has_failed(nodes, pods, gates, want):
    found = look(workload(TWO), *nodes, pods=pods, gates=gates)
    assert failed(found) == (None if want is None else [{"name": want}])


def test_of_nodes_with_one_hostname_none_has_failed():
    twins = [node("n1", ready="False", since=60), node("n1")]
    assert failed(look(workload(TWO), *twins, node("n2"))) is None


def test_what_pods_tolerate_is_read_once_for_all_their_nodes(monkeypatch: pytest.MonkeyPatch):
    read, names = list[str](), [f"n{number}" for number in range(50)]

    def flavored(*given: Any, **named: Any) -> Any:
        read.append("")
        return marking.flavored(*given, **named)

    monkeypatch.setattr(node_health, "flavored", flavored)
    document = workload(assigned("main", *((name, 1) for name in names)))
    pods = [pod(name, told=name, on=name) for name in names]
    assert failed(look(document, *(node(name, taint="known") for name in names), pods=pods)) is None
    assert len(read) == 1


def test_a_node_that_is_not_ready_for_long_is_looked_at_again_in_time():
    found = look(workload(TWO), node("n1", ready="False", since=5), node("n2"), gates=NOT_BY_PODS)
    assert found.look_again == NOW + timedelta(seconds=25)


def test_a_node_that_is_back_is_taken_back():
    found = look(workload(TWO, failed=("n1",)), node("n1"), node("n2"))
    assert found.write is not None
    assert failed(found) is None


def test_a_second_node_that_fails_evicts():
    found = look(workload(TWO, failed=("n1",)))
    assert found.write is not None and found.write.step == "evict"
    [evicted] = [
        item for item in found.write.body["status"]["conditions"] if item["type"] == "Evicted"
    ]
    assert (evicted["reason"], evicted["message"]) == (
        "NodeFailures",
        "Workload eviction triggered due to multiple TAS assigned node failures, including: n1, n2",
    )


def test_pods_that_can_never_start_are_ended_and_no_others():
    waits, astray = pod("waits", told="n1"), pod("astray", told="n3")
    others = [pod("held"), pod("goes", told="n2"), pod("there", told="n2", on="n2")]
    leaving = pod("leaving", told="n1", on="n1", phase="Pending")
    leaving["metadata"]["deletionTimestamp"] = stamp(NOW)
    found = look(
        workload(TWO),
        node("n1", ready="False"), node("n2"), node("n3"),
        pods=[waits, astray, leaving, *others],
    )  # fmt: skip
    assert [item["metadata"]["name"] for item in found.ending] == ["astray", "waits"]
    write = ending_write(astray, now=NOW)
    assert (write.subresource, write.body["status"]["phase"]) == ("status", "Failed")


def test_a_kind_whose_pods_nobody_places_is_not_started_where_they_have_to_be():
    document = workload(TWO)
    with pytest.raises(StartRefused, match="pods of a RayJob are not placed by topology here"):
        marks_for(
            {"kind": "RayJob", "metadata": {}}, document, TWO, original={"spec": {}}, flavors={}
        )


def test_little_is_kept_of_what_strangers_write():
    long = "x" * 100_000
    found = pod("a", index=0)
    found["metadata"]["labels"] |= {f"l{number}": "v" for number in range(500)}
    found["metadata"]["annotations"] |= {
        "kueue.x-k8s.io/podset-required-topology": long,
        "kueue.x-k8s.io/pod-index-offset": long,
        "note": long,
    }
    found["spec"]["containers"] = [{"name": "c", "env": [{"name": "A", "value": long}]}]
    assert len(str(kept_pod(found))) < 3000
    del found["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"]
    assert len(str(kept_pod(found))) < 300
    image = {"names": [long]}
    shown = node("n1") | {"status": {**node("n1")["status"], "images": [image]}}
    assert len(str(kept_node(shown))) < 500


class Known:
    """What errands ask of a placement."""

    def __init__(self, *pods: Document) -> None:
        self.pods, self.cache = list(pods), Cache()

    def nodes(self, hostname: str) -> list[Document]:
        return [node(hostname)] if hostname in ("n1", "n2") else []

    def pods_of(self, key: str) -> list[Document]:
        return self.pods


def errands_of(document: Document, *pods: Document) -> tuple[Errands, WorkQueue[str], Cache]:
    cache, queue = Cache(), WorkQueue[str]()
    cache.put(r.WORKLOAD, document)
    found = Errands(Known(*pods), cache, queue)  # type: ignore[arg-type]
    found.of_workload("ns/w", document, gates=Gates(), now=NOW)
    return found, queue, cache


def test_pods_are_looked_at_again_only_when_all_that_was_sent_was_answered():
    errands, queue, _ = errands_of(workload(TWO), pod("a"), pod("b"))
    assert sorted(queue.take()) == ["Pod:ns/a", "Pod:ns/b"]
    assert errands.write_for("Pod:ns/a") is not None
    queue.begin("Pod:ns/a")
    for _ in range(2):
        errands.of_workload("ns/w", workload(TWO), gates=Gates(), now=NOW)
        assert list(queue.take()) == []
        errands.write_for("Pod:ns/b")  # sent as well, and answered
    queue.done("Pod:ns/a")
    errands.of_workload("ns/w", workload(TWO), gates=Gates(), now=NOW)
    assert sorted(queue.take()) == ["Pod:ns/a", "Pod:ns/b"]


@pytest.mark.parametrize("change", ["evicted", "moved", "gone"])
def test_a_pod_is_not_told_what_its_workload_no_longer_says(change):
    errands, _, cache = errands_of(workload(TWO), pod("a"))
    other = workload(TWO if change == "evicted" else assigned("main", ("n2", 3)))
    other["metadata"]["resourceVersion"] = "8"
    if change == "evicted":
        other["status"]["conditions"].append({"type": "Evicted", "status": "True"})
    (cache.drop if change == "gone" else cache.put)(r.WORKLOAD, other)
    assert errands.write_for("Pod:ns/a") is None
