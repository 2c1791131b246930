"""Why a workload waits, in one sentence.

The rules are tried in order, from what stops everything to what a little more quota would solve;
the first that has something to say is the sentence. Source: spec/features.md section 3, "Why
pending"; issue 4 section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from budgets.plan import StopPolicy
from clusters.documents.labels import level_word
from clusters.explaining import words
from clusters.explaining.conditions import clause
from clusters.explaining.evidence import Evidence, Pair
from clusters.explaining.names import Names
from clusters.explaining.stops import Stop, StopSource, cap_words, hold_clause, holding, soft_cap
from clusters.explaining.words import is_beyond, is_refused, refusal_words, unavailable_resource
from clusters.kueue.assignment.outcome import FlavorAttempt
from clusters.kueue.explanation.why import SET_ASIDE, OwnQuota

_GOOD_CHECK: Final = "Ready"


def sentence(evidence: Evidence, names: Names) -> str:
    """The one sentence about why a workload waits; never empty. All its figures are of now."""
    evidence = evidence.current
    for rule in _RULES:
        if found := rule(evidence, names):
            return f"{found[0].upper()}{found[1:]}."
    return "It has not been looked at yet."


def _nearest(evidence: Evidence) -> FlavorAttempt | None:
    """The flavor that came closest: one that can ever hold it, by mode, by how few are missing."""
    # What fits elsewhere, by pod set and resource: that a flavor lacks it is in nobody's way.
    fitting = {
        (item.pod_set, pair.resource)
        for item in evidence.attempts
        if not item.missing and not is_refused(item)
        for pair in evidence.quota
        if pair.flavor == item.flavor
    }
    tried = [
        item
        for item in evidence.attempts
        if any((item.pod_set, resource) not in fitting for resource in item.missing)
    ]
    if not tried:
        return None

    def distance(item: FlavorAttempt) -> tuple[bool, int, int]:
        devices = [
            count
            for resource, count in item.missing.items()
            if words.is_device(Pair(item.flavor, resource))
        ]
        never = any(is_beyond(item, resource) for resource in item.missing)
        return (never, -item.mode, sum(devices or item.missing.values()))

    return min(tried, key=distance)


def shortage(evidence: Evidence) -> tuple[Pair, int] | None:
    """The pair that is short in the nearest flavor, GPUs before others, and by how much."""
    nearest = _nearest(evidence)
    if nearest is None and evidence.attempts:
        return None
    if nearest is None:
        found = {pair: count for pair, count in evidence.lacking.items() if count > 0}
    else:
        found = {Pair(nearest.flavor, name): count for name, count in nearest.missing.items()}
    pairs = words.devices_first(found)
    return (pairs[0], found[pairs[0]]) if pairs else None


def excess(evidence: Evidence) -> tuple[Pair, int] | None:
    """What the budget can never have, and by how much: GPUs first, where the least is missing."""
    beyond = [
        (Pair(item.flavor, resource), count)
        for item in evidence.attempts
        for resource, count in item.missing.items()
        if is_beyond(item, resource)
    ]
    if not beyond:
        return shortage(evidence)
    return min(beyond, key=lambda found: (not words.is_device(found[0]), found[1]))


def barring_cap(evidence: Evidence, pair: Pair) -> Stop | None:
    """The reached spend cap for which nothing of a pair may be borrowed."""
    own = evidence.quota.get(pair)
    if own is None or own.potential > own.nominal:
        return None
    return soft_cap(evidence.stops or ())


def is_told(evidence: Evidence, pair: Pair, names: Names) -> bool:
    """Whether a reader may know how much of a pair is free, and so how much is missing.

    Where others hold some of what a budget has left, those figures are theirs.
    """
    own = evidence.quota.get(pair)
    return names.sees_everything or (own is not None and _elsewhere(own)[0] <= 0)


def requested(evidence: Evidence, pair: Pair) -> int:
    """How much of a pair's resource the whole workload asks for; at least what is lacking."""
    return max(evidence.requests.get(pair.resource, 0), evidence.lacking.get(pair, 0))


