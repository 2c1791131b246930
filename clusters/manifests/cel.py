"""Pieces of CEL that the admission policies are put together from. Pure.

They read fields that may be missing by optionals (``.?field``), so that no object makes a policy
fail instead of answering. Source: Kubernetes 1.36, CEL in admission policies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from clusters.documents import labels
from clusters.jobs.described import PodSetsAt

SYSTEM: Final = "system:serviceaccount:kube-system:"
"""What the names of the API server's own controllers begin with, each with its credentials."""
IS_UPDATE: Final = "object != null && oldObject != null"
_USER: Final = "request.userInfo.username"


def quoted(values: Iterable[str] | str) -> str:
    """A text, or a list of texts, as CEL writes it."""
    return json.dumps(values if isinstance(values, str) else list(values))


def field(of: str, path: str) -> str:
    """An optional: what stands at a path, as ``runPolicy.suspend``; the whole for none."""
    return of + "".join(f".?{step}" for step in path.split(".") if step)


def label(name: str, *, of: str = "object") -> str:
    """The value of a label; empty where there is none."""
    return f"{of}.metadata.?labels[?{quoted(name)}].orValue('')"


def annotation(name: str, *, of: str = "object") -> str:
    """Likewise of an annotation."""
    return f"{of}.metadata.?annotations[?{quoted(name)}].orValue('')"


def by(users: Iterable[str]) -> str:
    """Whether one of these users asks."""
    return f"{_USER} in {quoted(users)}"


def by_controller(operators: Sequence[str]) -> str:
    """Whether a controller asks: of the cluster itself, or one that an admin registered."""
    own = f"{_USER} == 'system:kube-controller-manager' || {_USER}.startsWith({quoted(SYSTEM)})"
    return f"({own} || {by(operators)})" if operators else f"({own})"


def by_admin() -> str:
    """Whether somebody asks who may do anything, these policies taken away included."""
    return "'system:masters' in request.userInfo.?groups.orValue([])"


def owned_by(kinds: Iterable[tuple[str, str]]) -> str:
    """Whether an owner of one of these (group, kind) controls the object."""
    listed = quoted(f"{group}/{kind}" for group, kind in kinds)
    owner = (
        f"o.?controller.orValue(false) && (o.apiVersion.split('/')[0] + '/' + o.kind) in {listed}"
    )
    return f"object.metadata.?ownerReferences.orValue([]).exists(o, {owner})"


def pod_specs(places: Sequence[PodSetsAt], *, of: str) -> str:
    """The list of all pod specs that stand at these places of a spec; empty maps for none."""
    return " + ".join(_specs_at(place, of) for place in places)


def containers(paths: Sequence[str], *, of: str) -> str:
    """A list of one pod spec, whose containers stand at these paths of a spec."""
    listed = ", ".join(f"{field(of, path)}.orValue({{}})" for path in paths)
    return f"[{{'containers': [{listed}]}}]"


def _specs_at(place: PodSetsAt, of: str) -> str:
    at, spec = place.at.removesuffix(".*"), field("", f"{place.template}.spec")
    if at == place.at:
        return f"[{field(of, at)}{spec}.orValue({{}})]"
    if place.name_field:
        return f"{field(of, at)}.orValue([]).map(e, e{spec}.orValue({{}}))"
    entries = f"{field(of, at)}.orValue({{}})"
    return f"{entries}.map(k, {entries}[k]{spec}.orValue({{}}))"


def asks(specs: str, *, names: Sequence[str], prefixes: Sequence[str]) -> str:
    """Whether a container of a list of pod specs names a device, in its limits or requests."""
    device = f"{quoted(prefixes)}.exists(p, r.startsWith(p))"
    if names:
        device = f"r in {quoted(names)} || {device}"
    amounts = "[c.?resources.?limits, c.?resources.?requests]"
    named = f"{amounts}.exists(m, m.orValue({{}}).exists(r, {device}))"
    lists = "[s.?containers, s.?initContainers, s.?ephemeralContainers]"
    return f"{specs}.exists(s, {lists}.exists(l, l.orValue([]).exists(c, {named})))"


def claims(specs: str) -> str:
    """Whether a pod spec of a list asks for devices by a claim."""
    return f"{specs}.exists(s, s.?resourceClaims.orValue([]).size() > 0)"


def claims_of(specs: str) -> str:
    """The claims of each pod spec of a list that has some."""
    return f"({specs}).map(s, s.?resourceClaims.orValue([])).filter(c, c.size() > 0)"


def is_gated(spec: str) -> str:
    """Whether the admission gate holds back the pods of a spec."""
    gate = quoted(labels.ADMISSION_GATE)
    return f"{spec}.?schedulingGates.orValue([]).exists(g, g.name == {gate})"
