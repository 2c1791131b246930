"""The rows of a preflight: what was found, how bad it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from clusters.credentials import ENDS_SOON
from clusters.documents.kueue_versions import (
    FOLLOWED,
    FORMER,
    Release,
    Support,
    support_of,
    unknown_settings,
)
from clusters.errors import ClusterError, Forbidden, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Probe
from clusters.kueue.configuration import not_followed, parse_duration
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.manifests.policies import policy_names
from clusters.manifests.rbac import Rule, questions
from clusters.models import Cluster, NominationWay
from clusters.reconcile.external.probing import probe
from clusters.reconcile.external.ways import Way
from clusters.selectors.cluster_detail import PreflightRow
from clusters.selectors.places import configuration_or_defaults, policy_wish
from clusters.services import probes

OK, WARN, FAULT = "ok", "warn", "fault"
SKEW_WARN_S = 5
LATENCY_WARN_S = 0.5
RETENTION_MIN = timedelta(hours=1)
_POLICY_KINDS: Final = {
    "ValidatingAdmissionPolicy": r.VALIDATING_POLICY,
    "MutatingAdmissionPolicy": r.MUTATING_POLICY,
}
LOST_MIN: Final = timedelta(seconds=75)
"""Kueue's first waits between two tries to reconnect: 5, 10, 20 and 40 s (spec dispatch 2.7)."""


def unreachable(error: ClusterError) -> PreflightRow:
    """The only row of a cluster that does not answer."""
    return PreflightRow(
        "Reachable",
        FAULT,
        f"{error.reason}: {error.message}",
        "Check the address, the network between this server and the cluster, and the credential.",
    )


def first_rows(probe: Probe, cluster: Cluster, now: datetime) -> Iterator[PreflightRow]:
    """Version, latency, clock, and how long the credential opens it."""
    milliseconds = round(probe.latency_s * 1000)
    yield PreflightRow("Reachable", OK, f"Kubernetes {probe.version}")
    advice = "Over a slow line budgets arrive late. Run the portal nearer to the cluster."
    is_slow = probe.latency_s > LATENCY_WARN_S
    yield _warned_if(is_slow, "Latency", f"{milliseconds} ms", advice)
    if probe.server_time is not None:
        skew = round((probe.server_time - now).total_seconds())
        is_off = abs(skew) > SKEW_WARN_S
        found = f"{skew:+d} s against this server" if is_off else "agrees with this server"
        advice = "Usage is metered by the clusters' clocks. Set up NTP."
        yield _warned_if(is_off, "Clock", found, advice)
    if cluster.certificate_expires_at is not None:
        left = cluster.certificate_expires_at - now
        state = FAULT if left <= timedelta(0) else WARN if left < ENDS_SOON else OK
        yield PreflightRow(
            "Credential",
            state,
            f"ends {cluster.certificate_expires_at:%Y-%m-%d %H:%M} UTC",
            "Renew the kubeconfig before then." if state != OK else "",
        )


def identity_row(uid: str, cluster: Cluster) -> PreflightRow:
    """Whether it is the cluster that was registered; a new one has no UID yet."""
    if not uid:
        advice = "Apply the generated rights: the portal reads the namespace kube-system."
        return PreflightRow("Identity", FAULT, "The cluster does not tell its UID.", advice)
    if cluster.uid in ("", uid):
        return PreflightRow("Identity", OK, f"UID {uid}")
    found = f"UID {uid} answers; {cluster.uid} is registered"
    return PreflightRow("Identity", FAULT, found, "Give a kubeconfig that leads to this cluster.")


def _warned_if(is_bad: bool, name: str, found: str, advice: str) -> PreflightRow:
    return PreflightRow(name, WARN, found, advice) if is_bad else PreflightRow(name, OK, found)


def served_row(served: probes.ServedKinds, version: str) -> PreflightRow:
    """Kueue's kinds at the pinned version."""
    if not served.missing:
        words = f"Kueue {version}, serves" if version else "serves"
        return PreflightRow("Kueue's API", OK, f"{words} {', '.join(served.versions)}")
    found = f"serves {', '.join(served.versions)}" if served.versions else "not installed"
    return PreflightRow(
        "Kueue's API",
        FAULT,
        f"{found}; missing at {r.KUEUE_VERSION}: {', '.join(served.missing)}",
        f"Install Kueue {FOLLOWED.line}, or its CRDs for portal mode.",
    )


