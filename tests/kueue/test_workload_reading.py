"""What a Workload's documents mean: requests of a pod, labels, taints, additions, equal shapes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.kueue.configuration import Configuration, Transformation
from clusters.kueue.workload.matching import (
    Expression,
    LabelSelector,
    NodeRules,
    NodeTerm,
    Taint,
    Toleration,
    matches_nodes,
    parse_node_rules,
    parse_selector,
    parse_taints,
    parse_tolerations,
    untolerated_taint,
)
from clusters.kueue.workload.parser import WorkloadParser, parse_time
from clusters.kueue.workload.placement import PlacedPods, Placement
from clusters.kueue.workload.requests import (
    LimitRules,
    PodRequests,
    PodSurroundings,
    SurroundingsByNamespace,
    parse_bounds,
    pod_requests,
)
from clusters.kueue.workload.workloads import (
    PodAdditions,
    PodSetHold,
    Reservation,
    Workload,
)
from tests.kueue.builders import GPU, START, pod_set, reserved, workload

PLAIN = PodSurroundings(Configuration())


def container(*, limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    """A container; ``gpu`` stands for the resource of GPUs."""
    amounts = {GPU if name == "gpu" else name: text for name, text in requests.items()}
    return {"name": "c", "resources": {"requests": amounts, "limits": limits or {}}}


SIDECAR = container(cpu="100m", gpu="1") | {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"containers": [container(cpu="1", gpu="2"), container(cpu="500m", memory="1Ki")]},
            {"cpu": 1500, GPU: 2, "memory": 1024},
            id="containers add up",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="3", gpu="4")]},
            {"cpu": 3000, GPU: 4},
            id="at least what an init container needs",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [container(cpu="500m"), container(cpu="2"), container(cpu="1")],
            },
            {"cpu": 2000},
            id="the largest init container counts",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [SIDECAR, container(cpu="2"), SIDECAR],
            },
            {"cpu": 2100, GPU: 2},
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "5"}}},
            {"cpu": 5000},
            id="what the pod as a whole asks for wins",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "2"}},
            {"cpu": 1250, "memory": 2},
            id="overhead comes on top",
        ),
        pytest.param(
            {"containers": [container(limits={"cpu": "2", GPU: "1"}, cpu="1")]},
            {"cpu": 1000, GPU: 1},
            id="a limit is a request where none is given",
        ),
        pytest.param({}, {}, id="nothing"),
    ],
)
def test_requests_of_a_pod(spec, want):
    found = pod_requests(spec, surroundings=PLAIN, path="p")
    assert found == PodRequests(amounts=want, of_pod=want)


def test_overhead_of_the_runtime_class_counts_where_the_pod_has_none():
    around = PodSurroundings(Configuration(), overheads={"kata": {"cpu": "200m"}})
    spec = {"containers": [container(cpu="1")], "runtimeClassName": "kata"}
    assert pod_requests(spec, surroundings=around, path="p").amounts == {"cpu": 1200}
    with_its_own = {**spec, "overhead": {"cpu": "1"}}
    assert pod_requests(with_its_own, surroundings=around, path="p").amounts == {"cpu": 2000}
    other = {**spec, "runtimeClassName": "runc"}
    assert pod_requests(other, surroundings=around, path="p").amounts == {"cpu": 1000}


def test_problems_of_requests_name_their_places():
    bounds = {
        "Container": LimitRules(highest={"cpu": "2"}, lowest={"cpu": "500m", GPU: "1"}),
        "Pod": LimitRules(highest={"cpu": "3", "memory": "1"}),
    }
    spec = {
        "initContainers": [container(cpu="100m")],
        "containers": [
            container(limits={"cpu": "1", GPU: "1"}, cpu="4", gpu="2"),
            container(cpu="1", gpu="0"),
        ],
    }
    found = pod_requests(
        spec, surroundings=PodSurroundings(Configuration(), bounds), path="spec.podSets[0].template"
    )
    place = "spec.podSets[0].template.spec"
    assert found.limit_problems == (
        f'{place}.containers[0]: Invalid value: ["cpu","{GPU}"]: requests must not exceed its '
        "limits",
    )
    above = "requests must not be above the limitRange max"
    below = "requests must not be below the limitRange min"
    assert found.range_problems == (
        f'{place}.initContainers[0]: Invalid value: ["cpu"]: {below}',
        f'{place}.containers[0]: Invalid value: ["cpu"]: {above}',
        f'{place}.containers[1]: Invalid value: ["{GPU}"]: {below}',
        f'{place}: Invalid value: ["cpu"]: {above}',
    )


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        pytest.param(
            Transformation({GPU: "2"}, keeps_input=False), {GPU: 6, "cpu": 500}, id="replaced"
        ),
        pytest.param(
            Transformation({GPU: "2"}), {"vendor/slice": 3, GPU: 6, "cpu": 500}, id="retained"
        ),
        pytest.param(
            Transformation({GPU: "4"}, keeps_input=False, multiply_by="cpu"),
            {GPU: 6, "cpu": 500},
            id="times another resource",
        ),
        pytest.param(
            Transformation({GPU: "4"}, keeps_input=False, multiply_by="memory"),
            {GPU: 0, "cpu": 500},
            id="times a resource that is not asked for",
        ),
        pytest.param(
            Transformation({"cpu": "250m"}, keeps_input=False), {"cpu": 1250}, id="added to another"
        ),
    ],
)
def test_transformations_and_exclusions_change_what_counts(rule, want):
    configuration = Configuration(
        excluded_prefixes=("ignored/",), transformations={"vendor/slice": rule}
    )
    requests = {"vendor/slice": "3", "cpu": "500m", "ignored/x": "7"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    found = pod_requests(spec, surroundings=PodSurroundings(configuration), path="p")
    assert dict(found.amounts) == want
    assert found.of_pod == {"vendor/slice": 3, "cpu": 500, "ignored/x": 7}


def limit_range(*limits: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"limits": list(limits)}}


def test_limit_ranges_of_a_namespace_combine_to_the_tightest():
    first = limit_range(
        {
            "type": "Container",
            "default": {"cpu": "1"},
            "defaultRequest": {"cpu": "500m"},
            "max": {"cpu": "4", "memory": "8Gi"},
            "min": {"cpu": "100m"},
        },
        {"type": "Pod", "max": {"cpu": "9"}},
    )
    second = limit_range(
        {
            "type": "Container",
            "default": {"cpu": "2", "memory": "1Gi"},
            "defaultRequest": {"cpu": "2", "memory": "2Gi"},
            "max": {"cpu": "3500m", "memory": "16Gi"},
            "min": {"cpu": "200m", "memory": "1Mi"},
        }
    )
    assert parse_bounds([first, second]) == {
        "Container": LimitRules(
            default={"cpu": "1", "memory": "1Gi"},
            default_request={"cpu": "500m", "memory": "2Gi"},
            highest={"cpu": "3500m", "memory": "8Gi"},
            lowest={"cpu": "200m", "memory": "1Mi"},
        ),
        "Pod": LimitRules(highest={"cpu": "9"}),
    }
    assert parse_bounds([{}, {"spec": {}}]) == {}


def test_limit_range_fills_in_what_a_container_does_not_say():
    bounds = parse_bounds(
        [
            limit_range(
                {
                    "type": "Container",
                    "default": {"cpu": "2", GPU: "1"},
                    "defaultRequest": {"cpu": "500m"},
                }
            )
        ]
    )
    around = PodSurroundings(Configuration(), bounds)
    for given, want in (
        (container(), {"cpu": 500, GPU: 1}),
        (container(cpu="1"), {"cpu": 1000, GPU: 1}),
        (container(limits={GPU: "3"}), {"cpu": 500, GPU: 3}),
    ):
        assert pod_requests({"containers": [given]}, surroundings=around, path="p").amounts == want


def test_surroundings_tell_whether_something_changed():
    known = SurroundingsByNamespace(Configuration())
    document = limit_range({"type": "Pod", "max": {"cpu": "1"}})
    assert known.of("ns") == PodSurroundings(Configuration())
    assert known.set_limit_range("ns/l", document) is True
    assert known.set_limit_range("ns/l", {**document, "metadata": {"name": "l"}}) is False
    assert known.set_overhead("kata", {"cpu": "1"}) is True
    assert known.set_overhead("kata", {"cpu": "1"}) is False
    want = PodSurroundings(
        Configuration(),
        bounds={"Pod": LimitRules(highest={"cpu": "1"})},
        overheads={"kata": {"cpu": "1"}},
        scope="ns",
    )
    assert known.of("ns") == want
    assert known.of("other") == PodSurroundings(Configuration(), overheads={"kata": {"cpu": "1"}})
    copy = SurroundingsByNamespace(Configuration())
    copy.adopt(known)
    assert copy.of("ns") == want
    assert known.set_limit_range("ns/l", None) is True
    assert known.set_limit_range("ns/l", None) is False
    assert known.set_overhead("kata", None) is True
    assert known.set_overhead("kata", None) is False
    assert known.of("ns") == PodSurroundings(Configuration())
    assert copy.of("ns") == want


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (Expression("n", "In", ("5", "6")), True),
        (Expression("n", "In", ("6",)), False),
        (Expression("x", "In", ("5",)), False),
        (Expression("n", "NotIn", ("5",)), False),
        (Expression("n", "NotIn", ("6",)), True),
        (Expression("x", "NotIn", ("5",)), True),
        (Expression("n", "Exists"), True),
        (Expression("x", "Exists"), False),
        (Expression("n", "DoesNotExist"), False),
        (Expression("x", "DoesNotExist"), True),
        (Expression("n", "Gt", ("4",)), True),
        (Expression("n", "Gt", ("5",)), False),
        (Expression("n", "Lt", ("6",)), True),
        (Expression("n", "Lt", ("5",)), False),
        (Expression("n", "Gt", ("4", "3")), False),
        (Expression("n", "Gt"), False),
        (Expression("x", "Gt", ("4",)), False),
        (Expression("word", "Gt", ("4",)), False),
        (Expression("n", "Like", ("5",)), False),
    ],
    ids=str,
)
def test_expression_matches_labels(expression, want):
    assert expression.matches({"n": "5", "word": "five"}) is want


def test_selector_of_a_document():
    document = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "team", "operator": "NotIn", "values": ["x", "y"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    found = parse_selector(document)
    assert found == LabelSelector(
        (
            Expression("a", "In", ("1",)),
            Expression("b", "In", ("2",)),
            Expression("team", "NotIn", ("x", "y")),
            Expression("old", "DoesNotExist"),
        )
    )
    assert found.matches({"a": "1", "b": "2", "team": "z"})
    assert not found.matches({"a": "1", "b": "2", "team": "y"})
    assert parse_selector({}).matches({})
    assert parse_selector(None) == LabelSelector(None)
    assert not parse_selector(None).matches({"a": "1"})


def test_taints_and_tolerations_of_documents():
    assert parse_taints([{"key": "a", "value": "b", "effect": "NoExecute"}, {}]) == (
        Taint("a", "b", "NoExecute"),
        Taint("", "", ""),
    )
    assert parse_taints(None) == ()
    whole = {"key": "a", "operator": "Exists", "value": "b", "effect": "NoSchedule"}
    assert parse_tolerations([whole, {}]) == (
        Toleration("a", "Exists", "b", "NoSchedule"),
        Toleration("", "Equal", "", ""),
    )
    assert parse_tolerations(None) == ()


@pytest.mark.parametrize(
    ("taint", "want_text", "want_short"),
    [
        (Taint("k", "v", "NoSchedule"), "{k v NoSchedule <nil>}", "k=v:NoSchedule"),
        (Taint("k", "", "NoSchedule"), "{k  NoSchedule <nil>}", "k:NoSchedule"),
        (Taint("k", "v", ""), "{k v  <nil>}", "k=v:"),
        (Taint("k", "", ""), "{k   <nil>}", "k"),
    ],
)
def test_taint_in_words(taint, want_text, want_short):
    assert (str(taint), taint.short) == (want_text, want_short)


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        (Toleration("k", "Equal", "5", "NoSchedule"), True),
        (Toleration("k", "Equal", "5"), True),
        (Toleration("k", "Equal", "6"), False),
        (Toleration("k", "Equal", "5", "NoExecute"), False),
        (Toleration("x", "Equal", "5"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("x", "Exists"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "5"), False),
        (Toleration("k", "Gt", "4"), True),
        (Toleration("k", "Gt", "5"), False),
        (Toleration("k", "Lt", "6"), True),
        (Toleration("k", "Lt", "five"), False),
    ],
    ids=str,
)
def test_toleration_of_a_taint(toleration, want):
    assert toleration.tolerates(Taint("k", "5", "NoSchedule")) is want


def test_first_taint_that_keeps_pods_away_is_named():
    soft, hard, last = (
        Taint("soft", "", "PreferNoSchedule"),
        Taint("hard", "", "NoSchedule"),
        Taint("last", "", "NoExecute"),
    )
    taints = (soft, hard, last)
    assert untolerated_taint(taints, tolerations=()) == hard
    assert untolerated_taint(taints, tolerations=(Toleration("hard", "Exists"),)) == last
    assert untolerated_taint(taints, tolerations=(Toleration("", "Exists"),)) is None
    assert untolerated_taint((soft,), tolerations=()) is None


def test_node_rules_of_a_pod():
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [zone], "matchFields": [name]}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 7, "preference": {"matchExpressions": [zone]}},
            {},
        ],
    }
    found = parse_node_rules(
        {
            "nodeSelector": {"b": "2", "a": "1"},
            "affinity": {"nodeAffinity": affinity},
            "tolerations": [{"key": "k", "operator": "Exists"}],
        }
    )
    in_zone, of_name = Expression("zone", "In", ("a",)), Expression("metadata.name", "In", ("n1",))
    assert found == NodeRules(
        node_selector=(("a", "1"), ("b", "2")),
        affinity_terms=(NodeTerm((in_zone,), (of_name,)),),
        tolerations=(Toleration("k", "Exists"),),
        preferences=((7, NodeTerm((in_zone,))), (0, NodeTerm())),
    )
    assert parse_node_rules({}) == NodeRules()
    [term] = found.affinity_terms or ()
    assert term.matches({"zone": "a"}, name="n1")
    assert not term.matches({"zone": "b"}, name="n1")
    assert not term.matches({"zone": "a"}, name="n2")
    assert not NodeTerm().matches({"zone": "a"}, name="n1")


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        (NodeRules(node_selector=(("pool", "a"),)), True),
        (NodeRules(node_selector=(("pool", "b"),)), False),
        (NodeRules(node_selector=(("other", "b"), ("pool", "b"))), False),
        (NodeRules(affinity_terms=(NodeTerm((Expression("pool", "In", ("b",)),)),)), False),
        (NodeRules(affinity_terms=()), False),
        (NodeRules(affinity_terms=(NodeTerm((Expression("zone", "In", ("b",)),)),)), True),
        (
            NodeRules(
                affinity_terms=(
                    NodeTerm((Expression("pool", "In", ("b",)), Expression("zone", "Exists"))),
                    NodeTerm((Expression("pool", "Exists"),)),
                )
            ),
            True,
        ),
    ],
)
def test_flavor_takes_pods_by_the_labels_that_it_has(rules, want):
    assert matches_nodes(rules, node_labels={"pool": "a"}) is want


def read(document: dict[str, Any], configuration: Configuration | None = None) -> Workload:
    return WorkloadParser(configuration or Configuration()).parse(document, surroundings=PLAIN)


def test_additions_of_checks_that_are_ready_come_together():
    toleration = {"key": "k", "operator": "Exists"}
    first = {"name": "main", "nodeSelector": {"zone": "a"}, "tolerations": [toleration]}
    second = {"name": "main", "nodeSelector": {"zone": "b", "pool": "p"}}
    document = workload("w", "q")
    document["status"] = {
        "admissionChecks": [
            {"name": "c1", "state": "Ready", "podSetUpdates": [first, {"name": "other"}]},
            {"name": "c2", "state": "Ready", "podSetUpdates": [second]},
            {"name": "c3", "state": "Pending", "podSetUpdates": [{**second, "name": "late"}]},
            {"name": "c4"},
        ]
    }
    found = read(document)
    assert found.additions == {
        "main": PodAdditions({"zone": "b", "pool": "p"}, (Toleration("k", "Exists"),)),
        "other": PodAdditions(),
    }
    assert found.check_states == {"c1": "Ready", "c2": "Ready", "c3": "Pending", "c4": "Pending"}


def test_reservation_of_a_document():
    document = reserved(workload("w", "q", gpus=2), "q", at="2026-01-01T02:00:00+01:00")
    hold = document["status"]["admission"]["podSetAssignments"][0]
    hold["delayedTopologyRequest"] = "Pending"
    hold["topologyAssignment"] = {
        "levels": ["host"],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}],
                "podCounts": {"individual": [1, 3]},
            }
        ],
    }
    assert read(document).reservation == Reservation(
        cluster_queue="q",
        pod_sets=(
            PodSetHold(
                "main",
                {GPU: "f0"},
                {GPU: 2},
                1,
                Placement(("host",), (PlacedPods(("n1",), 1), PlacedPods(("n2",), 3))),
                "Pending",
            ),
        ),
        reserved_at=datetime(2026, 1, 1, 1, tzinfo=UTC),
        is_admitted=True,
    )
    document["status"]["conditions"][0]["status"] = "False"
    assert read(document).reservation is None


@pytest.mark.parametrize(
    ("change", "is_alike"),
    [
        pytest.param({}, True, id="the same"),
        pytest.param({"priority": 1}, False, id="another priority"),
        pytest.param({"gpus": 2}, False, id="more GPUs"),
    ],
)
def test_workloads_that_the_scheduler_cannot_tell_apart_have_one_hash(change, is_alike):
    first, second = read(workload("a", "q")), read(workload("b", "q", age=5, **change))
    assert (first.shape_hash == second.shape_hash) is is_alike


def test_order_of_fields_makes_no_other_shape():
    parser = WorkloadParser(Configuration())
    ahead = workload("a", "q", pod_set({"cpu": 1, GPU: 2}, nodeSelector={"a": "1", "b": "2"}))
    behind = workload("b", "q", pod_set({GPU: 2, "cpu": 1}, nodeSelector={"b": "2", "a": "1"}))
    shapes = [
        parser.parse(document, surroundings=PLAIN).pod_sets[0].shape for document in (ahead, behind)
    ]
    assert shapes[0] is shapes[1]


def owned(*references: dict[str, Any], **annotations: str) -> dict[str, Any]:
    document = workload("w", "q")
    document["metadata"] |= {"ownerReferences": list(references), "annotations": annotations}
    return document


POD = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True}


@pytest.mark.parametrize(
    ("document", "want_owner", "want_single"),
    [
        pytest.param(owned(POD), "v1, Kind=Pod", True, id="a pod alone"),
        pytest.param(owned(POD, JOB), "batch/v1, Kind=Job", False, id="who controls it"),
        pytest.param(owned(POD, POD), "v1, Kind=Pod", False, id="the first of several"),
        pytest.param(owned(JOB), "batch/v1, Kind=Job", False, id="a job"),
        pytest.param(owned(), "", False, id="nobody"),
        pytest.param(
            owned(POD, **{"kueue.x-k8s.io/is-group-workload": "true"}),
            "v1, Kind=Pod",
            False,
            id="a pod of a group",
        ),
        pytest.param(
            owned(JOB, **{"kueue.x-k8s.io/job-owner-gvk": "x/v1, Kind=Y"}),
            "x/v1, Kind=Y",
            False,
            id="as it is told",
        ),
    ],
)
def test_owner_of_a_workload(document, want_owner, want_single):
    found = read(document)
    assert (found.owner, found.is_single_pod) == (want_owner, want_single)


def test_counts_of_pod_sets_are_read_with_their_defaults():
    document = workload("w", "q", pod_set({GPU: 1}, count=4, min_count=2), {"template": {}})
    del document["spec"]["podSets"][1]["template"]
    document["status"] = {"reclaimablePods": [{"name": "main", "count": 3}]}
    found = read(document)
    assert [(item.name, item.count, item.min_count) for item in found.pod_sets] == [
        ("main", 4, 2),
        ("main", 1, None),
    ]
    assert found.reclaimable == {"main": 3}
    assert (found.refused, found.gated_by, found.replaces, found.job_uid) == ("", "", "", "")
    assert found.created_at == found.queued_at == START


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (None, None),
        ("", None),
        ("2026-01-01T00:00:00Z", START),
        ("2026-01-01T02:00:00+02:00", START),
        ("0001-01-01T00:00:00+02:00", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_time_of_a_document_is_that_of_utc(text, want):
    assert parse_time(text) == want
