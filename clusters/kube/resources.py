"""The Kubernetes resources that the portal reads or writes, as plain values.

A `Resource` is all that is needed to build an address; documents themselves stay plain dicts, since
typed models cost more than the request that carries them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from clusters.documents.resources import JOB as JOB
from clusters.documents.resources import POD as POD
from clusters.documents.resources import Resource as Resource

Document = dict[str, Any]

KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_VERSION = "v1beta2"
_core = partial(Resource.guessed, version="v1", group="")
_cluster_wide = partial(Resource.guessed, namespaced=False)
_admission = partial(_cluster_wide, version="v1", group="admissionregistration.k8s.io")
_kueue = partial(Resource.guessed, version=KUEUE_VERSION, group=KUEUE_GROUP)

NAMESPACE = _core("Namespace", namespaced=False)
NODE = _core("Node", namespaced=False)
SECRET = _core("Secret")
CONFIG_MAP = _core("ConfigMap")
SERVICE_ACCOUNT = _core("ServiceAccount")
EVENT = _core("Event")
RESOURCE_QUOTA = _core("ResourceQuota")
LEASE = Resource.guessed("Lease", "v1", "coordination.k8s.io")
VALIDATING_POLICY = _admission("ValidatingAdmissionPolicy")
MUTATING_POLICY = _admission("MutatingAdmissionPolicy")
MUTATING_POLICY_BINDING = _admission("MutatingAdmissionPolicyBinding")
VALIDATING_WEBHOOK = _admission("ValidatingWebhookConfiguration")
MUTATING_WEBHOOK = _admission("MutatingWebhookConfiguration")
SELF_SUBJECT_ACCESS_REVIEW = _cluster_wide("SelfSubjectAccessReview", "v1", "authorization.k8s.io")
PRIORITY_CLASS = _cluster_wide("PriorityClass", "v1", "scheduling.k8s.io")
DEVICE_CLASS = _cluster_wide("DeviceClass", "v1", "resource.k8s.io")
RESOURCE_CLAIM_TEMPLATE = Resource.guessed("ResourceClaimTemplate", "v1", "resource.k8s.io")

RESOURCE_FLAVOR = _kueue("ResourceFlavor", namespaced=False)
TOPOLOGY = _kueue("Topology", namespaced=False)
WORKLOAD_PRIORITY_CLASS = _kueue("WorkloadPriorityClass", namespaced=False)
COHORT = _kueue("Cohort", namespaced=False)
MULTIKUEUE_CLUSTER = _kueue("MultiKueueCluster", namespaced=False)
MULTIKUEUE_CONFIG = _kueue("MultiKueueConfig", namespaced=False)
ADMISSION_CHECK = _kueue("AdmissionCheck", namespaced=False)
CLUSTER_QUEUE = _kueue("ClusterQueue", namespaced=False)
LOCAL_QUEUE = _kueue("LocalQueue")
WORKLOAD = _kueue("Workload")
