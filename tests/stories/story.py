"""The form of a story: objects that are there, steps that somebody takes, looks at the outcome.

A story is one YAML file. It is played against clusters by name, so that one form serves a single
cluster (``main``) as well as a manager with workers::

    story: A job that fits runs to its end      # one sentence
    quick: true                                  # part of the short set
    columns: [portal, kueue]                     # where it is played; all of COLUMNS without it
    coarse: true                                 # played without finer reasons, too; or quick
    configuration: {fairSharing: {...}}          # Kueue Configuration, as far as it matters
    clusters: [main]                             # the first is where steps happen unless they say
    objects: [...]                               # documents or short forms, see documents.py
    steps:
      - create: {job: train, gpus: 2}
      - pods: {job: train, ready: 1}             # or succeeded, failed
      - patch: {kind: Job, name: train, body: {...}, subresource: status}
      - delete: {kind: Job, name: train}
      - check: {job: train, check: ready-nodes, state: Ready}
      - wait: 1.5                                # seconds, where only time changes something
      - look: it runs                            # a state that every column has to reach
        workloads: {train: Admitted}
    deviations:
      - at: "it runs/workloads/train/conditions/Evicted/message"
        kueue: ...
        portal: ...
        why: ...

Any step may carry ``on: CLUSTER``. A look waits until the expected words are true and all statuses
are those that were recorded from a real Kueue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAIN = "main"
HERE = Path(__file__).parent
ACTIONS = ("create", "patch", "delete", "pods", "check", "wait", "look")
COLUMNS = ("embedded", "portal", "kueue")
# What a look may say of a workload: the farthest that it has come.
STATES = ("Pending", "Reserved", "Admitted", "Evicted", "Finished", "Inactive", "Gone")
_TOP = {
    "story", "quick", "columns", "coarse", "configuration", "clusters", "objects", "steps",
    "deviations",
}  # fmt: skip
_NEEDED: Mapping[str, frozenset[str]] = {
    "patch": frozenset({"kind", "name", "body"}),
    "delete": frozenset({"kind", "name"}),
    "pods": frozenset({"job"}),
    "check": frozenset({"job", "check", "state"}),
}


class StoryError(ValueError):
    """A story file that cannot be played; says all that is wrong with it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, or one look.

    Attributes:
        action: One of ``ACTIONS``.
        on: Cluster.
        given: What the file says under the action.
        workloads: With a look: job name → one of ``STATES``.
    """

    action: str
    on: str
    given: Any
    workloads: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deviation:
    """One place where the portal differs from Kueue on purpose.

    Attributes:
        at: ``LOOK/path/of/the/field``; ``*`` stands for one part.
        kueue, portal: Both outcomes; a field that is not there is None.
        why: The reason.
    """

    at: str
    kueue: Any
    portal: Any
    why: str


@dataclass(frozen=True, slots=True)
class Story:
    """One story file."""

    name: str
    text: str
    path: Path
    steps: Sequence[Step]
    objects: Sequence[Document] = ()
    clusters: Sequence[str] = (MAIN,)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    deviations: Sequence[Deviation] = ()
    is_quick: bool = False
    columns: Sequence[str] = COLUMNS
    coarse_too: str = ""
    is_fine: bool = True

    @property
    def coarse(self) -> Story:
        """The same without the gate UnadmittedWorkloadsObservability, as Kueue comes."""
        is_quick = self.coarse_too == "quick"
        return replace(self, name=f"{self.name}-coarse", is_quick=is_quick, is_fine=False)

    @property
    def looks(self) -> list[str]:
        return [str(step.given) for step in self.steps if step.action == "look"]

    @property
    def recording(self) -> Path:
        """Where the statuses that a real Kueue wrote are kept."""
        return self.path.parent / "recorded" / f"{self.name}.yaml"


def stories(kind: str) -> list[Story]:
    """All stories of a kind (a folder here), by name; those played without finer reasons last."""
    found = [load(path) for path in sorted((HERE / kind).glob("*.yaml"))]
    return [*found, *(story.coarse for story in found if story.coarse_too)]


def read_yaml(path: Path) -> Any:
    """The content of a file; by the C parser where there is one, which is ten times as fast."""
    return yaml.load(path.read_text(), Loader=_LOADER)


def load(path: Path) -> Story:
    """Read one story.

    Raises:
        StoryError: with every fault that was found.
    """
    given = read_yaml(path)
    if not isinstance(given, dict):
        raise StoryError(f"{path.name}: a mapping with story and steps is wanted")
    clusters = tuple(given.get("clusters") or (MAIN,))
    faults = list(_faults(given, clusters))
    if faults:
        raise StoryError(f"{path.name}: " + "; ".join(faults))
    return Story(
        name=path.stem,
        text=str(given["story"]),
        path=path,
        steps=tuple(_step(entry, clusters[0]) for entry in given["steps"]),
        objects=tuple(given.get("objects") or ()),
        clusters=clusters,
        configuration=given.get("configuration") or {},
        deviations=tuple(Deviation(**entry) for entry in given.get("deviations") or ()),
        is_quick=bool(given.get("quick")),
        coarse_too=str(given.get("coarse") or ""),
        columns=tuple(given.get("columns") or COLUMNS),
    )


def _step(entry: Mapping[str, Any], first: str) -> Step:
    action = next(name for name in ACTIONS if name in entry)
    return Step(action, entry.get("on", first), entry[action], entry.get("workloads") or {})


def _faults(given: Mapping[str, Any], clusters: Sequence[str]) -> Iterable[str]:
    for key in sorted(set(given) - _TOP):
        yield f"unknown key {key!r}; there are {', '.join(sorted(_TOP))}"
    if not given.get("story"):
        yield "story: one sentence is missing"
    for column in given.get("columns") or ():
        if column not in COLUMNS:
            yield f"columns: {column!r} is none of {', '.join(COLUMNS)}"
    steps = given.get("steps") or []
    if not any("look" in step for step in steps):
        yield "steps: no look, so nothing would be compared"
    seen: set[str] = set()
    for number, step in enumerate(steps, start=1):
        yield from (f"step {number}: {fault}" for fault in _step_faults(step, clusters))
        if step.get("look") in seen:
            yield f"step {number}: look {step['look']!r} is there twice"
        seen.add(step.get("look") or f"#{number}")
    for entry in given.get("deviations") or ():
        if set(entry) != {"at", "kueue", "portal", "why"}:
            yield f"deviation {entry.get('at')}: at, kueue, portal and why are wanted"


def _step_faults(step: Mapping[str, Any], clusters: Sequence[str]) -> Iterable[str]:
    actions = [name for name in ACTIONS if name in step]
    if len(actions) != 1:
        yield f"one of {', '.join(ACTIONS)} is wanted, not {', '.join(step) or 'nothing'}"
        return
    if step.get("on", clusters[0]) not in clusters:
        yield f"on: {step['on']} is none of the clusters {', '.join(clusters)}"
    for key in sorted(set(step) - {actions[0], "on", "workloads"}):
        yield f"unknown key {key!r}"
    action, given = actions[0], step[actions[0]]
    missing = sorted(_NEEDED.get(action, frozenset()) - set(given if action in _NEEDED else ()))
    if missing:
        yield f"{action}: {', '.join(missing)} missing"
    for job, state in (step.get("workloads") or {}).items():
        if state not in STATES:
            yield f"workload {job}: {state!r} is none of {', '.join(STATES)}"
