"""Dispatch of one workload over several workers: look at all copies, say what to do.

Pure and level-triggered: asked again after its actions were carried out, it asks for nothing more.
The rules of ``multikueue_rules`` come first, then workers are nominated (8).

Source: Kueue pkg/controller/admissionchecks/multikueue/workload.go, v0.19.2; spec dispatch 2.3-2.9.
Deviations, each for safety: the winner is stored before its Job is made; ``clusterName`` wins over
an older Admitted copy; a copy made under an earlier reservation is removed; a worker that holds a
foreign Job of the name is passed over; quota is freed once the copy is proved to be gone; copies
are compared with what was sent, not with the manager's spec (defaults differ); a worker that left
the configuration gives its copies back.
Not here yet: gates of orchestrated preemption.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusters.documents import labels
from clusters.documents.keys import Document
from clusters.kueue.multikueue.dispatchers import InForce, Nomination, all_at_once
from clusters.kueue.multikueue.group import Copy, Group, GroupView
from clusters.kueue.multikueue.rules import CLUSTERS_LIMIT, RULES, remove_all
from clusters.kueue.multikueue.steps import CreateCopy, Nominate, RemoveCopy, Tell, Verdict

__all__ = ["Copy", "Group", "Verdict", "check_of", "decide"]


def decide(group: Group, *, dispatcher: InForce = all_at_once) -> Verdict:
    """Say what has to be done for a workload, in order; nothing when it is at rest."""
    if group.local is None or group.local["metadata"].get("deletionTimestamp"):
        return Verdict(remove_all(group, "gone"))
    view = GroupView(group, group.local)
    for rule in RULES:
        verdict = rule(view)
        if verdict is not None:
            return verdict
    return _nominate(view, dispatcher)


def check_of(local: Document, *, controllers: Mapping[str, str]) -> str:
    """Name of the first listed AdmissionCheck that dispatches; empty when there is none.

    ``controllers`` has ``spec.controllerName`` by AdmissionCheck name.
    """
    for entry in (local.get("status") or {}).get("admissionChecks") or ():
        if controllers.get(entry["name"]) == labels.MULTIKUEUE:
            return str(entry["name"])
    return ""


def _nominate(view: GroupView, dispatcher: InForce) -> Verdict:
    """8. Nominate, then race: only once every other check is ready."""
    others = [state for name, state in view.checks.items() if name != view.group.check]
    if view.state != "Pending" or view.chosen or any(state != "Ready" for state in others):
        return Verdict()
    group = view.group
    found = dispatcher(group) if group.siblings is None else _together(group, dispatcher)
    if found is None:
        return Verdict()
    # What cannot be looked at is not withdrawn: its copy might have been admitted just now.
    unseen = [name for name in view.nominated if name in group.lost]
    wanted = tuple(sorted({*found.clusters, *unseen}))[:CLUSTERS_LIMIT]
    withdrawn = tuple(
        RemoveCopy(name, why="withdrawn", only_unchanged=True)
        for name, copy in sorted(group.copies.items())
        if name not in wanted and copy.is_anything_ours
    )
    if withdrawn:
        return Verdict(withdrawn)
    is_offered = found.is_undecided or bool(set(wanted) & set(group.copies))
    told = () if is_offered else (_no_worker(group),)
    if set(wanted) != set(view.nominated):
        return Verdict((Nominate(wanted), *told), found.look_again, found.opened)
    missing = [n for n in wanted if n in group.copies and group.copies[n].workload is None]
    actions = (*(CreateCopy(name) for name in missing), *told)
    return Verdict(actions, found.look_again, found.opened)


def _together(group: Group, dispatcher: InForce) -> Nomination | None:
    """Where one Workload of a job goes, all go; the first one chooses. None while it waits."""
    siblings = group.siblings
    assert siblings is not None
    if not siblings.is_complete:
        return None
    if siblings.chosen:
        return Nomination((siblings.chosen,))
    return dispatcher(group) if siblings.is_first else None


def _no_worker(group: Group) -> Tell:
    parts = [f"{name}: {why}" for name, why in sorted(group.blocked.items())]
    parts += [f"{name}: not connected" for name in sorted(group.lost)]
    parts += [
        f"{name}: {offer.why_not}" for name, offer in sorted(group.offers.items()) if offer.why_not
    ]
    why = "; ".join(parts) or "none is configured"
    return Tell("MultiKueueNoWorker", f"No worker can take the workload now ({why})")
