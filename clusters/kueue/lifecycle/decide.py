"""What has to happen to one Workload outside of cycles: admit, evict, deactivate, requeue.

Pure and level-triggered: asked again with the resulting document, it has nothing left to say. The
caller writes; times come in as ``now``. Back-off has no jitter here.

Source: Kueue pkg/controller/core/workload_controller.go, pkg/workload/{workload,evict}.go, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from budgets.plan import StopPolicy
from clusters.kueue.configuration import PodsReadyRules
from clusters.kueue.cycle.engine import BYPASSED_MESSAGE, Engine
from clusters.kueue.lifecycle import steps as step
from clusters.kueue.quota.specifications import ClusterQueueSpec, LocalQueueSpec
from clusters.kueue.workload.parser import parse_time

Document: TypeAlias = Mapping[str, Any]

_ENDS_BACKOFF: Final = frozenset({"PodsReadyTimeout", "AdmissionCheck"})
_REQUEUED_AT_ONCE: Final = frozenset({"Preempted", "NodeFailures"})
# What is not said any more of one that is passed over; what a cycle found against it is.
_PASSED_OVER: Final = frozenset({"", "Deactivated", "PendingEvaluation", "Suspended", "Pending"})


@dataclass(frozen=True, slots=True)
class _View:
    """One workload and what surrounds it."""

    engine: Engine
    spec: Document
    status: Document
    key: str
    conditions: Mapping[str, Document]
    queue: ClusterQueueSpec | None
    local_queue: LocalQueueSpec | None
    now: datetime

    def is_true(self, name: str) -> bool:
        return self.condition(name).get("status") == "True"

    def condition(self, name: str) -> Document:
        return self.conditions.get(name, {})

    def since(self, name: str) -> datetime:
        return parse_time(self.condition(name).get("lastTransitionTime")) or self.now

    @property
    def is_active(self) -> bool:
        return self.spec.get("active", True) is not False

    @property
    def is_running(self) -> bool:
        return self.is_true("Admitted") and not self.is_true("Evicted")

    @property
    def holds_quota(self) -> bool:
        return self.is_true("QuotaReserved") and bool(self.status.get("admission"))


def next_steps(engine: Engine, document: Document, *, now: datetime) -> tuple[step.Step, ...]:
    """Say what has to be written to a Workload now; the engine is not changed.

    Returns:
        At most one step: the most urgent one that changes the workload's state, or ``LookAgain``
        when time alone will bring the next. Nothing for a finished workload.

    Raises:
        KeyError: a required field is missing.
        ValueError: a time is malformed.
    """
    view = _view(engine, document, now)
    if view.is_true("Finished"):
        return ()
    found = next((due for rule in _RULES if (due := rule(view)) is not None), None)
    return () if found is None else (found,)


def is_requeued_at_once(eviction_reason: str) -> bool:
    """Status of the Requeued condition once an evicted workload has stopped."""
    return eviction_reason in _REQUEUED_AT_ONCE


def backoff(count: int, *, rules: PodsReadyRules) -> timedelta:
    """How long a workload waits after its ``count``-th time-out (from 1)."""
    seconds = rules.backoff_base_s * 2 ** min(count - 1, 32)
    return timedelta(seconds=min(seconds, rules.backoff_max_s))


def _view(engine: Engine, document: Document, now: datetime) -> _View:
    metadata, spec = document["metadata"], document.get("spec") or {}
    status = document.get("status") or {}
    namespace = metadata.get("namespace", "")
    state = engine.state
    local_queue = state.queues.local_queues.get(f"{namespace}/{spec.get('queueName', '')}")
    admission = status.get("admission") or {}
    name = admission.get("clusterQueue") or (local_queue.cluster_queue if local_queue else "")
    queue = state.snapshot.queues.get(name)
    return _View(
        engine=engine,
        spec=spec,
        status=status,
        key=f"{namespace}/{metadata['name']}",
        conditions={item["type"]: item for item in status.get("conditions") or ()},
        queue=queue.spec if queue is not None else None,
        local_queue=local_queue,
        now=now,
    )


def _deactivation(view: _View) -> step.Step | None:
    target = view.condition("DeactivationTarget")
    if view.is_active:
        return step.SetInactive() if view.is_true("DeactivationTarget") else None
    evicted = view.condition("Evicted")
    if view.is_true("Evicted") and str(evicted.get("reason", "")).startswith("Deactivated"):
        return None
    message = "The workload is deactivated"
    if not view.is_true("DeactivationTarget"):
        return step.Evict("Deactivated", message)
    cause = str(target.get("reason", ""))
    message += f" due to {target.get('message', '')}"
    return step.Evict(f"DeactivatedDueTo{cause}", message, cause)


def _priority(view: _View) -> step.Step | None:
    reference = view.spec.get("priorityClassRef") or {}
    if reference.get("group") != "kueue.x-k8s.io":
        return None
    value = view.engine.state.priority_classes.get(reference.get("name", ""))
    if value is None or value == view.spec.get("priority"):
        return None
    return step.SetPriority(value)


def _requeueing(view: _View) -> step.Step | None:
    """End what blocks queueing, once its reason is gone."""
    if not view.is_active or view.condition("Requeued").get("status") != "False":
        return None
    reason = str(view.condition("Requeued").get("reason", ""))
    if reason.startswith("Deactivated"):
        return step.MarkRequeued("Reactivated", "The workload was reactivated")
    if reason in _ENDS_BACKOFF:
        requeue_at = parse_time((view.status.get("requeueState") or {}).get("requeueAt"))
        if requeue_at is not None and requeue_at > view.now:
            return step.LookAgain(requeue_at)
        return step.MarkRequeued("BackoffFinished", "The workload backoff was finished")
    for kind, queue in (("LocalQueue", view.local_queue), ("ClusterQueue", view.queue)):
        runs = queue is not None and queue.stop_policy is StopPolicy.NONE
        if reason == f"{kind}Stopped" and runs:
            message = f"The {kind} was restarted after being stopped"
            return step.MarkRequeued(f"{kind}Restarted", message)
    return None


def _checks(view: _View) -> step.Step | None:
    """Follow the AdmissionChecks: reject, retry, list, or admit."""
    if view.queue is None or view.is_true("Evicted") or not view.is_active:
        return None
    listed = {item["name"]: item for item in view.status.get("admissionChecks") or ()}
    rejected = [item for item in listed.values() if item.get("state") == "Rejected"]
    if rejected:
        message = _told_checks(rejected, "Rejected")
        return step.TargetDeactivation("AdmissionCheck", message)
    retrying = [item for item in listed.values() if item.get("state") == "Retry"]
    if retrying:
        message = f"Evicted due to {_told_checks(retrying, 'Retry')}"
        times = [item for item in map(_retry_at, retrying) if item is not None]
        return step.Evict("AdmissionCheck", message, requeue_at=max(times, default=None))
    held = view.status["admission"].get("podSetAssignments") or () if view.holds_quota else ()
    flavors = {flavor for item in held for flavor in (item.get("flavors") or {}).values()}
    wanted = view.queue.checks_for(flavors)
    if set(wanted) != set(listed):
        return step.ListChecks(wanted)
    is_ready = all(listed[name].get("state") == "Ready" for name in wanted)
    if view.holds_quota and is_ready and not view.is_true("Admitted"):
        return step.MarkAdmitted()
    return None


def _stopping(view: _View) -> step.Step | None:
    """Drain, or withdraw what is reserved but not admitted, when a queue is stopped."""
    if not view.holds_quota or view.is_true("Evicted"):
        return None
    for kind, queue in (("LocalQueue", view.local_queue), ("ClusterQueue", view.queue)):
        if queue is None or queue.stop_policy is StopPolicy.NONE:
            continue
        if not view.is_true("Admitted"):
            return step.Withdraw("Suspended", f"The {kind} is stopped")
        if queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return step.Evict(f"{kind}Stopped", f"The {kind} is stopped")
    return None


def _execution_ends(view: _View) -> datetime | None:
    limit = view.spec.get("maximumExecutionTimeSeconds")
    if limit is None or not view.is_running:
        return None
    used = int(view.status.get("accumulatedPastExecutionTimeSeconds") or 0)
    return _later(view.since("Admitted"), int(limit) - used)


def _later(at: datetime, seconds: float) -> datetime | None:
    """So many seconds after a time; None where that is beyond all calendars."""
    try:
        return at + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _pods_due(view: _View) -> datetime | None:
    rules = view.engine.configuration.pods_ready
    if rules is None or not view.is_running or view.is_true("PodsReady"):
        return None
    if view.condition("PodsReady").get("reason") == "WaitForRecovery":
        begin, limit = view.since("PodsReady"), rules.recovery_timeout_s
    else:
        begin, limit = view.since("Admitted"), rules.timeout_s
    return None if limit is None else _later(begin, limit)


def _execution_time(view: _View) -> step.Step | None:
    ends_at = _execution_ends(view)
    if ends_at is None or ends_at > view.now:
        return None
    message = "exceeding the maximum execution time"
    return step.TargetDeactivation("MaximumExecutionTimeExceeded", message, True)


def _pods_ready(view: _View) -> step.Step | None:
    """Evict what does not get its pods ready in time; more often than allowed, deactivate it."""
    rules, due_at = view.engine.configuration.pods_ready, _pods_due(view)
    if rules is None or due_at is None or due_at > view.now:
        return None
    count = int((view.status.get("requeueState") or {}).get("count") or 0) + 1
    if rules.backoff_limit is not None and count > rules.backoff_limit:
        message = "exceeding the maximum number of re-queuing retries"
        return step.TargetDeactivation("RequeuingLimitExceeded", message)
    message = f"Exceeded the PodsReady timeout {view.key}"
    at = view.now + backoff(count, rules=rules)
    was_ready = view.condition("PodsReady").get("reason") == "WaitForRecovery"
    cause = "WaitForRecovery" if was_ready else "WaitForStart"
    return step.Evict("PodsReadyTimeout", message, cause, count, at)


def _refusal(view: _View) -> step.Step | None:
    """Say why the workload waits in no queue, if it does not say so yet.

    Without the gate UnadmittedWorkloadsObservability only of queues and gates.
    """
    if view.holds_quota:
        return None
    is_fine = view.engine.configuration.gates.unadmitted_workloads_observability
    if not view.is_active:
        return _explained(view, "Deactivated", "The workload is deactivated") if is_fine else None
    state = view.engine.state
    refusal = state.queues.refusal(view.key)
    if refusal is not None:
        return _explained(view, refusal.reason, refusal.message)
    queue = state.snapshot.queues.get(view.queue.name) if view.queue else None
    if queue is not None and not queue.is_active:
        return _explained(view, "Suspended", f"ClusterQueue {queue.spec.name} is inactive")
    if is_fine and view.condition("QuotaReserved").get("reason") in _PASSED_OVER:
        reason = state.queues.reason_of_equals(view.key)
        return _explained(view, reason, BYPASSED_MESSAGE) if reason else None
    return None


def _explained(view: _View, reason: str, message: str) -> step.Step | None:
    shown = view.condition("QuotaReserved")
    if (shown.get("status"), shown.get("message")) == ("False", message):
        return None
    return step.ExplainWaiting(reason, message)


def _deadlines(view: _View) -> step.Step | None:
    """When time alone changes something."""
    times = [at for at in (_execution_ends(view), _pods_due(view)) if at is not None]
    return step.LookAgain(min(times)) if times else None


_RULES: Final[tuple[Callable[[_View], step.Step | None], ...]] = (
    _deactivation,
    _priority,
    _requeueing,
    _execution_time,
    _stopping,
    _checks,
    _pods_ready,
    _refusal,
    _deadlines,
)


def _told_checks(checks: Sequence[Document], state: str) -> str:
    noun = "AdmissionCheck" if len(checks) == 1 else "AdmissionChecks"
    named = [
        f'"{item["name"]}" ({item["message"]})' if item.get("message") else f'"{item["name"]}"'
        for item in sorted(checks, key=lambda item: str(item["name"]))
    ]
    return f"{noun} in {state} state: {'; '.join(named)}"


def _retry_at(check: Document) -> datetime | None:
    since = parse_time(check.get("lastTransitionTime"))
    if since is None:
        return None
    return _later(since, int(check.get("requeueAfterSeconds") or 0))
