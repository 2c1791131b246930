"""The matrix of one mode: policies applied, every cell tried, every guard taken out once."""

from __future__ import annotations

import copy
import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusters.documents import labels
from clusters.kube.resources import CLUSTER_QUEUE, COHORT, NAMESPACE, WORKLOAD
from clusters.manifests.policies import policy_documents
from clusters.manifests.rbac import Post
from clusters.manifests.wish import PolicyWish
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.rest import ApiError
from tests.policies import cells
from tests.policies.cells import Cell, Tried
from tests.policies.ground import (
    BY_KUEUE,
    OPERATOR,
    Answer,
    Ground,
    People,
    apply_policies,
    make_workspace,
    policy_path,
    read,
)
from tests.policies.objects import KINDS
from tests.waiting import eventually

FOR_ALL = ("namespaces", "own-workspaces-only", "gpus-in-workspaces-only", "kueue-configuration")
"""Ends of names of policies that speak of more than one workspace."""
_LOOKS_S = 2.5
# Kueue may quote whole specs.
_WORDS_MOST = 260


@dataclass
class Matrix:
    """One mode on one API server.

    Attributes:
        kueue_starts: Kinds that a real Kueue starts there by itself.
        suffix: Of the names of its workspaces.
        tried: What came of each cell, in the order of the table.
        idle: (cell, guard) where a guard was taken out and the cell was refused all the same.
        applied: Policies that are there now.
    """

    plane: ControlPlane
    people: People
    is_portal_mode: bool
    kueue_starts: frozenset[str] = frozenset()
    suffix: str = ""
    tried: dict[Cell, Tried] = field(default_factory=dict)
    idle: list[tuple[Cell, Answer]] = field(default_factory=list)
    applied: list[Mapping[str, Any]] = field(default_factory=list)
    _main: list[dict[str, Any]] = field(default_factory=list)
    _places: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return ("portal" if self.is_portal_mode else "kueue") + self.suffix

    def wish(self, installation: str, **more: Any) -> PolicyWish:
        post = Post(False, self.is_portal_mode, installation)
        found = PolicyWish(
            post,
            allows_local_jobs=True,
            gpu_resources=("nvidia.com/gpu", "example.com/accelerator"),
            operators=(OPERATOR,),
            denies_elsewhere=True,
            exempt_namespaces=("listed",),
        )
        return replace(found, **more)

    def _alone(self, installation: str) -> PolicyWish:
        found = self.wish(installation)
        return replace(found, post=replace(found.post, is_single=True))

    def run(self, rows: Sequence[Cell]) -> None:
        """Apply the policies and try every row."""
        name = self.name
        wishes = {
            name: self.wish(name),
            f"{name}-strict": self.wish(f"{name}-strict", allows_local_jobs=False),
            f"{name}-older": self.wish(f"{name}-older"),
            f"{name}-single": self._alone(f"{name}-single"),
        }
        main = documents(wishes[name])
        strict = [d for d in documents(wishes[f"{name}-strict"]) if not is_for_all(d)]
        # An API server without MutatingAdmissionPolicy: of these nothing but what Jobs need.
        older = [
            d for d in documents(wishes[f"{name}-older"])
            if d["metadata"]["name"].endswith("-jobs") and not d["kind"].startswith("Mutating")
        ]  # fmt: skip
        # A cluster of its own: of its policies nothing but what is tried there.
        single = [
            d for d in documents(wishes[f"{name}-single"])
            if d["metadata"]["name"].endswith(("-jobs", "-jobsets", "-pytorchjobs"))
        ]  # fmt: skip
        self.applied = [*main, *strict, *older, *single]
        apply_policies(self.plane, self.applied)
        self._main = main
        for installation in wishes:
            self._workspace(installation)
        make_workspace(self.plane, "elsewhere", installation="", queues=False)
        make_workspace(self.plane, "listed", installation="", queues=False)
        ground = self.ground(name, wishes[name])
        grounds = {
            "On a worker that takes no jobs directly": self.ground(
                f"{name}-strict", wishes[f"{name}-strict"]
            ),
            "Where no policy mutates": self.ground(f"{name}-older", wishes[f"{name}-older"]),
            "On a cluster of its own": self.ground(f"{name}-single", wishes[f"{name}-single"]),
        }
        self._await(ground)
        for row in rows:
            self.tried[row] = attempt(row, grounds.get(row.section, ground))

    def control(self) -> None:
        """Take each guard out once, alone: some cell that it refused is let through."""
        found: dict[Answer, list[Cell]] = {}
        for row, answer in self.tried.items():
            if isinstance(answer, Answer) and answer.policy:
                found.setdefault(answer, []).append(row)
        own = [answer for answer in found if not answer.policy.endswith(FOR_ALL)]
        places = {answer: f"{self.name}-control-{number}" for number, answer in enumerate(own)}
        weaker = [row for answer, place in places.items() for row in self._without(answer, place)]
        for place in places.values():
            self._workspace(place)
        apply_policies(self.plane, weaker)
        self.applied += weaker
        time.sleep(_LOOKS_S)
        for answer, place in places.items():
            wish = replace(self.wish(place), allows_local_jobs="strict" not in answer.policy)
            ground = self.ground(place, wish)
            if not any(_is_let_through(row, ground) for row in found[answer]):
                self.idle.append((found[answer][0], answer))
        for answer in found:
            if answer not in places:
                self._control_for_all(answer, found[answer][0])

    def _control_for_all(self, answer: Answer, row: Cell) -> None:
        """A guard of all workspaces, where it is."""
        ground = self.ground(self.name, self.wish(self.name))
        before = next(d for d in self._main if d["metadata"]["name"] == answer.policy)
        apply_policies(self.plane, [without(before, answer.text)])
        tries = iter(range(1000))
        try:
            eventually(lambda: _is_let_through(row, ground, f"-{next(tries)}"), seconds=20)
        except AssertionError:
            self.idle.append((row, answer))
        apply_policies(self.plane, [before])

    def remove(self) -> None:
        """Take policies and workspaces away, for the next mode.

        What only a policy refused may be more than a Kueue that comes can read: it ends on a
        Workload that reserves quota nowhere.
        """
        for document in self.applied:
            self.plane.rest.delete(policy_path(document))
        for place in self._places:
            self.plane.rest.delete(WORKLOAD.path(namespace=place))
            self.plane.rest.delete(NAMESPACE.path(place))
        for resource in (CLUSTER_QUEUE, COHORT):
            for made in self.plane.rest.items(resource.path()):
                if made["metadata"]["name"].startswith("it-"):
                    self.plane.rest.delete(resource.path(made["metadata"]["name"]))

    def ground(self, namespace: str, wish: PolicyWish) -> Ground:
        return Ground(self.plane, self.people, wish, namespace, self.kueue_starts)

    def _workspace(self, installation: str) -> None:
        self._places.append(installation)
        make_workspace(self.plane, installation, installation=installation, queues=True)

    def _await(self, ground: Ground) -> None:
        """An API server looks for new policies once a second."""
        tries = iter(range(1000))

        heard: dict[str, Tried] = {}

        def is_in_force(row: Cell) -> bool:
            heard[row.words] = got = row.run(ground, f"probe-{next(tries)}")
            return isinstance(got, Answer) and bool(got.policy)

        probes = cells.probe_cells()
        eventually(lambda: all(map(is_in_force, probes)), seconds=30, why=lambda: heard)
        time.sleep(_LOOKS_S)

    def _without(self, answer: Answer, installation: str) -> list[Mapping[str, Any]]:
        """The policy that refused without that guard, for a workspace of its own."""
        found = []
        for document in self.applied:
            if document["metadata"]["name"] != answer.policy:
                continue
            changed = (
                without(document, answer.text) if "validations" in document["spec"] else document
            )
            text = copy.deepcopy(dict(changed))
            text["metadata"]["name"] = f"gpu-budget-{installation}"
            if "policyName" in text["spec"]:
                text["spec"]["policyName"] = text["metadata"]["name"]
                text["spec"]["matchResources"] = {
                    "namespaceSelector": {"matchLabels": {labels.INSTALLATION: installation}}
                }
            found.append(text)
        return found


