"""What annotations of pods ask of the topology, in the Workloads that are made for jobs."""

from __future__ import annotations

import pytest

from clusters.jobs.topology import asking, topology_request

P = "kueue.x-k8s.io/podset-"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"required-topology": RACK}, {"required": RACK}, id="required"),
        pytest.param(
            {"preferred-topology": RACK, "group-name": "all"},
            {"preferred": RACK, "podSetGroupName": "all"},
            id="preferred, in a group",
        ),
        pytest.param({"group-name": "all"}, {}, id="a group alone asks for nothing"),
        pytest.param({"unconstrained-topology": "true"}, {"unconstrained": True}, id="any"),
        pytest.param({"unconstrained-topology": "?"}, {"unconstrained": False}, id="unreadable"),
        pytest.param(
            {"slice-required-topology": HOST, "slice-size": "4"},
            {"podSetSliceRequiredTopology": HOST, "podSetSliceSize": 4},
            id="slices",
        ),
        pytest.param(
            {"slice-required-topology": HOST, "slice-size": "four"},
            {"podSetSliceRequiredTopology": HOST, "podSetSliceSize": 0},
            id="slices of no size are for the API server to refuse",
        ),
        pytest.param(
            {"slice-required-topology-constraints": f'[{{"topology":"{HOST}","size":2}}]'},
            {"podsetSliceRequiredTopologyConstraints": [{"topology": HOST, "size": 2}]},
            id="layers",
        ),
        pytest.param(
            {"slice-required-topology-constraints": "[" * 9000},
            {"podsetSliceRequiredTopologyConstraints": [{"topology": "", "size": 0}]},
            id="layers that cannot be read",
        ),
    ],
)
def test_annotations_become_the_request(annotations, want):
    marks = {f"{P}{name}": value for name, value in annotations.items()}
    assert topology_request(marks) == want
    template = {"metadata": {"annotations": marks}, "spec": {}}
    made = asking({"name": "main", "count": 1, "template": template}, ranks={})
    assert made.get("topologyRequest", {}) == want
