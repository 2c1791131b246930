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


def asked(spec: dict[str, Any], **around: Any) -> PodRequests:
    surroundings = PodSurroundings(Configuration(), **around)
    return pod_requests(spec, surroundings=surroundings, path="p")


def test_pod_as_a_whole_asks_for_its_limits_where_it_does_not_say():
    pod = {"limits": {"cpu": "4", GPU: "3"}, "requests": {"cpu": 1}}
    spec = {"containers": [container(cpu="2", memory="5")], "resources": pod, "overhead": {}}
    want = {"cpu": 1000, "memory": 5, GPU: 3}
    assert asked(spec, overheads={"": {"cpu": "9"}}) == PodRequests(want, of_pod=want)


def test_nothing_below_zero_counts():
    spec = {"containers": [container(cpu="-1", gpu="2")]}
    assert asked(spec) == PodRequests({"cpu": 0, GPU: 2}, of_pod={"cpu": -1000, GPU: 2})
    turned = Configuration(transformations={GPU: Transformation({"x": "-2"})})
    found = pod_requests(spec, surroundings=PodSurroundings(turned), path="p")
    assert found == PodRequests({"cpu": 0, GPU: 2, "x": 0}, of_pod={"cpu": -1000, GPU: 2})


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        pytest.param(
            {"cpu": Transformation({"credit": "2"})}, {"cpu": 1500, GPU: 3, "credit": 3}, id="cores"
        ),
        pytest.param(
            {"cpu": Transformation({"credit": "0.5"}, keeps_input=False)},
            {GPU: 3, "credit": 1},
            id="fractions are rounded up",
        ),
        pytest.param(
            {GPU: Transformation({"credit": "2"}, keeps_input=False, multiply_by="cpu")},
            {"cpu": 1500, "credit": 9},
            id="times cores",
        ),
        pytest.param(
            {
                GPU: Transformation({"credit": "1", "cpu": "1"}),
                "cpu": Transformation({"credit": "4"}),
            },
            {"cpu": 4500, GPU: 3, "credit": 9},
            id="two make one, of what was asked for",
        ),
        pytest.param({"other": Transformation({"credit": "1"})}, {"cpu": 1500, GPU: 3}, id="else"),
    ],
)
def test_transformations_count_in_whole_units(rules, want):
    configuration = Configuration(transformations=rules)
    spec = {"containers": [container(cpu="1500m", gpu="3")]}
    found = pod_requests(spec, surroundings=PodSurroundings(configuration), path="p")
    assert dict(found.amounts) == want
    assert found.of_pod == {"cpu": 1500, GPU: 3}


def test_bounds_may_be_reached():
    bounds = {
        "Container": LimitRules(highest={"cpu": "2", "memory": "1"}, lowest={"cpu": "1"}),
        "Pod": LimitRules(highest={"cpu": "3"}, lowest={"cpu": "3", GPU: "1"}),
    }
    spec = {"containers": [container(limits={"cpu": "2"}, cpu="2"), container(cpu="1")]}
    assert asked(spec, bounds=bounds) == PodRequests({"cpu": 3000}, of_pod={"cpu": 3000})
    spec = {"containers": [container(cpu="2001m", memory="2")], "overhead": {"cpu": "900m"}}
    want = {"cpu": 2901, "memory": 2}
    assert asked(spec, bounds=bounds) == PodRequests(
        want,
        range_problems=(
            'p.spec.containers[0]: Invalid value: ["cpu","memory"]: '
            "requests must not be above the limitRange max",
            'p.spec: Invalid value: ["cpu"]: requests must not be below the limitRange min',
        ),
        of_pod=want,
    )


def test_limits_hold_for_every_container_in_its_place():
    over = container(limits={"cpu": "1"}, cpu="1001m")
    fine = container(limits={"cpu": "1", "memory": "1"}, cpu="1000m")
    found = asked({"containers": [fine, over], "initContainers": [over, fine, over]})
    text = 'Invalid value: ["cpu"]: requests must not exceed its limits'
    assert found.limit_problems == (
        f"p.spec.initContainers[0]: {text}",
        f"p.spec.initContainers[2]: {text}",
        f"p.spec.containers[1]: {text}",
    )
    assert found.range_problems == ()


def test_limit_range_says_what_it_leaves_out():
    first = limit_range({"max": {"cpu": 2}}, {"type": "Pod", "min": {"cpu": "1000m", GPU: 1}})
    second = limit_range({"max": {"cpu": "2000m"}}, {"type": "Pod", "min": {"cpu": "1", GPU: 3}})
    assert parse_bounds([first, second, {"spec": {"limits": None}}, {"spec": None}]) == {
        "": LimitRules(highest={"cpu": "2"}),
        "Pod": LimitRules(lowest={"cpu": "1000m", GPU: "3"}),
    }
    every = dict.fromkeys(("default", "defaultRequest", "max", "min"))
    assert parse_bounds([limit_range({"type": "Container", **every})]) == {
        "Container": LimitRules()
    }