def _set_aside(evidence: Evidence, names: Names) -> str:
    if evidence.reason != SET_ASIDE:
        return ""
    told = _trimmed(names.message(evidence.message))
    return f"the portal has set it aside, and tries again from time to time: {told}"


def _turned_back(evidence: Evidence, names: Names) -> str:
    """A spend check deactivated it; it comes back without anybody."""
    if evidence.reason != "Deactivated" or not evidence.is_turned_back:
        return ""
    stops = holding(evidence.stops or ())
    caps = [stop for stop in stops if stop.source is StopSource.CAP]
    if not caps:
        return "a spend cap held it back, and it starts again by itself when the cap allows it"
    return f"{hold_clause(caps)}; the job comes back by itself then"


def _deactivated(evidence: Evidence, names: Names) -> str:
    if evidence.reason == "Deactivated":
        return "it is deactivated and asks for no GPUs until somebody puts it back in the queue"
    return ""


def _gated(evidence: Evidence, names: Names) -> str:
    if evidence.reason == "AdmissionGated":
        return _plain(evidence, names)
    return ""


def _held(evidence: Evidence, names: Names) -> str:
    if evidence.hold is StopPolicy.NONE:
        if evidence.reason == "Suspended":
            return "its queue is stopped, or the cluster has not made it ready yet"
        return ""
    drains = (
        "; running jobs are being stopped" if evidence.hold is StopPolicy.HOLD_AND_DRAIN else ""
    )
    return f"{_who_holds(evidence)}{drains}"


def _who_holds(evidence: Evidence) -> str:
    """The portal never stops a LocalQueue; of a ClusterQueue it knows why it did."""
    if evidence.hold_kind == "LocalQueue":
        return (
            "its LocalQueue was stopped on the cluster, not by the portal: nothing starts until "
            "its stopPolicy is removed there"
        )
    if evidence.stops is None:
        return (
            "its budget is on hold: nothing starts until the hold ends; the page of its workspace "
            "says who set it"
        )
    if stops := holding(evidence.stops):
        return hold_clause(stops)
    return (
        "its budget is still on hold on the cluster, though nothing asks for it any more: the "
        "next sync of the cluster ends it"
    )


def _misconfigured(evidence: Evidence, names: Names) -> str:
    if evidence.reason not in ("Misconfigured", "Inadmissible"):
        return ""
    return f"it cannot start as it is: {_plain(evidence, names)}"


def _checks(evidence: Evidence, names: Names) -> str:
    open_checks = [item for item in evidence.checks if item.state != _GOOD_CHECK]
    if not open_checks or (evidence.attempts and evidence.reason != "CheckPending"):
        return ""
    if evidence.reason == "PendingEvaluation":
        return "an admission check asked to try again later, and the portal is asking it again now"
    first = open_checks[0]
    told = f": {_trimmed(names.message(first.message))}" if first.message else ""
    more = f", and for {len(open_checks) - 1} more" if len(open_checks) > 1 else ""
    return f"it has its quota and waits for the check {first.name}{more}{told}"


def _backs_off(evidence: Evidence, names: Names) -> str:
    if evidence.requeue_at is None:
        return ""
    at = evidence.requeue_at
    return f"it was stopped and is tried again at {at:%H:%M} UTC"


def _preempts(evidence: Evidence, names: Names) -> str:
    if evidence.reason == "WaitingForPreemptedWorkloads":
        return "it starts when jobs that were told to make room have stopped"
    if evidence.reason == "WaitingForPodsReady":
        return "it waits until the jobs that started before it have all their pods running"
    return ""


def _without_quota(evidence: Evidence, names: Names) -> str:
    resource = unavailable_resource(evidence.message)
    return f"its budget has no quota for {resource}" if resource else ""


