"""The list structure of the built-in kinds, as far as apply and validation depend on it.

Open structures: what is not written down is kept as it came, maps field by field, lists whole.
"""

from __future__ import annotations

from clusters.devcluster.schema import (
    ANYTHING,
    Schema,
    atomic,
    dictionary,
    keyed,
    struct,
    text,
    unique,
    whole,
)

LABELS = dictionary(text())
SELECTOR = Schema(type="struct", is_open=True, is_atomic=True)
TOLERATIONS = atomic(
    {
        "key": text(),
        "operator": text(),
        "value": text(),
        "effect": text(),
        "tolerationSeconds": whole(),
    },
    high=8,
)
METADATA = struct(
    {
        "labels": LABELS,
        "annotations": LABELS,
        "finalizers": unique(text()),
        "ownerReferences": keyed(
            struct(
                {"apiVersion*": text(), "kind*": text(), "name*": text(), "uid*": text()},
                is_open=True,
            ),
            "uid",
        ),
        "managedFields": atomic(),
    },
    is_open=True,
    omits_empty=("labels", "annotations", "finalizers", "ownerReferences"),
)
CONDITIONS_BY_TYPE = keyed(struct({"type": text()}, is_open=True), "type")

_CONTAINER = struct(
    {
        "name": text(),
        "env": keyed(struct({"name": text()}, is_open=True), "name"),
        "ports": keyed(
            struct({"containerPort": whole(), "protocol": text(default="TCP")}, is_open=True),
            "containerPort",
            "protocol",
        ),
        "volumeMounts": keyed(struct({"mountPath": text()}, is_open=True), "mountPath"),
    },
    is_open=True,
)
POD_SPEC = struct(
    {
        "containers": keyed(_CONTAINER, "name"),
        "initContainers": keyed(_CONTAINER, "name"),
        "volumes": keyed(struct({"name": text()}, is_open=True), "name"),
        "imagePullSecrets": keyed(struct({"name": text()}, is_open=True), "name"),
    },
    is_open=True,
)
POD_TEMPLATE = struct({"metadata": METADATA, "spec": POD_SPEC}, is_open=True)

OPEN = struct({}, is_open=True)
JOB_SPEC = struct({"template*": POD_TEMPLATE}, is_open=True)
POD_STATUS = struct({"conditions": CONDITIONS_BY_TYPE}, is_open=True)
NODE_SPEC = struct({"taints": atomic()}, is_open=True)
NAMESPACE_SPEC = struct({"finalizers": atomic()}, is_open=True)
DATA = dictionary(ANYTHING)
