"""The list structure of the built-in kinds, as far as apply and validation depend on it.

Open structures: what is not written down is kept as it came, maps field by field, lists whole.
"""

from __future__ import annotations

from functools import partial

from clusters.devcluster.schema import (
    ANYTHING,
    atomic,
    by_name,
    dictionary,
    keyed,
    struct,
    text,
    unique,
    whole,
)  # fmt: skip

LABELS = dictionary(text())
SELECTOR = struct({}, is_open=True, is_atomic=True)
# Built-in structures, of which only some fields are written down.
_open = partial(struct, is_open=True)
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
_OWNER = {"apiVersion*": text(), "kind*": text(), "name*": text(), "uid*": text()}
METADATA = _open(
    {
        "labels": LABELS,
        "annotations": LABELS,
        "finalizers": unique(text()),
        "ownerReferences": keyed(_open(_OWNER), "uid"),
        "managedFields": atomic(),
    },
    omits_empty=("labels", "annotations", "finalizers", "ownerReferences"),
)
_NAMED = by_name(_open({"name": text()}))
_PORT = _open({"containerPort": whole(), "protocol": text(default="TCP")})
_CONTAINERS = by_name(
    _open(
        {
            "name": text(),
            "env": _NAMED,
            "ports": keyed(_PORT, "containerPort", "protocol"),
            "volumeMounts": keyed(_open({"mountPath": text()}), "mountPath"),
        }
    )
)
POD_SPEC = _open(
    {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "volumes": _NAMED,
        "imagePullSecrets": _NAMED,
    }
)
POD_TEMPLATE = _open({"metadata": METADATA, "spec": POD_SPEC})

OPEN = _open({})
JOB_SPEC = _open({"template*": POD_TEMPLATE})
POD_STATUS = _open({"conditions": keyed(_open({"type": text()}), "type")})
NODE_SPEC = _open({"taints": atomic()})
NAMESPACE_SPEC = _open({"finalizers": atomic()})
DATA = dictionary(ANYTHING)
