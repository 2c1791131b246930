"""The Kueue Configuration that holds on a cluster, setting by setting, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusters.documents.kueue_versions import FOLLOWED, has_setting
from clusters.kueue.configuration import Configuration, Gates, not_followed


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the page.

    Attributes:
        path: Where it stands in the document.
        value: What holds now, in words.
        is_given: The document says so; otherwise it is Kueue's default.
        text: What it does.
    """

    path: str
    value: str
    is_given: bool
    text: str


def settings_of(document: Mapping[str, Any]) -> list[Setting]:
    """Every part that decisions follow, with what holds now.

    Args:
        document: One that ``read_configuration`` takes.
    """
    read = Configuration.from_document(document)
    ready, by_usage = read.pods_ready, read.admission_fair_sharing
    rows = (
        (
            "fairSharing",
            ", ".join(each.value for each in read.fair_strategies) or "off",
            "Whether a workspace that uses less than its share may preempt jobs of one that uses "
            "more.",
        ),
        (
            "admissionFairSharing",
            f"on; past use counts half after {_time(by_usage.half_life_s)}" if by_usage else "off",
            "Whether jobs of people who used less lately go first.",
        ),
        (
            "waitForPodsReady",
            f"on; pods have {_time(ready.timeout_s)} to get ready" if ready else "off",
            "How long the pods of a job may take to get ready before it is evicted and tried "
            "again.",
        ),
        (
            "waitForPodsReady.blockAdmission",
            "on" if read.blocks_admission else "off",
            "Whether a job starts only when the pods of all others are ready.",
        ),
        (
            "waitForPodsReady.requeuingStrategy",
            "by the time of the eviction" if read.requeues_by_eviction else "by the first queueing",
            "Which place an evicted job gets in its queue.",
        ),
        (
            "resources.excludeResourcePrefixes",
            ", ".join(read.excluded_prefixes) or "none",
            "Resources with these prefixes count against no quota.",
        ),
        (
            "resources.transformations",
            ", ".join(read.transformations) or "none",
            "Resources that count as others.",
        ),
        (
            "resources.deviceClassMappings",
            _device_classes(read),
            "What a device counts as that a job claims by its DeviceClass.",
        ),
        (
            "resources.quotaCheckStrategy",
            "ignored" if read.ignores_undeclared else "refused",
            "What happens to a job that asks for a resource without quota.",
        ),
        (
            "featureGates",
            _gates(read.gates) or f"defaults of Kueue {FOLLOWED}",
            "Features that are switched on or off.",
        ),
    )
    return [Setting(path, value, has_setting(document, path), text) for path, value, text in rows]


def notes_of(document: Mapping[str, Any]) -> list[str]:
    """What the document turns on that the portal's forecasts and decisions do not follow."""
    return [f"{found}. The portal does not follow that." for found in not_followed(document)]


def _gates(gates: Gates) -> str:
    usual = Gates()
    return ", ".join(
        f"{name.replace('_', ' ')} {'on' if getattr(gates, name) else 'off'}"
        for name in Gates.__dataclass_fields__
        if getattr(gates, name) != getattr(usual, name)
    )


def _device_classes(read: Configuration) -> str:
    if not read.gates.kueue_dra_integration:
        return "off"
    mapped = read.device_classes.resources
    return "; ".join(f"{name} as {resource}" for name, resource in mapped.items()) or (
        "none: jobs with claims are refused"
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "any time"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:,} min" if minutes and not rest else f"{int(seconds):,} s"
