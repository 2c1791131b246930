"""Kueue outside of a cluster: its CRDs, webhooks and configuration wired to a process on loopback.

The CRDs serve v1beta1 and v1beta2. Five kinds are converted by Kueue's own webhook; where no Kueue
runs their conversion strategy is None, which is right for clients of v1beta2 only: v1beta1 is still
served there but its fields are not translated.

Kueue reads its metrics certificate from a fixed path, ``/etc/kueue/metrics/certs``. What is there
and readable is taken; else it is written; without the right to write, Kueue gets a mount namespace
in which the path exists.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import build
from .certificates import Authority, KeyPair
from .processes import LOOPBACK

NAMESPACE = "kueue-system"
USER = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"
API_GROUP = "kueue.x-k8s.io"
METRICS_CERTIFICATES = Path("/etc/kueue/metrics/certs")
DEFAULT_FEATURE_GATES: Mapping[str, bool] = {"VisibilityOnDemand": False}

# The kinds for which Kueue's own installation enables the conversion webhook.
_CONVERTED = frozenset({"ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"})
_SYSTEM_NAMESPACES = ("kube-system", NAMESPACE)

# $0 is the folder with the additional entries, $1 an empty one, what follows the command.
# A new user namespace clears the parent-death signal, so it is set once more inside.
_OVER_ETC = """
below=$1; shift
mount --rbind /etc "$below" && mount -t tmpfs tmpfs /etc && cp -r "$0"/. /etc/ || exit 1
for entry in "$below"/*; do
  [ -e "/etc/${entry##*/}" ] || ln -s "$entry" /etc/
done
exec setpriv --pdeathsig KILL -- "$@"
"""


def crds(*, conversion: Mapping[str, Any], part: str = "kueue") -> list[dict[str, Any]]:
    """Return Kueue's CRDs; the converted kinds carry the given ``spec.conversion``."""
    found = build.kueue_manifests(build.CRDS_FILE, part=part)
    for crd in found:
        if is_converted(crd):
            crd["spec"]["conversion"] = dict(conversion)
    return found


def is_converted(crd: Mapping[str, Any]) -> bool:
    """Say whether two versions of this CRD differ so that Kueue's webhook has to translate."""
    return crd["spec"]["names"]["kind"] in _CONVERTED


def no_conversion() -> dict[str, Any]:
    """Return ``spec.conversion`` for a cluster without Kueue."""
    return {"strategy": "None", "webhook": None}


def webhook_conversion(port: int, authority: KeyPair) -> dict[str, Any]:
    """Return ``spec.conversion`` for a cluster whose Kueue serves webhooks on a loopback port."""
    return {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": client_config(port, "/convert", authority),
            "conversionReviewVersions": ["v1"],
        },
    }


def webhook_configurations(
    port: int, authority: KeyPair, *, frameworks: Sequence[str], part: str = "kueue"
) -> list[dict[str, Any]]:
    """Return the webhook configurations of Kueue's own kinds and of the frameworks that are on."""
    kinds = {framework.rpartition("/")[2] for framework in frameworks}
    found = build.kueue_manifests(build.WEBHOOKS_FILE, part=part)
    for configuration in found:
        configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
        kept = []
        for webhook in configuration["webhooks"]:
            is_own = any(API_GROUP in rule["apiGroups"] for rule in webhook["rules"])
            # The names are m or v, the kind, and a domain: mjob.kb.io.
            if not is_own and webhook["name"][1:].partition(".")[0] not in kinds:
                continue
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = client_config(port, path, authority)
            if not is_own:
                webhook["namespaceSelector"] = _outside_system_namespaces()
            kept.append(webhook)
        configuration["webhooks"] = kept
    return found


def configuration(
    overrides: Mapping[str, Any], *, webhook_port: int, health_port: int, certificates: Path
) -> dict[str, Any]:
    """Return Kueue's Configuration: Jobs and MultiKueue, quick to notice losses; overrides win."""
    base = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": webhook_port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": ["batch/job"]},
        "multiKueue": {"gcInterval": "5s", "workerLostTimeout": "10s"},
    }
    return _merged(base, overrides)


def metrics_certificate_prefix(folder: Path, authority: Authority) -> list[str]:
    """Make Kueue's fixed certificate path readable; return what its command has to begin with.

    Raises:
        PartMissingError: the path can neither be written nor be mounted.
    """
    names = ("tls.crt", "tls.key")
    if all(os.access(METRICS_CERTIFICATES / name, os.R_OK) for name in names):
        return []
    pair = authority.server("kueue-metrics")
    contents = {"tls.crt": pair.certificate.read_bytes(), "tls.key": pair.key.read_bytes()}
    try:
        _write_all(METRICS_CERTIFICATES, contents)
    except PermissionError:
        layer = folder / "etc"
        _write_all(layer / METRICS_CERTIFICATES.relative_to("/etc"), contents)
        return mounted_over_etc(layer)
    return []


def _write_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Put a whole folder in place at once: several clusters start together, the first one wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    for name, content in contents.items():
        (draft / name).write_bytes(content)
    try:
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft)
        if not all((folder / name).is_file() for name in contents):
            raise


def mounted_over_etc(layer: Path) -> list[str]:
    """Return a prefix that runs a command where /etc has the layer's entries before its own."""
    if not shutil.which("unshare") or not shutil.which("setpriv"):
        raise build.PartMissingError(
            f"Kueue needs tls.crt and tls.key in {METRICS_CERTIFICATES}: let root create them"
        )
    (layer.parent / "etc-below").mkdir(exist_ok=True)
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _OVER_ETC]
    return [*command, str(layer), str(layer.parent / "etc-below")]


def client_config(port: int, path: str, authority: KeyPair) -> dict[str, str]:
    """Return how an API server reaches a webhook on a loopback port."""
    bundle = base64.b64encode(authority.certificate_pem).decode()
    return {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}


def _outside_system_namespaces() -> dict[str, Any]:
    return {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": list(_SYSTEM_NAMESPACES),
            }
        ]
    }


def _merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in overrides.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = _merged(below, value)
        else:
            result[key] = value
    return result
