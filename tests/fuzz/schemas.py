"""What may be written into each kind, as nodes of OpenAPI: dicts, read by ``stream`` alone.

Kueue's kinds come from the embedded servers' schemas or, on real servers, from Kueue's own CRDs;
Jobs and Pods from the models of the official client, which are made of the API server's OpenAPI;
other kinds of jobs from their CRDs where those are on this machine, else from the table of kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes.client.models as models
import yaml

from clusters.devcluster.registry import KINDS as SERVED
from clusters.devcluster.schema import Schema
from clusters.documents.resources import Resource
from clusters.jobs.described import Described
from clusters.jobs.leader_worker_sets import LeaderWorkerSets
from clusters.jobs.table import KINDS

Node = Mapping[str, Any]
MODEL = "model"
QUANTITY: Node = {"type": "string", "format": "quantity"}
ANYTHING: Node = {"x-kubernetes-preserve-unknown-fields": True}
TEMPLATE: Node = {MODEL: "V1PodTemplateSpec"}
_PLAIN = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_OF_LIST, _OF_MAP = re.compile(r"(?:list|List)\[(.+)\]"), re.compile(r"(?:dict|Dict).str, (.+).")
_TYPES = {"text": "string", "whole": "integer", "flag": "boolean"}
_OPEN_POD = frozenset({"containers", "initContainers"})
MODULES = Path.home() / "go" / "pkg" / "mod"
# Where the CRDs of other kinds of jobs are, once the real control planes were built here.
CRD_FILES = (
    "sigs.k8s.io/jobset@*/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
    "sigs.k8s.io/lws@*/config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    "github.com/ray-project/kuberay/ray-operator@*/config/crd/bases/ray.io_rayjobs.yaml",
)


def resolved(node: Node) -> Node:
    """A node with its own fields; that of a model's name is looked up, level by level."""
    return _of_model(node[MODEL]) if MODEL in node else node


@cache
def _of_model(name: str) -> Node:
    found = getattr(models, name)
    fields = {
        found.attribute_map[field]: _of_text(kind) for field, kind in found.openapi_types.items()
    }
    return {"type": "object", "properties": fields}


def _of_text(kind: str) -> Node:
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind == "datetime":
        return {"type": "string", "format": "date-time"}
    if kind == "object":
        return ANYTHING
    if found := _OF_LIST.fullmatch(kind):
        return {"type": "array", "items": _of_text(found[1])}
    if found := _OF_MAP.fullmatch(kind):
        return {"type": "object", "additionalProperties": _of_text(found[1])}
    return {MODEL: kind}


def of_model(kind: str) -> Node:
    """Spec and status of a built-in kind."""
    return {"type": "object", "properties": {
        "spec": {MODEL: f"V1{kind}Spec"}, "status": {MODEL: f"V1{kind}Status"},
    }}  # fmt: skip


def of_embedded(kind: str) -> Node:
    """A kind of Kueue's as the embedded servers take it."""
    served = next(item for item in SERVED if item.kind == kind)
    return _of_schema(served.schema)


def _of_schema(schema: Schema) -> Node:
    if schema.type == "struct":
        if schema.fields.keys() >= _OPEN_POD:
            return {MODEL: "V1PodSpec"}
        fields = {name: _of_schema(item) for name, item in schema.fields.items()}
        fields.pop("metadata", None)
        if not fields:
            return ANYTHING
        return {"type": "object", "properties": fields, "required": list(schema.required)}
    if schema.type == "map":
        return {"type": "object", "additionalProperties": _of_schema(schema.child(""))}
    if schema.type == "list":
        bounds = {"minItems": schema.low, "maxItems": schema.high}
        return {"type": "array", "items": _of_schema(schema.child("")), **_kept(bounds)}
    if schema.type == "quantity":
        return QUANTITY
    if schema.type == "whole":
        return {"type": "integer", **_kept({"minimum": schema.low, "maximum": schema.high})}
    if schema.type == "text":
        bounds = {"maxLength": schema.high, "enum": list(schema.allowed) or None}
        return {"type": "string", "pattern": schema.pattern, **_kept(bounds)}
    return {"type": _TYPES[schema.type]} if schema.type in _TYPES else ANYTHING


def _kept(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value is not None}


def of_crd(crd: Mapping[str, Any], version: str) -> Node:
    """A custom kind as its CRD says, without apiVersion, kind and metadata."""
    found = next(item for item in crd["spec"]["versions"] if item["name"] == version)
    schema = found["schema"]["openAPIV3Schema"]
    kept = {k: v for k, v in schema["properties"].items() if k in ("spec", "status", "value")}
    return {"type": "object", "properties": kept}


def crds_here() -> Iterator[dict[str, Any]]:
    """CRDs of other kinds of jobs that are on this machine."""
    for pattern in CRD_FILES:
        for path in sorted(MODULES.glob(pattern))[-1:]:
            yield yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)


def of_table(resource: Resource) -> Node:
    """A kind of job by what the table of kinds reads of it."""
    kind, spec = KINDS[resource.group, resource.kind], {}
    if isinstance(kind, LeaderWorkerSets):
        spec = {"leaderWorkerTemplate": {"type": "object", "properties": {
            "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE, "size": {"type": "integer"},
        }}, "replicas": {"type": "integer"}}  # fmt: skip
    elif isinstance(kind, Described):
        for place in kind.pod_sets_at:
            _grow(spec, f"{place.at}.{place.template}".strip("."), TEMPLATE)
            for path in (path for factor in place.counts for path in factor):
                _grow(spec, f"{place.at}.{path}".strip("."), {"type": "integer"})
            if place.name_field:
                _grow(spec, f"{place.at}.{place.name_field}", {"type": "string"})
        for path in filter(None, (kind.managed_by, kind.unclear[0])):
            _grow(spec, path, {"type": "string"})
        if kind.suspend:
            _grow(spec, kind.suspend, {"type": "boolean"})
    return {"type": "object", "properties": {
        "spec": {"type": "object", "properties": spec}, "status": ANYTHING,
    }}  # fmt: skip


def _grow(fields: dict[str, Any], path: str, leaf: Node) -> None:
    """Put a leaf at a path; ``*`` makes a list of what is above it."""
    step, _, rest = path.partition(".")
    if not rest:
        fields.setdefault(step, leaf)
        return
    if MODEL in fields.get(step, {}):
        return
    if rest.startswith("*"):
        inner: dict[str, Any] = {"type": "object", "properties": {}}
        found = fields.setdefault(step, {"type": "array", "items": inner})
        _grow(found["items"]["properties"], rest.removeprefix("*."), leaf)
        return
    _grow(fields.setdefault(step, {"type": "object", "properties": {}})["properties"], rest, leaf)


def embedded(kinds: Iterable[Resource]) -> dict[str, Node]:
    """Nodes by kind for embedded servers, which need nothing else on this machine."""
    found = {item.kind: of_embedded(item.kind) for item in SERVED if item.is_custom}
    found |= {resource.kind: of_table(resource) for resource in kinds}
    return found | {"Job": of_model("Job"), "Pod": of_model("Pod")}


def of_real(crds: Iterable[Mapping[str, Any]]) -> dict[str, Node]:
    """Nodes by kind for real servers, of the CRDs that they serve."""
    stored = {
        crd["spec"]["names"]["kind"]: of_crd(
            crd, next(item["name"] for item in crd["spec"]["versions"] if item["storage"])
        )
        for crd in crds
    }
    return stored | {"Job": of_model("Job"), "Pod": of_model("Pod")}
