"""The contract suite, part five: random writes of several managers end the same on both servers.

Each seed is one object's life: applies, forced applies, merge patches and status writes of three
managers. After every step the two servers must have answered alike: the same error, or the same
spec, status, labels, generation and owners. Left out on purpose: applying a structure as empty that
held something before, where the real server may refuse a null of its own making. The same happens
there, rarely, when an applier drops the last item of a list of which others own a part (3 of 200
lives); the embedded server lets that pass.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusters import errors
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from tests.controlplane.control_plane import ControlPlane
from tests.kube.documents import condition, conflicts_of, quota

STEPS = 12
SEEDS = range(40)
Document = dict[str, Any]


def some(rng: random.Random, choices: dict[str, list[Any]]) -> Document:
    """A random choice of keys, each with one of its values."""
    return {key: rng.choice(values) for key, values in choices.items() if rng.random() < 0.4}


def check_list(rng: random.Random) -> Document:
    names = rng.sample(["a", "b", "c"], rng.randint(1, 3))
    return {
        "admissionChecks": [
            {"name": name, "onFlavors": rng.sample(["x", "y"], rng.randint(1, 2))}
            if rng.random() < 0.5
            else {"name": name}
            for name in names
        ]
    }


def groups(rng: random.Random) -> list[Any]:
    flavors = [
        {"name": name, "resources": [quota("gpu", str(rng.randint(0, 2)))]}
        for name in rng.sample(["x", "y"], rng.randint(1, 2))
    ]
    return [{"coveredResources": ["gpu"], "flavors": flavors}]


def spec(rng: random.Random) -> Document:
    return some(
        rng,
        {
            "stopPolicy": ["None", "Hold", "HoldAndDrain", "Wrong"],
            "queueingStrategy": ["StrictFIFO", "BestEffortFIFO"],
            "cohortName": ["one", "two"],
            "fairSharing": [{"weight": "1"}, {"weight": "2"}],
            "flavorFungibility": [{"whenCanBorrow": "TryNextFlavor"}],
            "namespaceSelector": [{}, {"matchLabels": {"a": "b"}}, {"matchLabels": {"c": "d"}}],
            "admissionChecksStrategy": [check_list(rng)],
            "resourceGroups": [groups(rng), []],
        },
    )


def labels(rng: random.Random) -> Document:
    return some(rng, {"a": ["1", "2"], "b": ["1", "2"]})


def status(rng: random.Random) -> Document:
    kinds = rng.sample(["Active", "Other"], rng.randint(1, 2))
    conditions = [condition(kind, rng.choice(["True", "False"])) for kind in kinds]
    chosen = some(rng, {"conditions": [conditions], "pendingWorkloads": [1, 2]})
    return chosen or {"admittedWorkloads": 1}


def with_nulls(rng: random.Random, body: Document) -> Document:
    return {key: None if rng.random() < 0.3 else value for key, value in body.items()}


def steps(seed: int, name: str) -> Iterator[Callable[[KubeClient], Document]]:
    """The writes of one object's life."""
    rng = random.Random(seed)
    for _ in range(STEPS):
        manager, force = rng.choice("pqr"), rng.random() < 0.5
        kind = rng.choice(["apply", "apply", "apply", "patch", "patch", "status", "apply status"])
        metadata: Document = {"name": name}
        if rng.random() < 0.5:
            metadata["labels"] = labels(rng)
        if kind == "apply":
            yield _apply({"metadata": metadata, "spec": spec(rng)}, manager, force, "")
        elif kind == "apply status":
            yield _apply(
                {"metadata": {"name": name}, "status": status(rng)}, manager, force, "status"
            )
        elif kind == "status":
            yield _patch(name, {"status": with_nulls(rng, status(rng))}, manager, "status")
        else:
            body = {
                "spec": with_nulls(rng, spec(rng)),
                "metadata": {"labels": with_nulls(rng, labels(rng))},
            }
            yield _patch(name, body, manager, "")


def _apply(
    document: Document, manager: str, force: bool, subresource: str
) -> Callable[[KubeClient], Document]:
    options = WriteOptions(field_manager=manager, force=force, subresource=subresource)
    return lambda client: client.apply(r.CLUSTER_QUEUE, document, options=options)


def _patch(
    name: str, body: Document, manager: str, subresource: str
) -> Callable[[KubeClient], Document]:
    options = WriteOptions(field_manager=manager, subresource=subresource)
    return lambda client: client.patch(r.CLUSTER_QUEUE, name, body, options=options)


def outcome(client: KubeClient, step: Callable[[KubeClient], Document]) -> Any:
    """What a write came to, without what differs by nature (times, versions, uids)."""
    try:
        document = step(client)
    except errors.ApplyConflict as error:
        return sorted(conflicts_of(error))
    except errors.ClusterError as error:
        return type(error).__name__, sorted(fault.field for fault in error.fields)
    metadata = document["metadata"]
    owners = sorted(
        json.dumps({key: value for key, value in entry.items() if key != "time"}, sort_keys=True)
        for entry in metadata.get("managedFields", [])
    )
    return {
        "spec": document.get("spec"),
        "status": document.get("status"),
        "labels": metadata.get("labels"),
        "generation": metadata["generation"],
        "owners": owners,
    }


@pytest.fixture(scope="session")
def pair(
    embedded_server: DevServer, bare_cluster: ControlPlane
) -> Iterator[tuple[KubeClient, KubeClient]]:
    """Clients of the embedded and of the real server."""
    real_text = bare_cluster.admin_kubeconfig.read_text()
    with (
        KubeClient.from_kubeconfig(embedded_server.kubeconfig) as embedded,
        KubeClient.from_kubeconfig(real_text) as real,
    ):
        yield embedded, real


@pytest.mark.parametrize("seed", SEEDS)
def test_random_writes_end_alike(
    pair: tuple[KubeClient, KubeClient], unique: Callable[[str], str], seed: int
) -> None:
    embedded, real = pair
    name = unique("random")
    for number, step in enumerate(steps(seed, name)):
        assert outcome(embedded, step) == outcome(real, step), f"seed {seed}, step {number}"
