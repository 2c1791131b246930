"""Applying and pruning when single objects or the whole cluster refuse."""

from __future__ import annotations

import pytest

from clusters import errors
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from tests.kube.apply import apply_documents, delete_exactly, key_of, prune
from tests.kube.documents import cluster_queue, config_map


def test_apply_one_refusal_does_not_stop_the_others(client: KubeClient) -> None:
    documents = [cluster_queue("a"), cluster_queue("b", stopPolicy="Pause"), cluster_queue("c")]
    report = apply_documents(client, documents)
    assert [applied.key.name for applied in report.applied] == ["a", "c"]
    assert [(f.key.name, type(f.error)) for f in report.failed] == [("b", errors.Invalid)]
    assert not report.is_complete


def test_apply_stops_when_the_cluster_is_gone(dev: DevServer, client: KubeClient) -> None:
    dev.cluster.faults.is_refusing = True
    dev.drop_connections()
    report = apply_documents(client, [cluster_queue("a"), cluster_queue("b")])
    assert [type(failed.error) for failed in report.failed] == [errors.Unreachable]
    assert [key.name for key in report.skipped] == ["b"]


def test_prune_refuses_to_run_wild(client: KubeClient) -> None:
    with pytest.raises(ValueError, match="label selector"):
        prune(client, [r.CLUSTER_QUEUE], labels="", keep=())
    with pytest.raises(ValueError, match="Namespace"):
        prune(client, [r.NAMESPACE], labels="a=b", keep=())


def test_delete_exactly_spares_what_changed_hands(client: KubeClient) -> None:
    seen = client.create(r.CONFIG_MAP, config_map("default", "one", a="1"))
    client.delete(r.CONFIG_MAP, "one", namespace="default")
    client.create(r.CONFIG_MAP, config_map("default", "one", a="2"))
    with pytest.raises(errors.Conflict):
        delete_exactly(client, r.CONFIG_MAP, seen)
    live = client.get(r.CONFIG_MAP, "one", namespace="default")
    assert live["data"] == {"a": "2"}
    delete_exactly(client, r.CONFIG_MAP, live)
    delete_exactly(client, r.CONFIG_MAP, live)
    with pytest.raises(errors.NotFound):
        client.get(r.CONFIG_MAP, "one", namespace="default")


def test_key_of_unknown_kind_raises() -> None:
    with pytest.raises(LookupError):
        key_of({"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "x"}})


def test_resource_paths_need_a_fitting_namespace() -> None:
    assert r.JOB.path("a b", namespace="n", subresource="status") == (
        "/apis/batch/v1/namespaces/n/jobs/a%20b/status"
    )
    assert r.NODE.path() == "/api/v1/nodes"
    with pytest.raises(ValueError, match="not namespaced"):
        r.NODE.path("a", namespace="n")
    with pytest.raises(ValueError, match="needs a namespace"):
        r.JOB.path("a")