def test_sidecars_count_beside_what_starts_after_them():
    init, large = container(cpu="4", gpu="1"), container(cpu="6")
    found = asked({"containers": [container(cpu="1")], "initContainers": [init, SIDECAR, large]})
    assert found.amounts == {"cpu": 6100, GPU: 1}
    found = asked({"containers": [container(cpu="9")], "initContainers": [SIDECAR, init, SIDECAR]})
    assert found.amounts == {"cpu": 9200, GPU: 2}


def test_additions_of_several_checks_come_in_their_order():
    def update(key: str, **more: Any) -> dict[str, Any]:
        return {"name": "main", "tolerations": [{"key": key, "effect": "NoSchedule"}], **more}

    document = workload("w", "q")
    document["status"] = {
        "admissionChecks": [
            {"name": "a", "state": "Ready", "podSetUpdates": [update("x", nodeSelector=None)]},
            {"name": "b", "state": "Ready", "podSetUpdates": None},
            {"name": "c", "state": "Ready", "podSetUpdates": [update("y"), update("z")]},
        ]
    }
    assert read(document).additions == {
        "main": PodAdditions({}, tuple(Toleration(key, "Equal", "", "NoSchedule") for key in "xyz"))
    }


@pytest.mark.parametrize(
    ("owners", "want_owner", "want_single"),
    [
        pytest.param([{**POD, "apiVersion": "v2"}], "v2, Kind=Pod", False, id="another version"),
        pytest.param([{**JOB, "apiVersion": "v1"}], "v1, Kind=Job", False, id="another kind"),
        pytest.param([{**JOB, "controller": False}, POD], "batch/v1, Kind=Job", False, id="none"),
        pytest.param([POD, {**JOB, "kind": "X"}, JOB], "batch/v1, Kind=X", False, id="the first"),
        pytest.param(None, "", False, id="nothing"),
    ],
)
def test_owner_is_the_first_that_controls_or_the_first(owners, want_owner, want_single):
    document = workload("w", "q")
    document["metadata"]["ownerReferences"] = owners
    found = read(document)
    assert (found.owner, found.is_single_pod) == (want_owner, want_single)


def test_time_at_the_end_of_the_calendar_stays_there():
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert parse_time("9999-12-31T23:59:59-02:00") == last
    with pytest.raises(ValueError, match="soon"):
        parse_time("soon")


def test_documents_of_rules_may_leave_out_everything():
    assert parse_selector({"matchLabels": None, "matchExpressions": None}) == LabelSelector(())
    assert parse_tolerations([{"key": "k", "operator": None}]) == (Toleration("k"),)
    assert (
        parse_node_rules(
            {"affinity": {"nodeAffinity": None}, "nodeSelector": None, "tolerations": None}
        )
        == NodeRules()
    )
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": None, "preference": None}]
    }
    assert parse_node_rules({"affinity": {"nodeAffinity": {**required, **preferred}}}) == NodeRules(
        affinity_terms=(), preferences=((0, NodeTerm()),)
    )
    bare = {"key": "a", "operator": "Exists", "values": None}
    assert parse_selector({"matchExpressions": [bare]}) == LabelSelector(
        (Expression("a", "Exists"),)
    )


def test_every_part_of_a_term_has_to_hold():
    here, there = Expression("zone", "In", ("a",)), Expression("disk", "Exists")
    named = Expression("metadata.name", "In", ("n1", "n2"))
    other = Expression("metadata.name", "NotIn", ("n2",))
    both = NodeTerm((here, there), (named, other))
    assert both.matches({"zone": "a", "disk": "x"}, name="n1")
    assert not both.matches({"zone": "a"}, name="n1")
    assert not both.matches({"zone": "a", "disk": "x"}, name="n2")
    assert NodeTerm(fields=(named,)).matches({}, name="n1")
    assert NodeTerm(expressions=(here,)).matches({"zone": "a"}, name="x")


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        (NodeRules(node_selector=(("other", "b"),)), True),
        (NodeRules(node_selector=(("pool", "a"), ("other", "b"))), True),
        (NodeRules((("pool", "b"),), (NodeTerm((Expression("pool", "Exists"),)),)), False),
        (
            NodeRules(
                affinity_terms=(
                    NodeTerm((Expression("pool", "In", ("b",)),)),
                    NodeTerm((Expression("pool", "In", ("a",)),)),
                )
            ),
            True,
        ),
        (
            NodeRules(
                affinity_terms=(
                    NodeTerm((Expression("pool", "In", ("a",)), Expression("rack", "Exists"))),
                )
            ),
            True,
        ),
        (
            NodeRules(
                affinity_terms=(
                    NodeTerm((Expression("pool", "In", ("a",)), Expression("size", "Gt", ("9",)))),
                    NodeTerm((Expression("pool", "In", ("b",)),)),
                )
            ),
            False,
        ),
    ],
)
def test_flavor_takes_pods_whose_every_known_rule_it_meets(rules, want):
    assert matches_nodes(rules, node_labels={"pool": "a", "size": "9"}) is want