def version_rows(
    cluster: Cluster, release: Release | None, crds: str, configuration: Mapping[str, Any]
) -> Iterator[PreflightRow]:
    """Which Kueue this is, whether the portal follows it, and what does not belong together.

    Args:
        cluster: As it is, or is to be, registered.
        release: Of the controller; None where it is not known.
        crds: Minor version of the CRDs; empty where it is not known.
        configuration: Kueue's, as it is in force.
    """
    if cluster.mode == Cluster.Mode.PORTAL:
        if crds == FORMER.line:
            found = f"of {crds} or older; the portal decides as Kueue {FOLLOWED.line} does"
            yield PreflightRow(
                "Kueue's CRDs", WARN, found, f"Apply the CRDs of Kueue {FOLLOWED.line}."
            )
        return
    if release is None:
        known = f"; its CRDs are those of {crds}" if crds else ""
        advice = "The portal sees it by the image of the Deployment kueue-controller-manager."
        yield PreflightRow("Kueue version", OK, f"not known{known}", advice)
        return
    support = support_of(release)
    if support is Support.FULL:
        yield PreflightRow("Kueue version", OK, f"{release}, which the portal supports")
    else:
        tried = (
            f"the portal explains and forecasts by {FOLLOWED.line}"
            if support is Support.UPGRADE
            else "the portal was not tried with it"
        )
        advice = (
            f"Install Kueue {FOLLOWED}: on workers first, then on the manager. The page Kueue "
            "versions says what would change."
        )
        yield PreflightRow("Kueue version", WARN, f"{release}; {tried}", advice)
    belong = FOLLOWED.line if release.is_of(FOLLOWED) else FORMER.line
    if crds and crds != belong:
        yield PreflightRow(
            "Kueue's CRDs",
            WARN,
            f"of {crds}, and the controller is {release}",
            "CRDs and controller belong together. Finish the upgrade.",
        )
    for setting in unknown_settings(release, configuration):
        yield PreflightRow(
            "Kueue configuration",
            WARN,
            f"{setting} is set; Kueue {release} does not know it and does not start with it",
            "Take it out, or upgrade Kueue first.",
        )


def right_rows(client: KubeClient, rules: Iterable[Rule]) -> Iterator[PreflightRow]:
    """One row when the client's identity has all rights, else one for each that it has not."""
    asked = questions(rules)
    missing = probes.missing_rights(client, asked)
    if not missing:
        yield PreflightRow("Rights", OK, f"all {len(asked)} that the portal needs")
        return
    grouped: dict[tuple[str, str, bool], list[str]] = {}
    for access in missing:
        resource = f"{access.resource}/{access.subresource}".rstrip("/")
        place = f" in {access.namespace}" if access.namespace else ""
        key = (f"{resource}{place}", access.why, access.is_required)
        verbs = grouped.setdefault(key, [])
        if access.verb not in verbs:
            verbs.append(access.verb)
    for (what, why, is_required), verbs in grouped.items():
        yield PreflightRow(
            f"Right: {what}",
            FAULT if is_required else WARN,
            f"may not {', '.join(verbs)}",
            f"Needed for {why}. Apply the generated rights to this cluster.",
        )


def proof_row(proof: probes.KueueProof, signs: Sequence[str], cluster: Cluster) -> PreflightRow:
    """Whether a controller lives, and whether that fits the mode."""
    words = f"{proof.words} Signs: {', '.join(signs)}." if signs else proof.words
    fits = proof.is_alive is (cluster.mode == Cluster.Mode.KUEUE)
    if fits:
        return PreflightRow("Kueue controller", OK, words)
    if proof.is_alive is None:
        return PreflightRow("Kueue controller", WARN, words, "Look at Kueue's own pods and logs.")
    advice = (
        "Kueue and the portal would both write the same status. Let Kueue decide, or stop Kueue."
        if proof.is_alive
        else "Without a controller nothing is admitted in kueue mode: start Kueue, or change mode."
    )
    return PreflightRow("Kueue controller", FAULT, words, advice)


def configuration_row(cluster: Cluster, found: Mapping[str, Any] | None) -> PreflightRow:
    """Where the Configuration in force comes from."""
    if cluster.kueue_configuration:
        differs = found is not None and dict(cluster.kueue_configuration) != dict(found)
        words = "pasted by an admin" + ("; the cluster's ConfigMap says otherwise" * differs)
        advice = "Paste what holds on the cluster, or clear it."
        return _warned_if(differs, "Kueue configuration", words, advice)
    if found is not None:
        return PreflightRow("Kueue configuration", OK, "read from the cluster's ConfigMap")
    words = f"not readable; the defaults of Kueue {FOLLOWED.line} are assumed"
    return PreflightRow("Kueue configuration", OK, words)


def unfollowed_rows(cluster: Cluster, configuration: Mapping[str, Any]) -> Iterator[PreflightRow]:
    """A row for each thing that the Configuration says and no decision of the portal follows."""
    is_deciding = cluster.mode == Cluster.Mode.PORTAL
    advice = (
        "The portal would decide as if that were not there: take it out of the Configuration, or "
        "let Kueue decide on this cluster (kueue mode)."
        if is_deciding
        else "Kueue follows it; what the portal explains and forecasts here leaves it out."
    )
    for found in not_followed(configuration):
        yield PreflightRow("Kueue features", FAULT if is_deciding else WARN, found, advice)


