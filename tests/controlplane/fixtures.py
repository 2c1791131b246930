"""Session-wide control planes for tests; a conftest loads this module with ``pytest_plugins``.

* ``kueue_fleet``: manager, ``worker-1`` and ``worker-2`` under a real Kueue; workers have nodes,
  kube-scheduler and kwok, so Jobs run and end.
* ``bare_fleet``: the same three with Kueue's CRDs and no Kueue: what ``portal`` mode finds.
* ``bare_cluster``: one API server with the CRDs and kube-controller-manager.
* ``own_cluster``: the same for one test alone, which may bring Kueue and its webhooks to it.

Each starts with the first test that asks for it, is shared by all others and ends with the last of
them (``sharing``), so a test makes namespaces, queues and flavors of its own (``unique_name``).
What it breaks (a killed or paused API server, a dead Kueue) runs again before the next test begins.
A missing part skips with one line that says how to get it; with ``CI=true`` it fails. Tests that
use one get the marker ``controlplane`` by themselves. Under xdist each process would start fleets
of its own: do not.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from clusters.documents import labels
from clusters.manifests.names import MANAGED_BY

from . import build
from .control_plane import ControlPlane
from .fleet import Fleet, parts_for, start_fleet
from .kwok_nodes import NodeShape
from .sharing import Sharing

_FIXTURES = frozenset({"kueue_fleet", "bare_fleet", "bare_cluster", "own_cluster"})
_NODES_PER_WORKER = 4
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
# Bindings first: a policy without one refuses nothing.
_POLICIES = (
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "mutatingadmissionpolicies",
)
_POLICIES_ARE_GONE_S = 2.0  # an API server compiles its policies anew every second
_shared: list[ControlPlane] = []
_sharing = Sharing()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses a control plane."""
    for item in items:
        if _FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.controlplane)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Sort what was collected by the planes that it uses."""
    session.items[:] = _sharing.plan(session.items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """End what no further test needs, once the fixtures of this one are gone."""
    try:
        return (yield)
    finally:
        _sharing.over(item, nextitem)


def require_parts(names: tuple[str, ...]) -> None:
    """Skip, or with CI=true fail, the test when a part is not built, saying how to get it."""
    missing = build.missing_parts(names)
    if not missing:
        return
    reason = f"real control plane: {', '.join(missing)} not built; {build.BUILD_HINT}"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def shared(
    name: str, clusters: Sequence[ControlPlane], *, is_mended: bool = True
) -> Iterator[None]:
    """Clusters under a fixture's name, mended after each test, ended when none needs them."""

    def stop() -> None:
        for cluster in clusters:
            if cluster in _shared:
                _shared.remove(cluster)
            cluster.stop()

    _shared.extend(clusters if is_mended else ())
    _sharing.begun(name, stop)
    try:
        yield
    finally:
        stop()


@pytest.fixture(autouse=True)
def _mended() -> Iterator[None]:
    """Repair the shared clusters after a test that broke one, and take back its policies."""
    yield
    for cluster in _shared:
        cluster.mend()
    if sum(_forget_policies(cluster) for cluster in _shared):
        time.sleep(_POLICIES_ARE_GONE_S)


def _forget_policies(cluster: ControlPlane) -> int:
    """Delete admission policies: those of one test's installation refuse what the next one writes.

    Returns how many there were.
    """
    paths = [
        f"{_ADMISSION}/{plural}/{found['metadata']['name']}"
        for plural in _served_policies(cluster)
        for found in cluster.rest.items(f"{_ADMISSION}/{plural}")
        if found["metadata"].get("labels", {}).get(labels.MANAGED_BY) == MANAGED_BY
    ]
    for path in paths:
        cluster.rest.delete(path)
    return len(paths)


@cache
def _served_policies(cluster: ControlPlane) -> tuple[str, ...]:
    """Those of the kinds that a cluster knows, in their order; mutating ones came with 1.36."""
    served = cluster.rest.discovered("admissionregistration.k8s.io")["v1"]
    return tuple(plural for plural in _POLICIES if plural in served)


@pytest.fixture(scope="session")
def kueue_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A manager and two workers under a real Kueue; pods of the workers run under kwok."""
    require_parts(tuple(parts_for(kueue=True, kwok=True)))
    folder = tmp_path_factory.mktemp("kueue-fleet")
    with start_fleet(workers=2, kueue=True, kwok=True, folder=folder) as fleet:
        for worker in fleet.workers:
            worker.create_nodes(_NODES_PER_WORKER, shape=NodeShape(), prefix=worker.name)
        with shared("kueue_fleet", fleet.clusters):
            yield fleet


@pytest.fixture(scope="session")
def bare_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A manager and two workers with Kueue's CRDs and no Kueue."""
    require_parts(tuple(parts_for(kueue=False, kwok=False)))
    folder = tmp_path_factory.mktemp("bare-fleet")
    with (
        start_fleet(workers=2, kueue=False, folder=folder) as fleet,
        shared("bare_fleet", fleet.clusters),
    ):
        yield fleet


@pytest.fixture(scope="session")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One API server with Kueue's CRDs, kube-controller-manager, and no Kueue."""
    require_parts(tuple(parts_for(kueue=False, kwok=False)))
    folder: Path = tmp_path_factory.mktemp("bare-cluster")
    with ControlPlane("bare", folder) as cluster, shared("bare_cluster", [cluster]):
        yield cluster


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[ControlPlane]:
    """Like ``bare_cluster``, without the objects of other tests, and gone after the test."""
    require_parts(tuple(parts_for(kueue=True, kwok=False)))
    with ControlPlane("own", tmp_path) as cluster:
        yield cluster


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Return a function from a prefix to a name that no other test uses."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"
