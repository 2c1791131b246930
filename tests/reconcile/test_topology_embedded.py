"""Jobs that are placed by topology in portal mode, on an embedded cluster."""

from __future__ import annotations

import copy
import threading
import time

import pytest

from clusters.devcluster.controllers import NodeShape, make_nodes
from clusters.errors import Forbidden
from clusters.kube import resources as r
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.runtime.writer import Moment
from clusters.reconcile.usage.record import payload_of
from tests.reconcile.admission_harness import NS, Embedded, condition, is_true, kueue
from tests.reconcile.racks import HOST, RACK, domains_of, place_labels, racked_job, topology_objects
from tests.waiting import eventually

pytestmark = pytest.mark.embedded

INDEX = "batch.kubernetes.io/job-completion-index"
GPU = "nvidia.com/gpu"


@pytest.fixture
def world():
    with Embedded("w1", webhooks=True) as world:
        for rack in ("b0-r0", "b0-r1"):
            shape = NodeShape(rack, 2, place_labels("racks", rack), {GPU: "8"})
            make_nodes(world["w1"].server.cluster, shape)
        world["w1"].create(*topology_objects("racks", gpus=64))
        yield world


def bring_pods(place, name: str, *, indexes) -> None:
    """What the Job controller does: pods of the Job's template, which carries the gate."""
    template = copy.deepcopy(place.job(name)["spec"]["template"])
    for index in indexes:
        pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
        pod["metadata"] |= {"name": f"{name}-{index}", "namespace": NS}
        pod["metadata"]["labels"][INDEX] = str(index)
        place.create(pod)


def node_of(place, pod: str) -> str | None:
    found = place.get(r.POD, pod, NS)
    if found["spec"].get("schedulingGates"):
        return None
    return (found["spec"].get("nodeSelector") or {}).get(HOST)


def started(place, name: str):
    workload = eventually(
        lambda: (w := place.workload_of(name)) and is_true(w, "Admitted") and w,
        why=lambda: str(place.workload_of(name)),
    )
    eventually(lambda: not place.job(name)["spec"]["suspend"])
    return workload


def test_topology_places_a_job_in_one_rack_and_lets_its_pods_go_by_their_index(world):
    place = world["w1"]
    place.create(racked_job("train", pods=4, required=RACK))
    world.start("w1", "admission")
    workload = started(place, "train")
    assert domains_of(workload) == {"b0-r0-0": 2, "b0-r0-1": 2}
    # What is recorded of it says so, too.
    assert domains_of(payload_of(workload, gpu_resources=(GPU,))) == domains_of(workload)
    assert workload["spec"]["podSets"][0]["topologyRequest"] == {
        "required": RACK,
        "podIndexLabel": INDEX,
    }
    template = place.job("train")["spec"]["template"]
    assert template["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert (
        template["metadata"]["annotations"]["kueue.x-k8s.io/workload"]
        == (workload["metadata"]["name"])
    )
    bring_pods(place, "train", indexes=(3, 1, 0, 2))
    told = [eventually(lambda i=i: node_of(place, f"train-{i}")) for i in range(4)]
    assert told == ["b0-r0-0", "b0-r0-0", "b0-r0-1", "b0-r0-1"]


def test_topology_that_is_full_lets_a_job_wait_also_after_a_restart(world):
    place = world["w1"]
    place.create(racked_job("first", pods=4, required=RACK))
    shift = world.start("w1", "admission")
    started(place, "first")
    shift.stop()
    place.create(racked_job("second", pods=3, required=RACK))
    world.start("w1", "admission")
    assert domains_of(started(place, "second")) == {"b0-r1-0": 2, "b0-r1-1": 1}
    assert "schedulingStats" not in place.workload_of("first")["status"]
    place.create(racked_job("third", pods=4))
    waiting = eventually(
        lambda: condition(place.workload_of("third"), "QuotaReserved").get("message"),
        why=lambda: str(place.workload_of("third")),
    )
    assert waiting == (
        'couldn\'t assign flavors to pod set main: topology "racks" allows to fit only 1 out of 4 '
        'pod(s). Total nodes: 4; excluded: resource "nvidia.com/gpu": 3'
    )
    make_nodes(
        place.server.cluster, NodeShape("b0-r2", 2, place_labels("racks", "b0-r2"), {GPU: "8"})
    )
    assert sum(domains_of(started(place, "third")).values()) == 4


def test_topology_counts_pods_that_nobody_placed(world):
    place = world["w1"]
    container = {"name": "c", "image": "i", "resources": {"requests": {GPU: "8"}}}
    for number, node in enumerate(("b0-r0-0", "b0-r1-1")):
        place.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"other-{number}", "namespace": NS},
                "spec": {"nodeName": node, "containers": [container]},
            }
        )
    place.create(racked_job("train", pods=4, required=RACK))
    world.start("w1", "admission")
    eventually(lambda: condition(place.workload_of("train"), "QuotaReserved"))
    assert not is_true(place.workload_of("train"), "QuotaReserved")
    place.client.delete(r.POD, "other-1", namespace=NS)
    assert domains_of(started(place, "train")) == {"b0-r1-0": 2, "b0-r1-1": 2}