def device_rows(
    client: KubeClient, cluster: Cluster, configuration: Mapping[str, Any]
) -> Iterator[PreflightRow]:
    """Whether a cluster whose devices count by claims serves what claims are made from.

    Nothing where they do not count, and for a Configuration that cannot be read.
    """
    if not configuration_or_defaults(configuration).counts_claims:
        return
    if probes.serves(client, r.RESOURCE_CLAIM_TEMPLATE):
        yield PreflightRow(
            "Devices by claims", OK, f"serves {r.RESOURCE_CLAIM_TEMPLATE.api_version}"
        )
        return
    yield PreflightRow(
        "Devices by claims",
        FAULT if cluster.mode == Cluster.Mode.PORTAL else WARN,
        "resources.deviceClassMappings is set, and this API server does not serve "
        f"{r.RESOURCE_CLAIM_TEMPLATE.api_version}",
        "Kubernetes serves it from 1.34 on. Upgrade the cluster, or take the mappings out of the "
        "Configuration: until then no job that claims devices starts.",
    )


def retention_rows(configuration: Mapping[str, Any]) -> Iterator[PreflightRow]:
    """A warning when finished workloads vanish before they can be metered."""
    policies = (configuration.get("objectRetentionPolicies") or {}).get("workloads") or {}
    kept = policies.get("afterFinished")
    if not kept:
        return
    try:
        seconds = parse_duration(str(kept))
    except ValueError:
        return
    if seconds < RETENTION_MIN.total_seconds():
        yield PreflightRow(
            "Retention",
            WARN,
            f"finished workloads are deleted after {kept}",
            "The use of workloads that end and are deleted while the portal is away is estimated. "
            "Keep finished workloads for an hour or more.",
        )


def policy_rows(client: KubeClient, cluster: Cluster) -> Iterator[PreflightRow]:
    """A warning when generated policies are not seen, or when the cluster does not know a kind."""
    wanted, missing = policy_names(policy_wish(cluster)), []
    for kind, resource in _POLICY_KINDS.items():
        listed = [name for which, name in wanted if which == kind]
        try:
            seen = {item["metadata"]["name"] for item in client.list(resource).items}
        except Forbidden:
            seen = set()
        except NotFound:
            if listed and resource == r.MUTATING_POLICY:
                yield PreflightRow(
                    "Admission policies",
                    WARN,
                    f"this API server has no {kind}",
                    "The portal cannot suspend new jobs with GPUs here. Create them suspended and "
                    "with their queue's label; others are refused with a sentence that says so.",
                )
                continue
            seen = set()
        missing += [name for name in listed if name not in seen]
    if missing:
        more = f" and {len(missing) - 4} more" if len(missing) > 5 else ""
        yield PreflightRow(
            "Admission policies",
            WARN,
            f"not seen: {', '.join(missing[: 4 if more else 5])}{more}",
            "Apply the generated policies, so that jobs cannot bypass the budget.",
        )


def external_rows(
    client: KubeClient, cluster: Cluster, configuration: Mapping[str, Any]
) -> Iterator[PreflightRow]:
    """Of a manager under a live Kueue: how nominations are written, how soon losses count.

    Nothing for workers, for portal mode, and for a Configuration that cannot be read.

    Args:
        client: Reads there.
        cluster: As it is, or is to be, registered.
        configuration: Kueue's, as it is in force.
    """
    if not cluster.is_manager or cluster.mode != Cluster.Mode.KUEUE:
        return
    try:
        settings = DispatchSettings.from_document(configuration)
    except ValueError:
        return
    if settings.worker_lost_timeout < LOST_MIN:
        yield PreflightRow(
            "Lost workers",
            WARN,
            f"multiKueue.workerLostTimeout is {settings.worker_lost_s} s",
            "Kueue counts a worker as lost until its next try to reconnect succeeds, after 5, 10, "
            "20 and 40 s: a short outage would restart its jobs elsewhere. Set it to 15m.",
        )
    if settings.in_force.is_ours:
        yield _nomination_row(client, settings, configuration)


def _nomination_row(
    client: KubeClient, settings: DispatchSettings, configuration: Mapping[str, Any]
) -> PreflightRow:
    try:
        found = probe(client, settings, configuration)
    except ClusterError as error:
        return PreflightRow(
            "Nominations", WARN, f"not known: {error.reason}: {error.message}", "Try again."
        )
    words = f"{NominationWay.Way(found.way.value).label}. {found.why}"
    if found.way is Way.NONE:
        return PreflightRow("Nominations", FAULT, words, "Until then no job is dispatched.")
    return PreflightRow("Nominations", OK, words)
