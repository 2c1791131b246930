"""The form of a dispatch story: what is there, what happens, what has to come of it.

One YAML file, played in every column of ``COLUMNS`` on a manager with two workers::

    story: A job runs where there is room.       # one sentence
    covers: [J1, "2.4 step 6b"]                  # of spec/dispatch.md: section 8's ids, or sections
    quick: [portal]                              # columns in whose short set it is
    without: {kueue: why this column cannot}     # columns that do not play it
    setting: {dispatcherName: ...}               # of the Configuration's multiKueue
    workers: [worker-1, worker-2]                # order in the MultiKueueConfig
    quota: {manager: 16, worker-1: 8}            # GPUs; a cluster that is not named has no queue
    namespaces: [manager, worker-1]              # clusters that have the namespace; all without it
    objects: [...]                               # on the manager, or ``where:`` else cluster
    steps:
      - create: {job: train, gpus: 2}
      - winner: train                            # from here on: ``winner`` and ``other``
      - pods: {job: train, succeeded: 1}
        where: winner
      - patch: {kind: Job, name: train, body: {...}, subresource: status}
      - delete: {kind: Job, name: train}
      - check: {job: train, check: nodes, state: Ready}
      - cut: worker-1                            # the manager's connection only
      - restore: worker-1
      - restart: manager                         # whoever dispatches dies and begins anew
      - wait: 1.5                                # seconds, where only time changes something
      - until: {workloads: {train: Admitted}}    # expectations, not compared
      - look: it runs                            # expectations, and every field compared
        workloads: {train: Admitted}
        portal: {why: ..., workloads: {...}}     # where the portal's outcome is another on purpose
    deviations: [{at: ..., kueue: ..., portal: ..., why: ...}]
    breaks: {two-jobs: why}                      # invariants that a real Kueue breaks here

Expectations, by job: ``workloads`` (state on the manager), ``cluster`` (its clusterName, null for
none), ``nominated``, ``copies`` and ``jobs`` (workers that hold one), ``checks`` (state of the
MultiKueue check), ``status`` (part of the manager's job status); ``active``: worker → true, false.

Every field of a look is what a real Kueue wrote (``recorded/``), deviations aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stories.story import STATES, Deviation, StoryError, read_yaml

COLUMNS = ("memory", "embedded", "portal", "kueue")
MANAGER, WORKERS = "manager", ("worker-1", "worker-2")
CLUSTERS = (MANAGER, *WORKERS)
ALIASES = ("winner", "other")
FOLDER = Path(__file__).parent.parent / "dispatch"
COMMON = Path(__file__).parent / "deviations.yaml"
ACTIONS = (
    "create", "patch", "delete", "pods", "check", "cut", "restore", "restart", "wait", "winner",
    "until", "look",
)  # fmt: skip
EXPECTATIONS = frozenset(
    {"workloads", "cluster", "nominated", "copies", "jobs", "checks", "status", "active"}
)
BREAKABLE = ("two-jobs", "unnominated", "retry-under-eviction", "orphans")
_TOP = {
    "story", "covers", "quick", "without", "setting", "workers", "quota", "objects", "steps",
    "deviations", "breaks", "namespaces",
}  # fmt: skip
_NEEDED: Mapping[str, frozenset[str]] = {
    "patch": frozenset({"kind", "name", "body"}),
    "delete": frozenset({"kind", "name"}),
    "pods": frozenset({"job"}),
    "check": frozenset({"job", "check", "state"}),
}


@dataclass(frozen=True, slots=True)
class FleetStep:
    """One thing that happens, or one look.

    Attributes:
        action: One of ``ACTIONS``.
        on: Cluster or alias.
        given: What the file says under the action; of a look its name.
        expected: Of a look or an until: expectation → by job or worker.
        portal: Of a look: what the portal's columns reach instead; empty when the same.
    """

    action: str
    on: str
    given: Any
    expected: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    portal: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetStory:
    """One story file."""

    name: str
    text: str
    path: Path
    steps: Sequence[FleetStep]
    covers: Sequence[str]
    quota: Mapping[str, Any]
    quick: Sequence[str] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)
    workers: Sequence[str] = WORKERS
    objects: Sequence[Mapping[str, Any]] = ()
    deviations: Sequence[Deviation] = ()
    breaks: Mapping[str, str] = field(default_factory=dict)
    namespaces: Sequence[str] = CLUSTERS

    @property
    def namespace(self) -> str:
        return f"st-{self.name}"

    @property
    def recording(self) -> Path:
        return self.path.parent / "recorded" / f"{self.name}.yaml"

    @property
    def files(self) -> tuple[Path, Path]:
        """What decides how it ends, beside the product."""
        return self.path, self.recording

    @property
    def has_portal_looks(self) -> bool:
        """Whether some looks are recorded from the portal's column, too."""
        return any(step.portal for step in self.steps)

    @property
    def differs(self) -> bool:
        """Whether the portal's outcome is another one on purpose, beyond the common deviations."""
        return bool(self.deviations or self.breaks or self.has_portal_looks)