def test_topology_replaces_a_node_that_is_gone_and_tells_the_new_pods(world):
    place = world["w1"]
    place.create(racked_job("train", pods=2, preferred=HOST))
    world.start("w1", "admission")
    [lost] = domains_of(started(place, "train"))
    bring_pods(place, "train", indexes=(0, 1))
    assert eventually(lambda: node_of(place, "train-0")) == lost
    place.client.delete(r.NODE, lost)
    for index in (0, 1):
        eventually(lambda i=index: node_of(place, f"train-{i}"))
        place.client.delete(r.POD, f"train-{index}", namespace=NS)
    [found] = eventually(
        lambda: (d := domains_of(place.workload_of("train"))) and lost not in d and d,
        why=lambda: str(place.workload_of("train")),
    )
    eventually(lambda: not place.workload_of("train")["status"].get("unhealthyNodes"))
    assert is_true(place.workload_of("train"), "Admitted")
    bring_pods(place, "train", indexes=(0, 1))
    assert eventually(lambda: node_of(place, "train-1")) == found


def test_topology_knows_nodes_by_their_hostname_which_need_not_be_their_name(world):
    place = world["w1"]
    for rack in ("b0-r0", "b0-r1"):
        for number in range(2):
            labels = {"metadata": {"labels": {HOST: f"host-{rack}-{number}"}}}
            place.client.patch(r.NODE, f"{rack}-{number}", labels)
    place.create(racked_job("train", pods=2, preferred=HOST))
    world.start("w1", "admission")
    [there] = domains_of(started(place, "train"))
    bring_pods(place, "train", indexes=(0, 1))
    eventually(lambda: node_of(place, "train-0") == node_of(place, "train-1") == there)
    place.create(racked_job("next", pods=1, preferred=HOST))
    started(place, "next")
    workload = place.workload_of("train")
    assert (list(domains_of(workload)), workload["status"].get("unhealthyNodes")) == ([there], None)
    place.client.delete(r.NODE, there.removeprefix("host-"))
    place.client.delete(r.POD, "train-0", namespace=NS)
    place.client.delete(r.POD, "train-1", namespace=NS)
    eventually(
        lambda: (d := domains_of(place.workload_of("train"))) and there not in d,
        why=lambda: str(place.workload_of("train")),
    )


def test_topology_evicts_where_nothing_replaces_a_node(world):
    place = world["w1"]
    place.create(racked_job("train", pods=4, required=RACK))
    world.start("w1", "admission")
    assert set(domains_of(started(place, "train"))) == {"b0-r0-0", "b0-r0-1"}
    place.client.delete(r.NODE, "b0-r0-1")
    moved = eventually(
        lambda: (d := domains_of(place.workload_of("train"))) and "b0-r1-0" in d and d,
        why=lambda: str(place.workload_of("train")),
    )
    assert moved == {"b0-r1-0": 2, "b0-r1-1": 2}
    evictions = place.workload_of("train")["status"]["schedulingStats"]["evictions"]
    assert [item["reason"] for item in evictions] == ["NodeFailures"]


def test_topology_that_cannot_be_had_is_refused_with_a_sentence(world):
    place = world["w1"]
    flavor = kueue("ResourceFlavor", "flat", {})
    quota = {"name": "flat", "resources": [{"name": GPU, "nominalQuota": "8"}]}
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota]}],
    }
    place.create(
        flavor,
        kueue("ClusterQueue", "flat", spec),
        kueue("LocalQueue", "flat", {"clusterQueue": "flat"}, NS),
    )
    asking = racked_job("asking", pods=1, required=RACK)
    asking["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "flat"
    [container] = asking["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"] = {GPU: "1"}
    place.create(asking)
    world.start("w1", "admission")
    waiting = eventually(lambda: condition(place.workload_of("asking"), "QuotaReserved"))
    assert (waiting["status"], waiting["message"]) == (
        "False",
        'couldn\'t assign flavors to pod set main: Flavor "flat" does not support '
        "TopologyAwareScheduling",
    )
    assert place.job("asking")["spec"]["suspend"] is True


def test_topology_is_refused_once_pods_may_not_be_told_where_to_run(world):
    place = world["w1"]

    def no_rights(moment, cluster, write):
        if moment is Moment.BEFORE and write.resource == r.POD:
            raise Forbidden("pods is forbidden")

    place.create(racked_job("train", pods=1, required=RACK))
    world.start("w1", "admission", body=lambda context: AdmissionBody(context, hook=no_rights))
    started(place, "train")
    bring_pods(place, "train", indexes=(0,))
    told = ""
    for number in range(100):
        place.create(racked_job(f"next-{number}", pods=1, gpus=1, required=RACK))
        waits = eventually(
            lambda n=number: condition(place.workload_of(f"next-{n}"), "QuotaReserved")
        )
        told = waits["message"]
        if waits["status"] == "False":
            break
    assert told.startswith("pods are not placed by topology here, and pod set main asks for it")


class Late(AdmissionBody):
    """Nodes are listed when the test says so."""

    may_list = threading.Event()

    def listed(self, seen):
        if seen.resource != r.NODE or self.may_list.is_set():
            super().listed(seen)

    def turn(self):
        if self.may_list.is_set():
            self._placement.listed(r.NODE)
        super().turn()


def test_topology_decides_nothing_before_all_nodes_are_known(world):
    place = world["w1"]
    place.create(racked_job("train", pods=4, required=RACK))
    world.start("w1", "admission", body=Late)
    time.sleep(1)
    assert place.workload_of("train") is None
    Late.may_list.set()
    started(place, "train")
