"""What a Kueue Configuration says about dispatch, read and checked. Pure.

Source: Kueue apis/config/v1beta2 ``multiKueue``, v0.19.2; spec dispatch 1.8, 3.
Deviations: ``incrementalDispatcherConfig.timeout`` (proposed upstream) sets the length of a round,
and the section holds for the portal's own dispatcher too. Names that nobody serves mean, as in
Kueue, that somebody outside nominates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from clusters.documents.resources import Resource
from clusters.jobs.table import KINDS, integrations, resource_named
from clusters.kueue.configuration import parse_duration
from clusters.kueue.feature_gates import in_force
from clusters.kueue.multikueue.dispatchers import (
    ALL_AT_ONCE,
    DISPATCHERS,
    Dispatcher,
    Nomination,
    Pace,
    dispatcher_named,
)
from clusters.kueue.multikueue.group import Group

DEFAULT_ORIGIN: Final = "multikueue"


def origin_of(configuration: Mapping[str, Any]) -> str:
    """The mark that a manager's Kueue puts on its copies: ``multiKueue.origin``."""
    return str((configuration.get("multiKueue") or {}).get("origin") or DEFAULT_ORIGIN)


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """How work is dispatched.

    Attributes:
        dispatcher: ``multiKueue.dispatcherName``; a name that is not served here means that
            somebody outside nominates.
        step: Workers that one round adds.
        round_length: How long a round waits before the next one adds workers.
        worker_lost_timeout: How long a lost worker is waited for.
        integrations: Known kinds besides Jobs, from ``integrations.frameworks``.
        frameworks: Further kinds that an admin named, from ``multiKueue.externalFrameworks``.
        is_fine: Conditions of waiting workloads have the finer reasons.
    """

    dispatcher: str = ALL_AT_ONCE
    step: int = 3
    round_length: timedelta = timedelta(minutes=5)
    worker_lost_timeout: timedelta = timedelta(minutes=15)
    integrations: tuple[Resource, ...] = ()
    frameworks: tuple[Resource, ...] = ()
    is_fine: bool = False

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """Every kind besides Jobs."""
        return (*self.integrations, *self.frameworks)

    @property
    def in_force(self) -> Dispatcher:
        """The dispatcher itself."""
        return dispatcher_named(self.dispatcher)

    @property
    def words(self) -> str:
        """The dispatcher as people call it."""
        return self.in_force.words

    def nominate(self, group: Group) -> Nomination:
        """Who shall be nominated for a workload, by the dispatcher in force."""
        return self.in_force.choose(group, Pace(self.step, self.round_length))

    @property
    def worker_lost_s(self) -> int:
        """How long a lost worker is waited for, whole seconds."""
        return int(self.worker_lost_timeout.total_seconds())

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> DispatchSettings:
        """Read a Kueue ``Configuration`` document; missing parts mean defaults.

        Raises:
            ValueError: values that are not usable, all of them in one message.
        """
        section = (document or {}).get("multiKueue") or {}
        problems = list(_problems(section))
        if problems:
            raise ValueError("; ".join(problems))
        dispatcher = str(section.get("dispatcherName") or ALL_AT_ONCE)
        rounds = section.get("incrementalDispatcherConfig") or {}
        preset = dispatcher_named(dispatcher).pace or Pace()
        length = rounds.get("timeout")
        lost = section.get("workerLostTimeout")
        return cls(
            dispatcher=dispatcher,
            step=int(rounds.get("stepSize") or preset.step),
            round_length=_duration(length) if length else preset.round_length,
            worker_lost_timeout=_duration(lost) if lost else cls().worker_lost_timeout,
            integrations=integrations(
                ((document or {}).get("integrations") or {}).get("frameworks") or ()
            ),
            frameworks=tuple(
                resource_named(item["name"]) for item in section.get("externalFrameworks") or ()
            ),
            is_fine=in_force((document or {}).get("featureGates") or {})[
                "UnadmittedWorkloadsObservability"
            ],
        )


def _duration(text: Any) -> timedelta:
    return timedelta(seconds=parse_duration(str(text)))


def _problems(section: Mapping[str, Any]) -> Iterator[str]:
    rounds = section.get("incrementalDispatcherConfig") or {}
    for place, text in (
        ("workerLostTimeout", section.get("workerLostTimeout")),
        ("incrementalDispatcherConfig.timeout", rounds.get("timeout")),
    ):
        try:
            if text and _duration(text) < timedelta(0):
                yield f"multiKueue.{place}: {text!r} is below zero"
        except ValueError:
            yield f"multiKueue.{place}: {text!r} is no duration, as 15m or 90s"
    step = rounds.get("stepSize")
    if step is not None and (not isinstance(step, int) or isinstance(step, bool) or step < 1):
        yield f"multiKueue.incrementalDispatcherConfig.stepSize: {step!r} is no number from 1 on"
    dispatcher = section.get("dispatcherName") or ALL_AT_ONCE
    if rounds and dispatcher_named(dispatcher).pace is None:
        in_rounds = ", ".join(name for name, item in DISPATCHERS.items() if item.pace is not None)
        yield (
            "multiKueue.incrementalDispatcherConfig is only for the dispatchers that work in "
            f"rounds ({in_rounds}), not for {dispatcher}"
        )
    names = [str((item or {}).get("name", "")) for item in section.get("externalFrameworks") or ()]
    for name in names:
        try:
            resource_named(name)
        except ValueError as error:
            yield f"multiKueue.externalFrameworks: {error}"
        if name in {kind.resource.full_name for kind in KINDS.values()}:
            yield (
                f"multiKueue.externalFrameworks: {name} is known; "
                "name it in integrations.frameworks instead"
            )
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"multiKueue.externalFrameworks: {name} is named twice"
