"""What stands behind the sentence: flavors tried, who holds what is lacking, what helps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from budgets.plan import HOST_FLAVOR, StopPolicy
from clusters.explaining import words
from clusters.explaining.evidence import Evidence, Pair
from clusters.explaining.names import Names
from clusters.explaining.sentence import barring_cap, excess, is_told, sentence, shortage
from clusters.explaining.stops import Stop, StopSource, closed_flavor, holding, remedy
from clusters.explaining.words import is_closed, is_refused, refusal_words
from clusters.kueue.assignment.outcome import FlavorAttempt, FlavorMode
from clusters.kueue.explanation.why import CheckState, Holder, OwnQuota, Protection

HOLDERS_SHOWN: Final = 12
PROTECTION: Final = {
    Protection.NONE: "may be preempted, but that would not make enough room",
    Protection.STOPPING: "has already been told to stop",
    Protection.WITHIN_QUEUE_NEVER: "the budget preempts none of its own jobs",
    Protection.RECLAIM_NEVER: "the budget reclaims nothing from others",
    Protection.PRIORITY: "its priority, or its age, protects it",
    Protection.WITHIN_NOMINAL: "it is inside its own committed GPUs",
}
_ALSO: Final = {
    FlavorMode.PREEMPT: "; jobs of the same budget could be preempted for it",
    FlavorMode.RECLAIM: "; GPUs could be reclaimed from others for it",
    FlavorMode.NO_CANDIDATES: "; nobody may be preempted for it",
}


@dataclass(frozen=True, slots=True)
class FlavorFinding:
    """One flavor that was tried, and why it did not do."""

    flavor: str
    words: str


@dataclass(frozen=True, slots=True)
class HolderFinding:
    """Who holds what is lacking; what other accounts hold is left out.

    Attributes:
        name: Of a job that the reader may see, else which workspace of the account it is of.
        amounts: What it holds of the lacking flavors.
        protection: Why it is not preempted; empty for others' jobs.
        namespace, workload: To link to it; empty for others' jobs.
        since: Since when it holds it; None for others' jobs.
    """

    name: str
    amounts: str
    protection: str = ""
    namespace: str = ""
    workload: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a workload waits, as one reader may know it.

    Attributes:
        sentence: The one sentence.
        reason: Of the condition.
        message: Kueue's or the engine's own words, names of others taken out.
        position: In its queue, 0 for none; ``waiting`` how many wait there.
        flavors, holders, checks: The evidence.
        holders_more: Holders that are not listed; only of those that the reader may count.
        stops: What holds the whole queue, the strongest first.
        remedies: What would change it.
    """

    sentence: str
    reason: str = ""
    message: str = ""
    position: int = 0
    waiting: int = 0
    is_parked: bool = False
    flavors: tuple[FlavorFinding, ...] = ()
    holders: tuple[HolderFinding, ...] = ()
    holders_more: int = 0
    checks: tuple[CheckState, ...] = ()
    stops: tuple[Stop, ...] = ()
    remedies: tuple[str, ...] = ()


def explained(evidence: Evidence, names: Names) -> Explained:
    """Evidence as one reader may see it."""
    names = names.wary_of(_names_in(evidence))
    own: list[Holder] = []
    others: list[tuple[str, Mapping[Pair, int]]] = []
    for item in _in_its_way(evidence):
        if names.sees_job(item.key, item.cluster_queue):
            own.append(item)
        else:
            others.append((item.cluster_queue, item.amounts))
    shown = own[:HOLDERS_SHOWN]
    more = len(own) - len(shown)
    if names.sees_everything:
        more += evidence.holder_count - len(evidence.holders)
    return Explained(
        sentence=sentence(evidence, names),
        reason=names.message(evidence.reason),
        message=names.message(evidence.message),
        position=evidence.position,
        waiting=evidence.waiting,
        is_parked=evidence.is_parked,
        flavors=_flavors(evidence, names),
        holders=(
            *(_own_holder(item, names) for item in shown),
            *(HolderFinding(*told) for told in words.by_owner(others, names)),
        ),
        holders_more=max(0, more),
        checks=tuple(
            replace(item, message=names.message(item.message))
            for item in evidence.checks
            if not evidence.attempts
        ),
        stops=tuple(holding(evidence.stops or ())) if evidence.hold is not StopPolicy.NONE else (),
        remedies=tuple(_remedies(evidence.current, names)),
    )


