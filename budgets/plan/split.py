"""How a whole number of GPUs is laid over worker clusters.

Rules: parts are multiples of a node, the remainder is on one worker; concentrated before spread
(8 + 8 would leave a 16-GPU job waiting for ever); what stands already stays where it is, even on
a worker that became short, because moving is an admin's decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from budgets.errors import Fault


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """What is to be laid out.

    Attributes:
        flavor: What people call the flavor, for the message.
        gpus: Whole GPUs to place.
        lendable: Of these, how many may be lent; at most ``gpus``.
        node_gpus: GPUs of one node, at least 1.
        rooms: worker -> GPUs that are not promised to others there, this line's own included.
        previous: worker -> (GPUs, lendable) as they stand.
    """

    flavor: str
    gpus: int
    lendable: int
    node_gpus: int
    rooms: Mapping[str, int]
    previous: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Split:
    """Where the GPUs stand.

    Attributes:
        parts: worker -> (C_w, L_w); workers with nothing are left out.
        unmet: GPUs that found no place.
        fault: Names what is short; None when everything is placed.
    """

    parts: Mapping[str, tuple[int, int]]
    unmet: int = 0
    fault: Fault | None = None


def split_line(request: SplitRequest, *, field: str = "") -> Split:
    """Lay a line, or a pool's amount, which lends nothing, over workers.

    Args:
        request: What to place, and what stands.
        field: Input that a fault belongs to.

    Returns:
        Parts that sum to ``gpus - unmet``; each L_w is at most C_w and together they are
        ``min(lendable, placed)``. With a shortage as much as fits is placed and the fault says
        what is missing; the caller decides whether that is good enough. O(workers^2).
    """
    committed = _place(request)
    unmet = request.gpus - sum(committed.values())
    lendable = _lend(min(request.lendable, request.gpus - unmet), committed, request.previous)
    parts = {
        worker: (gpus, lendable.get(worker, 0)) for worker, gpus in committed.items() if gpus > 0
    }
    return Split(parts, unmet, _shortage(request, unmet, field) if unmet else None)


def _place(request: SplitRequest) -> dict[str, int]:
    """Try every worker for the remainder and take the best layout.

    Best: places most, then moves least, then touches the fewest workers, then leaves the least
    room beside what it took, then comes first in the order of workers.
    """
    held = {worker: gpus for worker, (gpus, _) in request.previous.items() if gpus > 0}
    if sum(held.values()) == request.gpus:
        return held
    # What stands counts as room: a short worker keeps its part and the gap is reported.
    workers = dict.fromkeys([*request.rooms, *held])
    rooms = {name: max(request.rooms.get(name, 0), held.get(name, 0)) for name in workers}
    nodes, remainder = divmod(request.gpus, request.node_gpus)
    layouts = [_lay_nodes(nodes, rooms, held, request.node_gpus)]
    if remainder:
        layouts = [
            _lay_nodes(nodes, rooms, held, request.node_gpus, holder=holder, remainder=remainder)
            for holder in rooms
            if rooms[holder] >= remainder
        ] + layouts

    def cost(parts: Mapping[str, int]) -> tuple[int, int, int, int]:
        return (
            -sum(parts.values()),
            sum(max(0, gpus - held.get(worker, 0)) for worker, gpus in parts.items()),
            len(parts),
            sum(rooms[worker] for worker in parts),
        )

    return min(layouts, key=cost)


def _lay_nodes(
    nodes: int,
    rooms: Mapping[str, int],
    held: Mapping[str, int],
    node: int,
    *,
    holder: str = "",
    remainder: int = 0,
) -> dict[str, int]:
    """Lay ``nodes`` whole nodes, keeping what stands, with the remainder on ``holder``."""
    spare = {
        worker: (room - (remainder if worker == holder else 0)) // node
        for worker, room in rooms.items()
    }
    laid = {worker: min(held.get(worker, 0) // node, spare[worker]) for worker in rooms}
    order = {worker: index for index, worker in enumerate(rooms)}
    excess = sum(laid.values()) - nodes
    # Shrink: the smallest part goes first, so that what is left is concentrated.
    for worker in sorted(laid, key=lambda name: (name == holder, laid[name], -order[name])):
        cut = min(laid[worker], max(excess, 0))
        laid[worker] -= cut
        excess -= cut
    missing = nodes - sum(laid.values())
    # Grow: beside what stands; on fresh ground on the tightest worker that takes all the rest.
    while missing > 0:
        open_rooms = {name: spare[name] - laid[name] for name in rooms if spare[name] > laid[name]}
        if not open_rooms:
            break
        fitting = [name for name, room in open_rooms.items() if room >= missing]
        chosen = min(
            fitting or open_rooms,
            key=lambda name: (
                name != holder,
                -laid[name],
                open_rooms[name] if fitting else -open_rooms[name],
                order[name],
            ),
        )
        taken = min(missing, open_rooms[chosen])
        laid[chosen] += taken
        missing -= taken
    parts = {worker: count * node for worker, count in laid.items() if count}
    if remainder:
        parts[holder] = parts.get(holder, 0) + remainder
    return parts


def _lend(
    lendable: int, committed: Mapping[str, int], previous: Mapping[str, tuple[int, int]]
) -> dict[str, int]:
    """Keep what is lent where it is, then fill the largest parts first; L_w <= C_w."""
    parts = {
        worker: min(previous.get(worker, (0, 0))[1], gpus) for worker, gpus in committed.items()
    }
    largest_first = sorted(committed, key=lambda worker: (-committed[worker], worker))
    excess = sum(parts.values()) - lendable
    for worker in reversed(largest_first):
        cut = min(parts[worker], max(excess, 0))
        parts[worker] -= cut
        excess -= cut
    missing = lendable - sum(parts.values())
    for worker in largest_first:
        taken = min(missing, committed[worker] - parts[worker])
        parts[worker] += taken
        missing -= taken
    return parts


def _shortage(request: SplitRequest, unmet: int, field: str) -> Fault:
    free = {worker: room for worker, room in request.rooms.items() if room > 0}
    listed = (
        ", ".join(f"{worker} has {room}" for worker, room in free.items()) or "no worker has any"
    )
    return Fault(
        field,
        "split_infeasible",
        f"The workers have no room for {unmet} of the {request.gpus} {request.flavor}. Committed "
        f"GPUs are given in whole nodes of {request.node_gpus} GPUs ({listed} free). Ask for "
        "fewer, or add capacity.",
    )