def fleet_stories() -> list[FleetStory]:
    """All of them, by name."""
    return [load(path) for path in sorted(FOLDER.glob("*.yaml"))]


def common_deviations() -> list[Deviation]:
    """Those of every story."""
    return [Deviation(**entry) for entry in read_yaml(COMMON)]


def load(path: Path) -> FleetStory:
    """Read one story.

    Raises:
        StoryError: with every fault that was found.
    """
    given = read_yaml(path)
    if not isinstance(given, dict):
        raise StoryError(f"{path.name}: a mapping with story and steps is wanted")
    faults = list(_faults(given))
    if faults:
        raise StoryError(f"{path.name}: " + "; ".join(faults))
    return FleetStory(
        name=path.stem,
        text=str(given["story"]),
        path=path,
        steps=tuple(_step(entry) for entry in given["steps"]),
        covers=tuple(str(each) for each in given["covers"]),
        quota=given["quota"],
        quick=tuple(given.get("quick") or ()),
        without=given.get("without") or {},
        setting=given.get("setting") or {},
        workers=tuple(given.get("workers") or WORKERS),
        objects=tuple(given.get("objects") or ()),
        deviations=tuple(Deviation(**entry) for entry in given.get("deviations") or ()),
        breaks=given.get("breaks") or {},
        namespaces=tuple(given.get("namespaces") or CLUSTERS),
    )


def _step(entry: Mapping[str, Any]) -> FleetStep:
    action = next(name for name in ACTIONS if name in entry)
    given = entry[action]
    if action == "until":
        return FleetStep(action, MANAGER, "", given)
    expected = {key: entry[key] for key in EXPECTATIONS if key in entry}
    where = entry.get("where", MANAGER)
    return FleetStep(action, where, given, expected, entry.get("portal") or {})


def _faults(given: Mapping[str, Any]) -> Iterable[str]:
    for key in sorted(set(given) - _TOP):
        yield f"unknown key {key!r}; there are {', '.join(sorted(_TOP))}"
    for key in ("story", "covers", "quota", "steps"):
        if not given.get(key):
            yield f"{key} is missing"
    for key in ("quick", "without"):
        for column in given.get(key) or ():
            if column not in COLUMNS:
                yield f"{key}: {column!r} is none of {', '.join(COLUMNS)}"
    for name in given.get("quota") or ():
        if name not in CLUSTERS:
            yield f"quota: {name!r} is none of {', '.join(CLUSTERS)}"
    for name in given.get("breaks") or ():
        if name not in BREAKABLE:
            yield f"breaks: {name!r} is none of {', '.join(BREAKABLE)}"
    steps = given.get("steps") or []
    if not any("look" in step for step in steps):
        yield "steps: no look, so nothing would be compared"
    looks = [step["look"] for step in steps if "look" in step]
    for name in sorted({name for name in looks if looks.count(name) > 1}):
        yield f"look {name!r} is there twice"
    for number, step in enumerate(steps, start=1):
        yield from (f"step {number}: {fault}" for fault in _step_faults(step))
    for entry in given.get("deviations") or ():
        if set(entry) != {"at", "kueue", "portal", "why"}:
            yield f"deviation {entry.get('at')}: at, kueue, portal and why are wanted"


def _step_faults(step: Mapping[str, Any]) -> Iterable[str]:
    actions = [name for name in ACTIONS if name in step]
    if len(actions) != 1:
        yield f"one of {', '.join(ACTIONS)} is wanted, not {', '.join(step) or 'nothing'}"
        return
    action, given = actions[0], step[actions[0]]
    if step.get("where", MANAGER) not in (*CLUSTERS, *ALIASES):
        yield f"where: {step['where']} is none of the clusters {', '.join(CLUSTERS)}"
    allowed = EXPECTATIONS | {"portal"} if action == "look" else frozenset()
    for key in sorted(set(step) - {action, "where"} - allowed):
        yield f"unknown key {key!r}"
    missing = sorted(_NEEDED.get(action, frozenset()) - set(given if action in _NEEDED else ()))
    if missing:
        yield f"{action}: {', '.join(missing)} missing"
    expected = given if action == "until" else step
    for job, state in (
        expected.get("workloads") or {} if action in ("until", "look") else {}
    ).items():
        if state not in STATES:
            yield f"workload {job}: {state!r} is none of {', '.join(STATES)}"
    if action == "until":
        for key in sorted(set(given) - EXPECTATIONS):
            yield f"until: unknown expectation {key!r}"
    portal = step.get("portal")
    if portal is not None and "why" not in portal:
        yield f"look {given!r}: portal needs a why"