def documents(wish: PolicyWish) -> list[dict[str, Any]]:
    """Policies of an installation; those of others on the same server are not its elsewhere."""
    found = [copy.deepcopy(dict(document)) for document in policy_documents(wish)]
    name = wish.post.installation
    others = [f"{name}-{other}" for other in ("strict", "older", "single")]
    others += [f"{name}-control-{number}" for number in range(400)]
    for document in found:
        selector = document["spec"].get("matchResources", {}).get("namespaceSelector", {})
        for expression in selector.get("matchExpressions", ()):
            if expression["operator"] == "NotIn" and expression["key"] == labels.INSTALLATION:
                expression["values"] = [*expression["values"], *others]
    return found


def without(document: Mapping[str, Any], message: str) -> dict[str, Any]:
    """A policy without the guard that says this."""
    changed = copy.deepcopy(dict(document))
    kept = [row for row in changed["spec"]["validations"] if row["message"] != message]
    assert len(kept) < len(changed["spec"]["validations"]), message
    changed["spec"]["validations"] = kept or [{"expression": "true", "message": "taken out"}]
    return changed


def attempt(row: Cell, ground: Ground, end: str = "") -> Tried:
    """Try a cell; what refuses to have it prepared refuses it."""
    try:
        return row.run(ground, name_of(row) + end)
    except ApiError as error:
        return read(str(error))


