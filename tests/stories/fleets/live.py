"""Columns with clusters that are talked to over HTTP and live for a whole module of tests.

Shifts, or a Kueue, are kept from story to story as long as the Configuration is the same.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import yaml

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.controllers import JobRunner
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.manifests.names import KUEUE_NAMESPACE, MULTIKUEUE_ACCOUNT, PORTAL_ACCOUNT
from clusters.manifests.rbac import Post, role_documents
from clusters.manifests.rights import multikueue_rules, portal_rules
from clusters.reconcile.foreground import ForegroundShift
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.controlplane.queues import WORKER_RULES
from tests.kube.apply import apply_documents
from tests.reconcile.admission_harness import INSTALLATION, RunningShift, facts
from tests.reconcile.real_clusters import admin_client
from tests.resources import resource_of
from tests.stories.fleets.form import CLUSTERS, MANAGER, WORKERS, FleetStory
from tests.stories.fleets.objects import fleet_objects, shared_objects
from tests.stories.fleets.observer import Entry, Observer
from tests.stories.fleets.relay import Relay
from tests.stories.fleets.settings import configuration_of
from tests.stories.fleets.stage import RealTime
from tests.stories.pods import CountedPods, Pods, RealPods, counted_status
from tests.stories.stages import FEATURE_GATES

Document = dict[str, Any]
LOG_LINES = 80


class LiveStage(RealTime):
    """What the columns over HTTP have in common.

    Args:
        clients: Administrators' clients by cluster.
        relays: The manager's ways to the workers.
        pods: How pods are played.
    """

    is_kueue = False
    origin = INSTALLATION

    def __init__(
        self, clients: Mapping[str, KubeClient], relays: Mapping[str, Relay], pods: Pods
    ) -> None:
        self.clients, self.pods = clients, pods
        self._relays = relays
        self._observer = Observer(clients)
        self._setting: Mapping[str, Any] | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """With everything that stories share, watched; whoever decides is ended afterwards."""
        for name, client in self.clients.items():
            for document in (*shared_objects(), *(fleet_objects() if name == MANAGER else ())):
                client.create(resource_of(document), document)
        try:
            with self._observer:
                yield
        finally:
            self.end()
            self._remove_shared()

    def _remove_shared(self) -> None:
        for worker in WORKERS:
            self.clients[MANAGER].delete(r.MULTIKUEUE_CLUSTER, worker)
        for client in self.clients.values():
            for document in shared_objects():
                client.delete(resource_of(document), document["metadata"]["name"])

    def prepare(self, story: FleetStory) -> None:
        """Have whoever decides follow the story's Configuration."""
        if self._setting != story.setting:
            self.configure(configuration_of(story.setting))
            self._setting = dict(story.setting)

    def configure(self, configuration: Mapping[str, Any]) -> None:
        """Begin, or begin anew, with a Configuration."""
        raise NotImplementedError

    def end(self) -> None:
        """Whoever decides ends."""

    def cut(self, worker: str) -> None:
        self._relays[worker].cut()

    def restore(self, worker: str) -> None:
        self._relays[worker].restore()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def history_of(self, namespace: str) -> list[Entry]:
        # What happened last is on its way.
        self.wait(0.3)
        return self._observer.history.of(namespace)


