"""Where stories are played: embedded clusters, real API servers, a real Kueue; emptied in between.

The portal's shifts work under the generated least rights and a real Kueue under its own; a story's
Configuration goes to whoever decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from clusters.devcluster.cluster import ClusterOptions, DevCluster
from clusters.devcluster.controllers import JobRunner
from clusters.devcluster.registry import BY_KEY
from clusters.devcluster.server import DevServer
from clusters.documents import labels
from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import (
    DeleteOptions,
    KubeClient,
    Propagation,
    WriteOptions,
)
from clusters.manifests.names import KUEUE_NAMESPACE, PORTAL_ACCOUNT
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post, role_documents
from clusters.manifests.rights import portal_rules
from clusters.manifests.wish import PolicyWish
from clusters.reconcile.foreground import ForegroundShift
from clusters.reconcile.warm_engine import LIMIT_RANGE, RUNTIME_CLASS
from tests.controlplane.control_plane import ControlPlane
from tests.kube.apply import apply_documents
from tests.reconcile.admission_harness import INSTALLATION, RunningShift, facts
from tests.reconcile.real_clusters import admin_client
from tests.stories.documents import NAMESPACE, documents_of
from tests.stories.player import Stage
from tests.stories.pods import CountedPods, RealPods, counted_status
from tests.stories.story import MAIN, Story
from tests.waiting import eventually

# In the order in which they go: what holds others back goes later.
_LEFT_BEHIND = (
    r.JOB, r.WORKLOAD, r.LOCAL_QUEUE, r.CLUSTER_QUEUE, r.COHORT, r.ADMISSION_CHECK,
    r.RESOURCE_FLAVOR, r.WORKLOAD_PRIORITY_CLASS, r.PRIORITY_CLASS, LIMIT_RANGE, RUNTIME_CLASS,
    r.POD, r.EVENT,
)  # fmt: skip
# The released binary has it off unless told; stories that say so are played without it, too.
FEATURE_GATES: Mapping[str, bool] = {"UnadmittedWorkloadsObservability": True}
_AT_ONCE = DeleteOptions(propagation=Propagation.BACKGROUND)


@contextmanager
def embedded_stage(story: Story) -> Iterator[Stage]:
    """Fresh embedded clusters with a shift on each."""
    with ExitStack() as stack:
        clients: dict[str, KubeClient] = {}
        for name in story.clusters:
            cluster = DevCluster(ClusterOptions(name=name, bookmark_every_s=0.5))
            server = stack.enter_context(DevServer(cluster))
            runner = JobRunner(cluster, status_of=counted_status)
            runner.start()
            stack.callback(runner.stop)
            client = stack.enter_context(KubeClient.from_kubeconfig(server.kubeconfig))
            make_namespace(client)
            clients[name] = client
            stack.enter_context(_shift(name, server.kubeconfig, story))
        yield Stage(clients, CountedPods())


@contextmanager
def portal_stage(plane: ControlPlane, story: Story) -> Iterator[Stage]:
    """A real API server on which the portal decides, under its least rights."""
    with admin_client(plane) as client:
        empty(client)
        make_namespace(client)
        kubeconfig = plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE)
        with _shift(plane.name, kubeconfig, story):
            yield Stage({MAIN: client}, RealPods())
            empty(client)


class KueueCluster:
    """A real API server with a real Kueue, which begins anew when a story configures it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._configuration: Mapping[str, Any] | None = None

    @contextmanager
    def stage(self, story: Story) -> Iterator[Stage]:
        """The cluster, empty, with Kueue as the story wants it."""
        wanted = portal_configuration(story)
        if self._configuration != wanted:
            if self._configuration is not None:
                self._plane.stop_kueue(keep_webhooks=True)
            self._configuration = None
            self._plane.start_kueue(story.configuration, feature_gates=wanted["featureGates"])
            self._configuration = wanted
        with admin_client(self._plane) as client:
            empty(client)
            make_namespace(client)
            yield Stage({MAIN: client}, RealPods(), is_kueue=True)
            empty(client)


def portal_configuration(story: Story) -> dict[str, Any]:
    """A story's Configuration, with the gates that Kueue is told in its arguments."""
    gates = dict.fromkeys(FEATURE_GATES, story.is_fine)
    return {**story.configuration, "featureGates": gates}


def prepare_portal_plane(plane: ControlPlane) -> None:
    """The rights and policies that an admin would apply."""
    post = Post(is_manager=False, is_portal_mode=True, installation=INSTALLATION)
    documents = (
        *role_documents(portal_rules(post), account=PORTAL_ACCOUNT, name="gpu-budget-portal"),
        *policy_documents(PolicyWish(post, allows_local_jobs=True)),
    )
    with admin_client(plane) as client:
        report = apply_documents(
            client, documents, options=WriteOptions(field_manager="kubectl", force=True)
        )
    assert report.is_complete, report.failed


def is_played_embedded(story: Story) -> bool:
    """Whether embedded clusters may play it, and serve every kind that it has objects of."""
    if "embedded" not in story.columns:
        return False
    served = {kind.kind for kind in BY_KEY.values()}
    entries = [*story.objects, *(step.given for step in story.steps if step.action == "create")]
    flat = [item for entry in entries for item in (entry if isinstance(entry, list) else [entry])]
    return all(document["kind"] in served for item in flat for document in documents_of(item))


def empty(client: KubeClient) -> None:
    """Take everything away that a story may have left, and wait until it is gone."""
    for resource in _LEFT_BEHIND:
        eventually(lambda each=resource: not _delete_all(client, each))


def _delete_all(client: KubeClient, resource: r.Resource) -> list[str]:
    """Names of what is still there, after all of it was told to go."""
    left = [
        document
        for document in client.list(resource).items
        if not document["metadata"]["name"].startswith("system-")
    ]
    for document in left:
        metadata = document["metadata"]
        if "deletionTimestamp" in metadata and resource != r.WORKLOAD:
            continue
        try:
            client.delete(
                resource, metadata["name"], namespace=metadata.get("namespace"), options=_AT_ONCE
            )
        except NotFound:
            continue
    return [document["metadata"]["name"] for document in left]


def make_namespace(client: KubeClient) -> None:
    try:
        client.get(r.NAMESPACE, NAMESPACE)
    except NotFound:
        metadata = {"name": NAMESPACE, "labels": {labels.INSTALLATION: INSTALLATION}}
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        client.create(r.NAMESPACE, document)


@contextmanager
def _shift(name: str, kubeconfig: str, story: Story) -> Iterator[None]:
    shift = ForegroundShift(
        kubeconfig=kubeconfig,
        role="admission",
        facts=facts(name, kueue_configuration=portal_configuration(story)),
        holder=f"story-{story.name}-{time.monotonic_ns()}",
    )
    running = RunningShift(shift)
    try:
        yield
    finally:
        if not running.is_over:
            running.stop()
    if running.error is not None:
        raise running.error