def _is_let_through(row: Cell, ground: Ground, end: str = "") -> bool:
    """Whether policies let it pass; a real Kueue, which may be away, refuses some of it as well."""
    got = attempt(row, ground, end)
    if not isinstance(got, Answer):
        return True
    return not got.is_refused or got.text.endswith(BY_KUEUE)


def is_for_all(document: Mapping[str, Any]) -> bool:
    return document["metadata"]["name"].endswith(FOR_ALL)


def name_of(row: Cell) -> str:
    """A name for the objects of a cell."""
    digest = hashlib.sha1(f"{row.section}{row.words}{row.kind}".encode()).hexdigest()[:10]
    return f"{row.kind.lower() or 'it'}-{digest}"


def table(portal: Mapping[Cell, Tried], kueue: Mapping[Cell, Tried]) -> str:
    """The answers as a table; kinds that are answered alike share a row."""
    lines = ["| who tries what | `portal` mode | `kueue` mode |", "| --- | --- | --- |"]
    for section, rows in _sections(portal):
        lines.append(f"| **{section}** | | |")
        grouped: dict[tuple[str, str, str], list[str]] = {}
        for row in rows:
            said = (in_words(portal[row], row.kind), in_words(kueue[row], row.kind))
            grouped.setdefault((row.words, *said), []).append(row.kind)
        for (words, first, second), kinds in grouped.items():
            lines.append(f"| {_subject(words, kinds)} | {first} | {second} |")
    return "\n".join(lines)


def _subject(words: str, kinds: Sequence[str]) -> str:
    if not kinds[0]:
        return words
    if len(kinds) == len(KINDS):
        return f"{words}: every kind"
    return f"{words}: {', '.join(kinds)}"


def _sections(found: Iterable[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    rows: dict[str, list[Cell]] = {}
    for row in found:
        rows.setdefault(row.section, []).append(row)
    yield from rows.items()


def in_words(answer: Tried, kind: str) -> str:
    """A cell of the table; the kind's own name taken out, and names of objects that differ."""
    text = (
        answer
        if isinstance(answer, str)
        else f"refused: {answer.text}"
        if answer.text
        else "let through"
    )
    if kind:
        text = re.sub(rf"\b([Tt])his {kind}\b", r"\1his job", text)
        text = text.replace("spec.runPolicy.suspend", "spec.suspend")
        text = text.replace("spec.rayClusterConfig.suspend", "spec.suspend")
        text = text.replace("spec.runPolicy.managedBy", "spec.managedBy")
    text = re.sub(r"\b(\w+)-[0-9a-f]{10}(-\d+)?\b", "NAME", text)
    text = text.replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= _WORDS_MOST else f"{text[:_WORDS_MOST]} …"