class PortalStage(LiveStage):
    """The portal decides everywhere.

    Args:
        kubeconfigs: Of the portal's identity, by cluster.
        links: Kubeconfigs of the *multikueue* identity, by worker, through the relays.
    """

    def __init__(
        self,
        clients: Mapping[str, KubeClient],
        relays: Mapping[str, Relay],
        pods: Pods,
        *,
        kubeconfigs: Mapping[str, str],
        links: Mapping[str, str],
    ) -> None:
        super().__init__(clients, relays, pods)
        self._kubeconfigs, self._links = kubeconfigs, links
        self._configuration: Mapping[str, Any] = {}
        self._shifts: dict[tuple[str, str], RunningShift] = {}

    def configure(self, configuration: Mapping[str, Any]) -> None:
        self.end()
        self._configuration = configuration
        for name in CLUSTERS:
            self._start(name, "admission")
        self._start(MANAGER, "dispatch")

    def end(self) -> None:
        shifts, self._shifts = self._shifts, {}
        for shift in shifts.values():
            if not shift.is_over:
                shift.stop()
        errors = [shift.error for shift in shifts.values() if shift.error is not None]
        assert not errors, errors

    def restart(self, cluster: str) -> None:
        self._shifts.pop((cluster, "dispatch")).stop()
        self._start(cluster, "dispatch")

    def _start(self, name: str, role: str) -> None:
        shift = ForegroundShift(
            kubeconfig=self._kubeconfigs[name],
            role=role,
            facts=facts(
                name,
                is_manager=name == MANAGER,
                kueue_configuration={**self._configuration, "featureGates": dict(FEATURE_GATES)},
            ),
            holder=f"stories-{role}-{time.monotonic_ns()}",
            workers=dict(self._links) if role == "dispatch" else {},
        )
        self._shifts[name, role] = RunningShift(shift)


class KueueStage(LiveStage):
    """A real Kueue decides everywhere."""

    is_kueue = True
    origin = "multikueue"

    def __init__(
        self,
        fleet: Fleet,
        clients: Mapping[str, KubeClient],
        relays: Mapping[str, Relay],
        links: Mapping[str, str],
    ) -> None:
        super().__init__(clients, relays, RealPods())
        self._manager, self._workers = fleet.manager, fleet.workers
        self._links, self._renewals = links, 0
        self._is_begun = False
        self._configuration: Mapping[str, Any] = {}

    def prepare(self, story: FleetStory) -> None:
        """Kueue offers a job that comes while it connects anew to no worker, for good."""
        begins = self._setting != story.setting
        super().prepare(story)
        if begins or self._renewals:
            self.wait(3.0)

    def configure(self, configuration: Mapping[str, Any]) -> None:
        workers = [] if self._is_begun else self._workers
        self._is_begun, self._configuration = True, configuration
        with ThreadPoolExecutor() as pool:
            begun = [pool.submit(_run_kueue, plane, {}) for plane in workers]
            begun.append(pool.submit(_run_kueue, self._manager, configuration))
        for each in begun:
            each.result()

    def restart(self, cluster: str) -> None:
        _run_kueue(self._manager, self._configuration)

    def restore(self, worker: str) -> None:
        """Give the connection back, and have Kueue try it at once.

        Its back-off grows to minutes; a changed Secret ends it.
        """
        if not self._relays[worker].is_cut:
            return
        super().restore(worker)
        self._renewals += 1
        text = self._links[worker] + "\n" * self._renewals
        put_link(self._manager, worker, text)

    def told_of(self, namespace: str) -> str:
        """What the manager's Kueue logged of a story, and of its ways to the workers."""
        lines = self._manager.programs()["kueue"].log.read_text(errors="replace").splitlines()
        wanted = (f'"{namespace}"', f"{namespace}/", "multikueue-cluster", "multikueue-admission")
        found = [line[:400] for line in lines if any(word in line for word in wanted)]
        return "\n".join(found[-LOG_LINES:])

    def end(self) -> None:
        """Leave Kueue as it was found, for the tests that share the fleet."""
        if self._is_begun:
            with ThreadPoolExecutor() as pool:
                list(pool.map(_as_it_was, (self._manager, *self._workers)))


def _as_it_was(plane: ControlPlane) -> None:
    plane.stop_kueue(keep_webhooks=True)
    plane.start_kueue()


def _run_kueue(plane: ControlPlane, configuration: Mapping[str, Any]) -> None:
    plane.stop_kueue(keep_webhooks=True)
    plane.start_kueue(configuration, feature_gates=FEATURE_GATES)


def put_link(manager: ControlPlane, worker: str, kubeconfig: str) -> None:
    """Store the Secret that a MultiKueueCluster names."""
    path = f"/api/v1/namespaces/{KUEUE_NAMESPACE}/secrets/{worker}"
    data = {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()}
    metadata = {"name": worker, "namespace": KUEUE_NAMESPACE}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    manager.rest.apply(path, secret)


