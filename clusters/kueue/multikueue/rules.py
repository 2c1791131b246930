"""What holds for a workload before workers are nominated: the rules of dispatch, in their order.

Each looks at the workload with all its copies and says what to do, or that it has nothing to say;
the first that speaks decides. The numbers are those of Kueue's group decision list.

Source: Kueue pkg/controller/admissionchecks/multikueue/workload.go, v0.19.2; spec dispatch 2.3-2.9.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Final

from clusters.documents.conditions import condition, is_true
from clusters.documents.keys import Document
from clusters.kueue.multikueue import steps as step
from clusters.kueue.multikueue.group import Group, GroupView, since
from clusters.kueue.multikueue.steps import Verdict

CLUSTERS_LIMIT: Final = 20
OUT_OF_SYNC: Final = "OutOfSync"
OWNER_NOT_FOUND: Final = "OwnerNotFound"
# So long a Finished copy waits for the end of its Job to be told, too.
JOB_TOLD_WITHIN: Final = timedelta(seconds=60)


def _without_check(view: GroupView) -> Verdict | None:
    """Entry: somebody else's business, or already rejected."""
    if view.state == "" and view.has_quota:
        return Verdict()
    return Verdict() if view.state == "Rejected" else None


def _without_quota(view: GroupView) -> Verdict | None:
    """2. Finished, or without quota: nothing of it may be left on workers."""
    if view.has_quota and not is_true(view.local, "Finished"):
        return None
    group = view.group
    if group.is_handed_over:
        # Its Job is its successor's by now, or will be as soon as a worker has let that in.
        kept = {name for name, copy in group.copies.items() if copy.has_job}
        return Verdict(remove_all(group, "replaced", but=kept))
    again = group.now + group.worker_lost_timeout if group.lost else None
    return Verdict(remove_all(group, "released"), again)


def _not_dispatchable(view: GroupView) -> Verdict | None:
    """Entry: its Job would run here, or no adapter knows it. Never written under Evicted."""
    if not view.group.refusal or view.is_evicted or view.state != "Pending":
        return None
    return Verdict((step.SetCheck("Rejected", _after(view, view.group.refusal)),))


def _stale_copies(view: GroupView) -> Verdict | None:
    """Copies of an earlier reservation, as a returning worker brings them, go first."""
    current = {name for name, copy in view.group.copies.items() if copy.is_current}
    stale = remove_all(view.group, "stale", but=current)
    return Verdict(stale) if stale else None


def _finished(view: GroupView) -> Verdict | None:
    """3. A copy has finished: its status first, then Finished with its words."""
    found = view.first("Finished")
    if found is None:
        return None
    name, workload = found
    ended = condition(workload, "Finished")
    if ended.get("reason") == OUT_OF_SYNC:
        return _out_of_sync(view, name)
    if ended.get("reason") == OWNER_NOT_FOUND:
        # Its Job was deleted there, by somebody or just now by us: that is no end of the manager's.
        return Verdict((step.RemoveCopy(name, why="job-deleted"),))
    if view.group.copies[name].has_foreign_job:
        return _foreign(name)
    # Workloads and Jobs come by two watches: with the end that is not told yet would be lost the
    # Job's last status, for its copy goes once the workload is Finished.
    if view.group.copies[name].is_job_unread:
        return Verdict((step.ReadJob(name),))
    told_by = since(workload, "Finished") + JOB_TOLD_WITHIN
    if view.group.copies[name].is_job_open and told_by > view.group.now:
        return Verdict((step.CopyStatus(name),), told_by)
    finish = step.Finish(name, str(ended.get("reason", "")), str(ended.get("message", "")))
    return Verdict((step.CopyStatus(name), finish))


def _left(view: GroupView) -> Verdict | None:
    """Copies on workers that are dispatched to no more; where it ran there, 6a starts it over."""
    gone = remove_all(view.group, "left", but=view.group.copies.keys() - view.group.left)
    return Verdict(gone) if gone else None


def _out_of_sync(view: GroupView, name: str) -> Verdict | None:
    """The worker found Job and Workload to differ; that end is never taken over."""
    text = (
        f'Remote workload on worker cluster "{name}" is out of sync with its user job, '
        "resetting for re-dispatch"
    )
    copy = view.group.copies[name]
    if view.is_evicted:
        # What has ended is never evicted there: its worker stops the Job, which tells that.
        if copy.has_job and copy.is_job_ours and not view.group.is_silent:
            return Verdict((step.CopyStatus(name),))
        return Verdict((step.RemoveCopy(name, why="out-of-sync"),))
    if view.state == "Ready":
        told = step.Tell("MultiKueueOutOfSync", text)
        return Verdict((step.SetCheck("Retry", _after(view, text)), told))
    if view.state == "Pending":
        remove = step.RemoveCopy(
            name, why="out-of-sync", blocks="its copy and its Job differed there"
        )
        return Verdict((step.Tell("MultiKueueOutOfSync", text), remove))
    return Verdict()


def _evicted(view: GroupView) -> Verdict | None:
    """4. A copy was evicted: follow it if the manager knows, else start over."""
    found = view.first("Evicted")
    if found is None:
        return None
    name, workload = found
    if view.is_evicted and view.group.is_silent and not is_true(workload, "QuotaReserved"):
        return None  # the worker has seen to it that nothing runs, and no status will say so
    if view.is_evicted:
        return Verdict((step.CopyStatus(name),)) if view.group.copies[name].has_job else None
    if view.state != "Ready":
        return None
    text = (
        f'Workload evicted on worker cluster: "{name}", resetting for re-admission. '
        'Previously: "Ready"'
    )
    return Verdict((step.SetCheck("Retry", text), step.Tell("MultiKueueEvictedOnWorker", text)))


