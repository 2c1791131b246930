"""An engine on the documents that the portal's own budgets become, and answers out of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from budgets.plan import plan_quota
from budgets.selectors import promises_in_force
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.asking import answer_document, read_changes
from clusters.kueue.explanation.what_if import what_if
from clusters.manifests.translate import render
from clusters.models import Cluster, Question
from clusters.selectors.places import active_workers, place_of, site_of
from tests.explained.evidence import GPU
from tests.kueue.builders import pod_set, reserved, workload

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def job(name: str, namespace: str, gpus: int, **more: Any) -> dict[str, Any]:
    """A Workload in the default queue of a workspace."""
    document = workload(name, "default", pod_set({GPU: gpus}), **more)
    document["metadata"]["namespace"] = namespace
    return document


def held(name: str, namespace: str, gpus: int, *, flavor: str = "h100") -> dict[str, Any]:
    """The same with quota reserved and admitted."""
    return reserved(job(name, namespace, gpus), namespace, flavor=flavor)


def portal_documents(cluster: Cluster) -> tuple[dict[str, Any], ...]:
    """What the portal would apply to a cluster."""
    place = place_of(
        cluster.slug,
        is_manager=cluster.is_manager,
        workers=active_workers() if cluster.is_manager else (),
    )
    site = site_of(is_manager=cluster.is_manager, generation=1)
    return render(plan_quota(promises_in_force(), place), site=site)


def engine_of(cluster: Cluster, *workloads: dict[str, Any]) -> Engine:
    """An engine that knows what the portal would apply to a cluster, and these workloads."""
    engine = Engine()
    for document in (*portal_documents(cluster), *workloads):
        if document["kind"] in engine.kinds:
            active = {"conditions": [{"type": "Active", "status": "True"}]}
            is_check = document["kind"] == "AdmissionCheck"
            engine.upsert({**document, "status": active} if is_check else document, now=NOW)
    while engine.cycle(NOW).has_moved:
        pass
    return engine


def answer(engine: Engine, question: Question) -> None:
    """Answer as the cluster's shift would."""
    forecast = what_if(engine, read_changes(question.asked["changes"]), now=NOW)
    question.answer = answer_document(engine, forecast) | {"tookMs": 7}
    question.answered_at = datetime.now(UTC)
    question.save(update_fields=["answer", "answered_at"])