@contextmanager
def embedded_fleet() -> Iterator[PortalStage]:
    """Embedded clusters, reached over HTTP."""
    with ExitStack() as stack:
        servers, clients = {}, {}
        for name in CLUSTERS:
            cluster = DevCluster(ClusterOptions(name=name, bookmark_every_s=0.5))
            servers[name] = stack.enter_context(DevServer(cluster))
            runner = JobRunner(cluster, status_of=counted_status)
            runner.start()
            stack.callback(runner.stop)
            clients[name] = stack.enter_context(
                KubeClient.from_kubeconfig(servers[name].kubeconfig)
            )
        texts = {name: server.kubeconfig for name, server in servers.items()}
        relays, links = _relays(stack, {worker: texts[worker] for worker in WORKERS})
        stage = PortalStage(clients, relays, CountedPods(), kubeconfigs=texts, links=links)
        stack.enter_context(stage.at_work())
        yield stage


@contextmanager
def portal_fleet(fleet: Fleet) -> Iterator[PortalStage]:
    """Real API servers on which the portal decides, under the generated least rights."""
    planes = dict(zip(CLUSTERS, fleet.clusters, strict=True))
    with ExitStack() as stack:
        clients = {name: stack.enter_context(admin_client(each)) for name, each in planes.items()}
        for name in CLUSTERS:
            _grant(clients[name], is_manager=name == MANAGER)
        texts = {
            name: each.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE)
            for name, each in planes.items()
        }
        relays, links = _relays(
            stack,
            {
                worker: planes[worker].kubeconfig_for(MULTIKUEUE_ACCOUNT, namespace=KUEUE_NAMESPACE)
                for worker in WORKERS
            },
        )
        stage = PortalStage(clients, relays, RealPods(), kubeconfigs=texts, links=links)
        stack.enter_context(stage.at_work())
        yield stage


@contextmanager
def kueue_fleet_stage(fleet: Fleet) -> Iterator[KueueStage]:
    """Real control planes on which a real Kueue decides and dispatches."""
    planes = dict(zip(CLUSTERS, fleet.clusters, strict=True))
    with ExitStack() as stack:
        clients = {name: stack.enter_context(admin_client(each)) for name, each in planes.items()}
        texts = {}
        for worker in WORKERS:
            account = f"stories-{worker}"
            texts[worker] = planes[worker].kubeconfig_for(account, namespace=KUEUE_NAMESPACE)
            planes[worker].grant(account, namespace=KUEUE_NAMESPACE, rules=WORKER_RULES)
        relays, links = _relays(stack, texts)
        for worker, text in links.items():
            put_link(fleet.manager, worker, text)
        stage = KueueStage(fleet, clients, relays, links)
        stack.enter_context(stage.at_work())
        yield stage


def _grant(client: KubeClient, *, is_manager: bool) -> None:
    """The rights that an admin would apply, of both identities."""
    post = Post(
        is_manager=is_manager,
        is_portal_mode=True,
        installation=INSTALLATION,
        workers=WORKERS if is_manager else (),
    )
    documents = role_documents(portal_rules(post), account=PORTAL_ACCOUNT, name="gpu-budget-portal")
    if not is_manager:
        documents += role_documents(
            multikueue_rules(), account=MULTIKUEUE_ACCOUNT, name="gpu-budget-multikueue"
        )[1:]
    report = apply_documents(
        client, documents, options=WriteOptions(field_manager="kubectl", force=True)
    )
    assert report.is_complete, report.failed


def _relays(
    stack: ExitStack, kubeconfigs: Mapping[str, str]
) -> tuple[dict[str, Relay], dict[str, str]]:
    """A relay to each worker, and its kubeconfig with the relay's port."""
    relays, links = {}, {}
    for worker, text in kubeconfigs.items():
        port = urlsplit(yaml.safe_load(text)["clusters"][0]["cluster"]["server"]).port
        assert port is not None
        relays[worker] = stack.enter_context(Relay(port))
        links[worker] = text.replace(f":{port}", f":{relays[worker].port}")
    return relays, links