def _changed(view: GroupView) -> Verdict | None:
    """5. Copies that somebody changed go; a changed priority follows."""
    actions: list[step.Action] = []
    spec = view.local.get("spec") or {}
    for name, workload in sorted(view.standing().items()):
        copied = workload.get("spec") or {}
        if not view.group.copies[name].is_as_sent or _limit(spec) != _limit(copied):
            actions.append(step.RemoveCopy(name, why="changed"))
        elif _is_put_out(view, copied):
            # Its worker may have done so itself, and would again: not at once, then.
            actions.append(
                step.RemoveCopy(name, why="changed", blocks="its copy was deactivated there")
            )
        elif not view.is_evicted and _priority(spec) != _priority(copied):
            reference = spec.get("priorityClassRef")
            actions.append(step.UpdatePriority(name, int(spec.get("priority") or 0), reference))
    return Verdict(tuple(actions)) if actions else None


def _admitted(view: GroupView) -> Verdict | None:
    """6. Where it is admitted, there it runs; everywhere else it goes away."""
    found = view.first("Admitted")
    if found is None:
        return _nowhere_admitted(view) if view.state == "Ready" and not view.is_evicted else None
    name, workload = found
    group = view.group
    losers = remove_all(group, "lost", but={name})
    if view.is_evicted:
        is_told = (workload.get("spec") or {}).get("active") is False
        return Verdict((*losers, *(() if is_told else (step.StopCopy(name),))))
    copy = group.copies[name]
    if copy.has_foreign_job:
        return _foreign(name)
    if (copy.is_adopted and not copy.has_job) or copy.has_lost:
        # Its Job was deleted on the worker; made again it would run twice under one admission.
        return Verdict((step.RemoveCopy(name, why="job-deleted"),))
    if view.state == "Pending" or (view.state == "Ready" and not view.chosen):
        # Somebody else set it Ready: the winner is stored before its Job is made.
        return Verdict(_choose(view, name, losers))
    if view.state != "Ready":
        return Verdict(losers)
    made: tuple[step.Action, ...] = (step.CopyStatus(name),) if copy.has_job else ()
    if copy.is_short or not copy.has_job:
        made += (step.CreateJob(name),)
    elif copy.is_behind:
        made += (step.FollowJob(name),)
    return Verdict((*made, *losers))


def _choose(view: GroupView, name: str, losers: tuple[step.Action, ...]) -> tuple[step.Action, ...]:
    """The write that makes a worker the one; only ever one that was nominated before."""
    if view.chosen or name in view.nominated:
        return (step.Choose(name), *losers)
    return (step.Nominate(tuple(sorted({*view.nominated, name})[:CLUSTERS_LIMIT])),)


def _nowhere_admitted(view: GroupView) -> Verdict:
    """6a. The check is Ready, and no reachable worker has it admitted."""
    group = view.group
    if not view.chosen:
        text = (
            "Admission check is Ready but no admitting cluster is recorded; "
            "this is unexpected, please report it"
        )
        return Verdict((step.SetCheck("Retry", _after(view, text)),))
    since = group.lost.get(view.chosen)
    if since is None:
        return Verdict((step.SetCheck("Retry", _after(view, "Admitting remote no longer exists")),))
    ends = since + group.worker_lost_timeout
    if ends > group.now:
        return Verdict(look_again=ends)
    return Verdict((step.SetCheck("Retry", _after(view, "Admitting remote lost")),))


def _after(view: GroupView, text: str) -> str:
    """A check's message with the state that it leaves, as Kueue words it."""
    return f'{text}, Previously: "{view.state}"'


def _settling(view: GroupView) -> Verdict | None:
    """An eviction is on its way through: clear up, and free what cannot free itself."""
    if not view.is_evicted:
        return None
    group = view.group
    left = remove_all(group, "evicted")
    if left or not group.is_job_active:
        return Verdict(left)
    if group.is_stop_due:
        return Verdict()  # a Job that was not told to stop may not lose its start time
    waits = [since + group.worker_lost_timeout for since in group.lost.values()]
    if waits and max(waits) > group.now:
        return Verdict(look_again=max(waits))
    return Verdict((step.MarkJobInactive(),))


def _foreign(name: str) -> Verdict:
    text = f'remote object is not owned by MultiKueue: a Job of this name exists on "{name}"'
    remove = step.RemoveCopy(
        name, why="foreign", blocks="a Job of this name that is not ours is there"
    )
    return Verdict((step.Tell("MultiKueueForeignJob", text), remove))


def remove_all(group: Group, why: str, *, but: Collection[str] = ()) -> tuple[step.Action, ...]:
    """Every copy that is ours goes, or what is left of one; but those of some workers."""
    return tuple(
        step.RemoveCopy(name, why=why)
        for name, copy in sorted(group.copies.items())
        if copy.is_anything_ours and name not in but
    )


def _is_put_out(view: GroupView, copied: Document) -> bool:
    """Whether a copy that still waits to be chosen was deactivated, by anybody but the manager.

    Once it is chosen its worker evicts it, which starts it over in order.
    """
    if view.is_evicted or view.state != "Pending":
        return False
    return copied.get("active") is False and view.local["spec"].get("active") is not False


def _limit(spec: Document) -> int:
    return int(spec.get("maximumExecutionTimeSeconds") or 0)


def _priority(spec: Document) -> tuple[Any, ...]:
    reference = spec.get("priorityClassRef") or {}
    return int(spec.get("priority") or 0), reference.get("name", "")


RULES: Final[tuple[Callable[[GroupView], Verdict | None], ...]] = (
    _without_quota,
    _without_check,
    _stale_copies,
    _not_dispatchable,
    _finished,
    _left,
    _evicted,
    _changed,
    _admitted,
    _settling,
)