def _names_in(evidence: Evidence) -> Iterable[str]:
    """Every name of a workload or queue that the evidence has."""
    yield evidence.cluster_queue
    for holder in evidence.holders:
        yield holder.key
        yield holder.cluster_queue
    for borrower in evidence.borrowers:
        yield borrower.cluster_queue


def _in_its_way(evidence: Evidence) -> Iterable[Holder]:
    """Holders whose end would help, with what of theirs would.

    Where the budget's own ceiling is reached, what others hold is not in the way.
    """
    bounded = {
        pair
        for pair, own in evidence.quota.items()
        if not words.is_unlimited(own.potential)
        and own.potential - own.used < evidence.requests.get(pair.resource, 0)
    }
    for holder in evidence.holders:
        is_own = holder.cluster_queue == evidence.cluster_queue
        helps = {
            pair: count for pair, count in holder.amounts.items() if is_own or pair not in bounded
        }
        if helps:
            yield replace(holder, amounts=helps)


def _own_holder(holder: Holder, names: Names) -> HolderFinding:
    return HolderFinding(
        name=holder.key,
        amounts=words.amounts(holder.amounts, names),
        protection=PROTECTION.get(holder.protection, ""),
        namespace=holder.namespace,
        workload=holder.name,
        since=holder.since,
    )


def _flavors(evidence: Evidence, names: Names) -> tuple[FlavorFinding, ...]:
    """One line for each flavor, in the order in which they were tried."""
    found: dict[str, str] = {}
    for item in evidence.attempts:
        if item.flavor in found or not item.flavor:
            continue
        if is_refused(item):
            found[item.flavor] = refusal_words(item, names, evidence.stops or ())
        elif item.missing:
            missing = {Pair(item.flavor, name): count for name, count in item.missing.items()}
            told = words.amounts(missing, names)
            if not all(is_told(evidence, pair, names) for pair in missing):
                told = "some"
            found[item.flavor] = f"{told} more needed{_ALSO.get(item.mode, '')}"
        elif item.mode is FlavorMode.FIT and item.flavor != HOST_FLAVOR:
            found[item.flavor] = "fits"
    return tuple(FlavorFinding(names.flavor(slug), text) for slug, text in found.items())


def _remedies(evidence: Evidence, names: Names) -> Iterable[str]:
    """What would change it, the cheapest first."""
    if evidence.hold is not StopPolicy.NONE:
        yield from (remedy(stop, names) for stop in holding(evidence.stops or ()))
        return
    if evidence.is_turned_back:
        stops = holding(evidence.stops or ())
        yield from (remedy(stop, names) for stop in stops if stop.source is StopSource.CAP)
        return
    refused = [item for item in evidence.attempts if is_refused(item)]
    if refused and len(refused) == len(evidence.attempts):
        yield from _for_refused(refused, evidence.stops or (), names)
        return
    is_too_large = evidence.reason == "ExceedsMaxQuota"
    short = excess(evidence) if is_too_large else shortage(evidence)
    if short is None or not words.is_device(short[0]):
        return
    pair, lacking = short
    own = evidence.quota.get(pair, OwnQuota())
    asked = evidence.requests.get(pair.resource, 0)
    cap = barring_cap(evidence, pair)
    if cap is not None:
        yield remedy(cap, names)
    if is_too_large:
        most = own.potential
        if most > 0:
            yield f"Ask for {words.amount(pair, most, names)} or less in one job."
        if cap is None:
            yield f"Raise the budget's burst limit by {words.amount(pair, lacking, names)}."
        return
    is_known = is_told(evidence, pair, names)
    what = words.amount(pair, lacking, names) if is_known else names.flavor(pair.flavor)
    if is_known and 0 < own.available < asked:
        yield f"A job of up to {words.amount(pair, own.available, names)} would start now."
    if own.lent >= lacking:
        yield (
            f"Borrowers end jobs that hold {what}, or those jobs are preempted where the budget "
            "allows it."
        )
    else:
        yield f"Jobs that hold {what} end."
    yield f"Raise the committed {f'GPUs by {what}' if is_known else what}."


def _for_refused(
    refused: Sequence[FlavorAttempt], stops: Iterable[Stop], names: Names
) -> Iterable[str]:
    """Flavors under maintenance open again; for others the job, or the budget, has to differ."""
    known = list(stops)
    closed = [closed_flavor(known, item.flavor) for item in refused if is_closed(item)]
    yield from dict.fromkeys(remedy(stop, names) for stop in closed if stop is not None)
    if len(closed) < len(refused):
        yield "Change the job's tolerations or node selector, or add a flavor that suits it."
    elif None in closed:
        yield "The maintenance ends."
