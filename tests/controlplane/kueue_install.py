"""Puts Kueue's CRDs and webhook configurations on a cluster, and takes the latter away again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .kueue_setup import API_GROUP, crds, is_converted
from .processes import StartError
from .rest import Rest

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_SERVED_WITHIN_S = 120.0
_POLL_S = 0.05


def install_crds(rest: Rest, conversion: Mapping[str, Any], *, part: str = "kueue") -> None:
    """Create Kueue's CRDs side by side and wait until every kind is served and discovered.

    Raises:
        StartError: they were not served in time.
    """
    wanted = crds(conversion=conversion, part=part)
    with ThreadPoolExecutor(len(wanted)) as pool:
        list(pool.map(lambda crd: rest.ensure(_CRDS, crd), wanted))
    plurals = {crd["spec"]["names"]["plural"] for crd in wanted}
    deadline = time.monotonic() + _SERVED_WITHIN_S
    while not _are_served(rest, plurals):
        if time.monotonic() > deadline:
            raise StartError(f"Kueue's CRDs are not served after {_SERVED_WITHIN_S:g} s")
        time.sleep(_POLL_S)


def replace_crds(rest: Rest, conversion: Mapping[str, Any], *, part: str) -> None:
    """Put the CRDs of another version in place of those that are there; objects stay.

    A kind that is new is created; return when every kind is served again.

    Raises:
        StartError: they were not served in time.
    """
    there = {crd["metadata"]["name"]: crd for crd in rest.items(_CRDS)}
    for crd in crds(conversion=conversion, part=part):
        name = crd["metadata"]["name"]
        if name in there:
            rest.replace(f"{_CRDS}/{name}", {**there[name], "spec": crd["spec"]})
    install_crds(rest, conversion, part=part)


def set_conversion(rest: Rest, conversion: Mapping[str, Any]) -> None:
    """Change ``spec.conversion`` of the kinds that need one; return when they are served again."""
    patch = {"spec": {"conversion": dict(conversion)}}
    for crd in rest.items(_CRDS):
        if crd["spec"]["group"] == API_GROUP and is_converted(crd):
            rest.merge(f"{_CRDS}/{crd['metadata']['name']}", patch)
            rest.get(f"/apis/{API_GROUP}/v1beta2/{crd['spec']['names']['plural']}?limit=1")


def configure_webhooks(rest: Rest, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Apply webhook configurations."""
    for configuration in wanted:
        plural = f"{configuration['kind'].lower()}s"
        name = configuration["metadata"]["name"]
        rest.apply(f"{_WEBHOOKS}/{plural}/{name}", dict(configuration))


def remove_webhooks(rest: Rest) -> None:
    """Delete Kueue's webhook configurations."""
    for kind in ("mutating", "validating"):
        name = f"kueue-{kind}-webhook-configuration"
        rest.delete(f"{_WEBHOOKS}/{kind}webhookconfigurations/{name}")


def _are_served(rest: Rest, plurals: set[str]) -> bool:
    """Established is not enough: Kueue ends at once when discovery does not show a kind yet."""
    versions = rest.discovered(API_GROUP)
    if not all(plurals <= versions.get(name, set()) for name in ("v1beta1", "v1beta2")):
        return False
    listed = rest.get(f"/apis/{API_GROUP}/v1beta2")["resources"]
    return plurals <= {resource["name"] for resource in listed}
