"""The real controllers of JobSet and of Ray beside a control plane, each under its own name.

JobSets need the webhook that sets their defaults; KubeRay does without one.
"""

from __future__ import annotations

import yaml

from . import kueue_setup
from .build import operator_crds
from .control_plane import ControlPlane
from .processes import LOOPBACK, free_port, is_listening

JOBSET_USER = "system:serviceaccount:jobset-system:jobset-controller-manager"
KUBERAY_USER = "system:serviceaccount:ray-system:kuberay-operator"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_JOBSET_DEFAULTS = "/mutate-jobset-x-k8s-io-v1alpha2-jobset"


def install_kinds(plane: ControlPlane) -> None:
    """The CRDs of both."""
    for part in ("jobset", "kuberay"):
        for crd in operator_crds(part):
            plane.rest.ensure(_CRDS, crd)


def start_jobset(plane: ControlPlane) -> None:
    """Run the controller of JobSets; its CRDs are installed."""
    port = free_port()
    settings = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": port, "certDir": str(plane.folder / "webhook")},
    }
    path = plane.folder / "jobset.yaml"
    path.write_text(yaml.safe_dump(settings))
    program = plane.run_as(JOBSET_USER, "jobset", [f"--config={path}"])
    program.wait_until(lambda: is_listening(port))
    rule = {
        "apiGroups": ["jobset.x-k8s.io"],
        "apiVersions": ["v1alpha2"],
        "operations": ["CREATE"],
        "resources": ["jobsets"],
    }
    webhook = {
        "name": "mjobset.kb.io",
        "clientConfig": kueue_setup.client_config(port, _JOBSET_DEFAULTS, plane.authority.pair),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [rule],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "jobset"},
        "webhooks": [webhook],
    }
    plane.rest.apply(f"{_WEBHOOKS}/jobset", body)


def start_kuberay(plane: ControlPlane) -> None:
    """Run the operator of RayClusters and RayJobs; its CRDs are installed."""
    arguments = ["--metrics-addr=0", "--health-probe-bind-address=0"]
    plane.run_as(KUBERAY_USER, "kuberay", [*arguments, "--enable-leader-election=false"])