def _too_large(evidence: Evidence, names: Names) -> str:
    """No flavor can ever hold it: the largest that one offers is told."""
    if evidence.reason != "ExceedsMaxQuota":
        return ""
    beyond = excess(evidence)
    if beyond is None:
        return "it asks for more than its budget can ever have"
    pair, lacking = beyond
    own = evidence.quota.get(pair)
    most = own.potential if own is not None else requested(evidence, pair) - lacking
    cap = barring_cap(evidence, pair)
    never = f"never has more than {words.amount(pair, most, names)}"
    if cap is not None:
        never = f"has no more than {words.amount(pair, most, names)} under {cap_words(cap)}"
    return f"it asks for {words.amount(pair, most + lacking, names)}, and its budget {never}"


def _no_flavor(evidence: Evidence, names: Names) -> str:
    refused = [item for item in evidence.attempts if is_refused(item)]
    if not refused or len(refused) < len(evidence.attempts):
        return ""
    stops = evidence.stops or ()
    told = [f"{names.flavor(item.flavor)}: {refusal_words(item, names, stops)}" for item in refused]
    return f"no flavor of its budget suits it ({'; '.join(told)})"


def _lent(evidence: Evidence, names: Names) -> str:
    """Its own committed GPUs are with others, and enough of them to start it."""
    short = shortage(evidence)
    if short is None:
        return ""
    pair, lacking = short
    own = evidence.quota.get(pair, OwnQuota())
    if not words.is_device(pair) or own.lent <= 0 or own.lent < lacking:
        return ""
    queues = [item.cluster_queue for item in evidence.borrowers if item.amounts.get(pair)]
    takers = [names.queue(queue) if names.concerns(queue) else "others" for queue in queues]
    to_whom = words.listed(list(dict.fromkeys(takers)), most=3) or "others"
    if not is_told(evidence, pair, names):
        what = f"committed {names.flavor(pair.flavor)}"
        return f"starts when {what} lent to {to_whom} come back{_behind(evidence)}"
    all_or_some = "the" if lacking == own.lent else f"{lacking:,} of the"
    verb = "comes" if lacking == own.lent == 1 else "come"
    return (
        f"starts when {all_or_some} {words.amount(pair, own.lent, names)} lent to {to_whom} "
        f"{verb} back{_behind(evidence)}"
    )


def _waits(evidence: Evidence, names: Names) -> str:
    """Its budget's GPUs are in use."""
    short = shortage(evidence)
    if short is None:
        return ""
    pair, lacking = short
    own = evidence.quota.get(pair)
    asked = lacking + max(0, own.available) if own else requested(evidence, pair)
    # Where more is used than there is, what is missing is more than was asked for.
    asked = min(asked, evidence.requests.get(pair.resource, asked))
    text = f"waits for {words.amount(pair, asked, names)}"
    if is_told(evidence, pair, names):
        text += f": {lacking:,} more {_be(lacking)} needed"
    if not words.is_device(pair) and (own is None or is_told(evidence, pair, names)):
        text = f"waits for {words.amount(pair, lacking, names)} more"
    if own is not None and not words.is_unlimited(own.potential):
        text += f"; {_use_of(pair, own, barring_cap(evidence, pair), names)}"
    return text + _behind(evidence)


def _use_of(pair: Pair, own: OwnQuota, cap: Stop | None, names: Names) -> str:
    """What is in use, and what others hold of the rest, so that the difference is what is free.

    Who does not see everything is told that others hold some of it, and not how much.
    """

    def told(count: int) -> str:
        return f"{count:,}" if words.is_device(pair) else words.amount(pair, count, names)

    committed = max(0, min(own.used, own.nominal))
    if own.nominal <= 0:
        use = "none is committed"
    else:
        use = f"{told(committed)} of its {told(own.nominal)} committed {_be(committed)} in use"
    burst, ceiling = max(0, own.used - own.nominal), own.potential - own.nominal
    if ceiling <= 0:
        use += f" and none may be borrowed{f' under {cap_words(cap)}' if cap else ''}"
    else:
        use += f" and {told(burst)} of the {told(ceiling)} that it may borrow"
    elsewhere, left = _elsewhere(own)
    if elsewhere <= 0:
        return use
    held = told(elsewhere) if names.sees_everything else "some"
    return f"{use}; others hold {held} of the {told(left)} left"


