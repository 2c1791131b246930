"""Amounts, ordinals and lists as people say them, and why a flavor cannot be used at all.

The latter is read from the engine's texts, those of Kueue's condition messages, which
``flavor_assigner`` in ``clusters.kueue.assignment`` writes word for word; one that is not known is
quoted as the cluster's.
"""

from __future__ import annotations

import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from budgets.plan import MAINTENANCE_TAINT
from clusters.explaining.evidence import Pair
from clusters.explaining.names import Names
from clusters.explaining.stops import Stop, closed_flavor, moment
from clusters.kueue.assignment.outcome import FlavorAttempt, FlavorMode

_HOST: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_ORDINALS: Final = ("", "next", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
# The engine's unlimited amount, and what comes near it after subtracting.
BEYOND_COUNTING: Final = 2**62


def is_device(pair: Pair) -> bool:
    """Whether a pair counts GPUs or other devices, not what every machine has."""
    return pair.resource not in _HOST


def devices_first(pairs: Iterable[Pair]) -> list[Pair]:
    """GPUs before CPU and memory, else by name."""
    return sorted(pairs, key=lambda pair: (not is_device(pair), pair))


def amount(pair: Pair, count: int, names: Names) -> str:
    """``8 H100``, ``1.5 CPUs``, ``64 GiB of memory``; the count is in the resource's own unit."""
    if pair.resource == "cpu":
        return f"{_thousandths(count)} CPU{'' if count == 1000 else 's'}"
    if pair.resource in ("memory", "ephemeral-storage"):
        kind = "memory" if pair.resource == "memory" else "local disk"
        return f"{_binary(count)} of {kind}"
    if pair.resource == "pods":
        return f"{count} pod{'' if count == 1 else 's'}"
    flavor = names.flavor(pair.flavor)
    if pair.resource.rpartition("/")[2] == "gpu":
        return f"{count:,} {flavor}"
    return f"{count:,} {pair.resource} of {flavor}"


def amounts(found: Mapping[Pair, int], names: Names) -> str:
    """Several amounts; GPUs alone when there are any."""
    pairs = devices_first(pair for pair, count in found.items() if count > 0)
    devices = [pair for pair in pairs if is_device(pair)]
    return listed([amount(pair, found[pair], names) for pair in devices or pairs])


def by_owner(
    held: Iterable[tuple[str, Mapping[Pair, int]]],
    names: Names,
    *,
    join: Callable[[Counter[Pair], Counter[Pair]], Counter[Pair]] = operator.add,
) -> list[tuple[str, str]]:
    """Amounts of ClusterQueues, joined under what a reader may call their owners; by name.

    How many stand behind a name is not told, and nothing of accounts that are not the reader's.
    """
    found: defaultdict[str, Counter[Pair]] = defaultdict(Counter)
    for queue, some in held:
        if not names.concerns(queue):
            continue
        name = names.queue(queue)
        found[name] = join(found[name], Counter(some))
    return [(name, amounts(found[name], names)) for name in sorted(found)]


def is_unlimited(count: int) -> bool:
    """Whether a figure stands for "no bound"."""
    return count >= BEYOND_COUNTING


def listed(words: Sequence[str], *, most: int = 4) -> str:
    """``a, b and c``; what is beyond ``most`` is counted."""
    shown = list(words[:most])
    if len(words) > most:
        shown.append(f"{len(words) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def place_in_queue(position: int) -> str:
    """``next``, ``third``, ``number 12``; empty where it stands in no queue."""
    if position < len(_ORDINALS):
        return _ORDINALS[max(position, 0)]
    return f"number {position:,}"


def _thousandths(count: int) -> str:
    whole, rest = divmod(count, 1000)
    return f"{whole:,}" + (f".{rest:03d}".rstrip("0") if rest else "")


def _binary(count: int) -> str:
    for name, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if count >= size:
            tenths = (count * 10 + size // 2) // size
            return f"{tenths // 10:,}{f'.{tenths % 10}' if tenths % 10 else ''} {name}"
    return f"{count:,} bytes"


_MAINTENANCE: Final = dict(MAINTENANCE_TAINT)["key"]

_TAINT = re.compile(r"untolerated taint \{(?P<key>\S*) ?(?P<value>\S*) (?P<effect>\S+) <nil>\}")
_AFFINITY = "doesn't match node affinity"
_TOPOLOGY = "does not support TopologyAwareScheduling"
_NO_PLACE = re.compile(
    r'topology "(?P<topology>[^"]{1,253})" '
    r"(?:allows to fit only (?P<fits>[0-9]{1,9}) out of (?P<asked>[0-9]{1,9}) "
    r"(?P<unit>pod|slice)\(s\)|doesn't allow to fit(?P<none> any of)?)"
)
_MISSING_FLAVOR = re.compile(r"flavor \S+ not found")
_NO_QUOTA = re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")
_NOT_ENOUGH = re.compile(r"insufficient (?:unused )?quota")


def lack_of_place(message: str) -> tuple[str, str] | None:
    """Topology, and ``5 of 8 pods would fit``, of a refusal in Kueue's words; else None.

    Pods are those of one pod set, or slices of them; nothing of slices within slices.
    """
    found = _NO_PLACE.search(message)
    if found is None:
        return None
    if found["fits"] is None:
        return found["topology"], "none would fit" if found["none"] else ""
    fits, asked = int(found["fits"]), int(found["asked"])
    # All of them fit where the pod that leads them does not.
    fitting = f"{fits:,} of {asked:,} {found['unit']}s would fit" if fits < asked else ""
    return found["topology"], fitting


def is_refused(attempt: FlavorAttempt) -> bool:
    """Whether the flavor was skipped for another reason than its quota."""
    is_hopeless = attempt.mode is FlavorMode.NO_FIT and not attempt.missing
    return is_hopeless and bool(_first_reason(attempt))


def is_beyond(attempt: FlavorAttempt, resource: str) -> bool:
    """Whether a pod set asks for more of a flavor than the budget can ever have."""
    return any(text.startswith(f"insufficient quota for {resource} ") for text in attempt.reasons)


def is_closed(attempt: FlavorAttempt) -> bool:
    """Whether the flavor was skipped because it is under maintenance."""
    return is_refused(attempt) and _MAINTENANCE in _first_reason(attempt)


def refusal_words(attempt: FlavorAttempt, names: Names, stops: Iterable[Stop] = ()) -> str:
    """``its taint gpu=spot is not tolerated``; the first reason decides."""
    reason = _first_reason(attempt)
    if is_closed(attempt):
        window = closed_flavor(stops, attempt.flavor)
        until = f" until {moment(window.until)}" if window and window.until else ""
        return f"it is closed for maintenance{until}"
    if found := _TAINT.search(reason):
        value = f"={found['value']}" if found["value"] else ""
        return f"the job does not tolerate its taint {found['key']}{value} ({found['effect']})"
    if _AFFINITY in reason:
        return "the job's node selector or affinity does not match its nodes"
    if _TOPOLOGY in reason:
        return "it has no topology, which the job asks for"
    if _MISSING_FLAVOR.search(reason):
        return "it does not exist on the cluster"
    return f"the cluster says: {names.message(reason)}"


def _first_reason(attempt: FlavorAttempt) -> str:
    return next((text for text in attempt.reasons if not _NOT_ENOUGH.search(text)), "")


def unavailable_resource(message: str) -> str:
    """The resource for which the budget has no quota at all; empty when it is not that."""
    found = _NO_QUOTA.search(message)
    return found["resource"] if found else ""
