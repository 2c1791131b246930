"""The admission policy that Kueue ships for external dispatchers, as an admin would apply it.

Written from its description; what it does is what counts: it empties the nominations whenever a
worker is recorded, or the workload is evicted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.reconcile.external.ways import POLICY
from tests.reconcile.admission_harness import Document
from tests.resources import resource_of

_API = "admissionregistration.k8s.io/v1"
_EVICTED = "conditions.exists(c, c.type == 'Evicted' && c.status == 'True')"


def policy_documents() -> list[Document]:
    """The policy and its binding."""
    was_chosen = "oldObject.?status.?clusterName.orValue('') != ''"
    was_evicted = "oldObject.?status.?conditions.orValue([])" + _EVICTED.removeprefix("conditions")
    is_chosen = "object.?status.?clusterName.orValue('') != ''"
    is_evicted = "object.?status.?conditions.orValue([])" + _EVICTED.removeprefix("conditions")
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [r.KUEUE_GROUP],
                    "apiVersions": [r.KUEUE_VERSION],
                    "operations": ["UPDATE"],
                    "resources": ["workloads", "workloads/status"],
                }
            ]
        },
        "matchConditions": [
            {
                "name": "nominated",
                "expression": "object.?status.?nominatedClusterNames.orValue([]).size() > 0",
            },
            {
                "name": "decided",
                "expression": f"({is_chosen} && !({was_chosen})) || "
                f"({is_evicted} && !({was_evicted}))",
            },
        ],
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": "[JSONPatch{op: 'replace', "
                    "path: '/status/nominatedClusterNames', value: []}]"
                },
            }
        ],
    }
    return [
        {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": body}
        for kind, name, body in (
            ("MutatingAdmissionPolicy", POLICY, spec),
            ("MutatingAdmissionPolicyBinding", POLICY, {"policyName": POLICY}),
        )
    ]


@contextmanager
def bound(client: KubeClient) -> Iterator[None]:
    """The policy in force on a cluster."""
    documents = policy_documents()
    for document in documents:
        client.create(resource_of(document), document)
    # An API server takes up new policies within a second, and tells nobody when.
    time.sleep(2)
    try:
        yield
    finally:
        for document in reversed(documents):
            client.delete(resource_of(document), document["metadata"]["name"])