def _elsewhere(own: OwnQuota) -> tuple[int, int]:
    """How much others hold of what a budget has left, and how much that is."""
    left = max(0, own.nominal - own.used) + max(
        0, own.potential - own.nominal - max(0, own.used - own.nominal)
    )
    return left - max(0, own.available), left


def _behind(evidence: Evidence) -> str:
    if evidence.position < 2:
        return ""
    return f"; it is {words.place_in_queue(evidence.position)} in its queue"


def without_place(evidence: Evidence) -> Pair | None:
    """The devices of which quota is free where no nodes hold a job's pods as it asks."""
    evidence = evidence.current
    if words.lack_of_place(evidence.message) is None:
        return None
    free = {item.flavor for item in evidence.attempts if not (item.missing or is_refused(item))}
    pairs = [pair for pair in evidence.quota if pair.flavor in free and words.is_device(pair)]
    return min((pair for pair in pairs if evidence.requests.get(pair.resource)), default=None)


def _no_place(evidence: Evidence, names: Names) -> str:
    """Quota is free, and no place for its pods that is as it asks."""
    found = words.lack_of_place(evidence.message)
    if found is None:
        return ""
    topology, fitting = found
    pair = without_place(evidence)
    asked = evidence.requests[pair.resource] if pair is not None else 0
    asks = f"its pods with {words.amount(pair, asked, names)}" if pair is not None else "its pods"
    name = names.topology(topology)
    text = f"{asks} cannot be placed together in topology {name}, as the job asks"
    if not names.sees_everything:
        return text + _behind(evidence)
    text += f": {fitting}" if fitting else ""
    own = evidence.quota[pair] if pair is not None else None
    if pair is not None and own is not None and 0 < own.available < words.BEYOND_COUNTING:
        text += f", though {words.amount(pair, own.available, names)} are free in the quota"
    room = evidence.room
    # Nodes were counted a moment ago: a room that holds the job by now explains nothing.
    if room is not None and room.most < asked:
        level = level_word(evidence.within)
        text += (
            f"; the {level} with most room has {room.most:,} free, and {room.free:,} are free "
            "on all nodes"
        )
    return text + _behind(evidence)


def _has_room(evidence: Evidence, names: Names) -> str:
    """What it lacked is free by now."""
    tried = [item for item in evidence.attempts if not is_refused(item)]
    is_in_the_way = evidence.reason_now and evidence.message
    if evidence.reason != "WaitingForQuota" or not tried or shortage(evidence) or is_in_the_way:
        return ""
    return f"there is room for it now, and it is tried again{_behind(evidence)}"


def _queued(evidence: Evidence, names: Names) -> str:
    if evidence.position > 1:
        return f"it is {words.place_in_queue(evidence.position)} in its queue"
    if evidence.position == 1 and not evidence.message:
        return "it is next in its queue and will be looked at within seconds"
    return ""


def _plain(evidence: Evidence, names: Names) -> str:
    """The condition in plain words; what is not known in the cluster's."""
    message = names.message(evidence.message)
    told = _trimmed(message or names.message(evidence.reason))
    return clause(evidence.reason, message) or (f"the cluster says: {told}" if told else "")


def _trimmed(text: str) -> str:
    return text.strip().rstrip(".")


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


_RULES: Final[tuple[Callable[[Evidence, Names], str], ...]] = (
    _set_aside,
    _turned_back,
    _deactivated,
    _gated,
    _held,
    _misconfigured,
    _checks,
    _backs_off,
    _preempts,
    _without_quota,
    _too_large,
    _no_flavor,
    _lent,
    _waits,
    _no_place,
    _has_room,
    _queued,
    _plain,
)
