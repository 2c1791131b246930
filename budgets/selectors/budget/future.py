"""What will be promised at an instant, and where it would stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from budgets.models import Pool
from budgets.plan import (
    FlavorTerms,
    Line,
    Promises,
    RevisionDraft,
    RevisionSpan,
    Split,
    SplitRequest,
    WorkspacePromise,
    in_force_at,
    name_of,
    split_line,
)
from budgets.selectors.budget.promises import promises_in_force, with_held
from budgets.selectors.budget.timeline import (
    flavor_terms,
    free_rooms,
    live_revisions,
    own_rooms,
    pool_amounts_at,
)


def promises_at(
    instant: datetime,
    *,
    include_drafts: Mapping[str, RevisionDraft] | None = None,
    accounts: Iterable[str] | None = None,
) -> Promises:
    """What will be promised at an instant, by the windows of revisions, with drafts in it.

    A revision or draft that is not in force yet has no allocation; it is laid out on the room
    that is free now, in the order of namespaces, as it would be when its time comes.

    Args:
        instant: UTC.
        include_drafts: Namespace -> draft that takes the place of what would be in force.
        accounts: Account slugs; None for all.

    Returns:
        Promises with the generations of now.
    """
    drafts = dict(include_drafts or {})
    now = promises_in_force(accounts=accounts)
    spans = in_force_at(live_revisions(instant), instant)
    planned = [
        _planned(workspace, spans.get(workspace.namespace), drafts.get(workspace.namespace))
        for workspace in now.workspaces
    ]
    laid_out = replace(now, workspaces=_laid_out(now.workspaces, planned, instant))
    return _with_pools_at(laid_out, instant)


def split_for(
    workspace: WorkspacePromise,
    lines: Iterable[Line],
    *,
    rooms: Mapping[str, Mapping[str, int]],
    terms: Mapping[str, FlavorTerms],
    fields: Mapping[str, str] | None = None,
    afresh: bool = False,
) -> dict[str, Split]:
    """Lay lines over workers from what the workspace stands on.

    Args:
        workspace: With its present split.
        lines: Lines to place, one per flavor.
        rooms: Flavor -> worker -> GPUs not promised to anybody, as ``free_rooms`` gives.
        terms: Flavors by slug.
        fields: Flavor -> input that a fault belongs to.
        afresh: Forget what stands: an admin's decision.

    Returns:
        Flavor -> split.
    """
    found: dict[str, Split] = {}
    for line in lines:
        previous = {
            worker: part
            for (flavor, worker), part in workspace.split.items()
            if flavor == line.flavor
        }
        request = SplitRequest(
            flavor=name_of(line.flavor, terms),
            gpus=line.committed,
            lendable=line.lendable,
            node_gpus=terms[line.flavor].node_gpus,
            rooms=own_rooms(rooms.get(line.flavor, {}), previous),
            previous={} if afresh else previous,
        )
        found[line.flavor] = split_line(request, field=(fields or {}).get(line.flavor, ""))
    return found


def parts_of(splits: Mapping[str, Split]) -> dict[tuple[str, str], tuple[int, int]]:
    """(flavor, worker) -> (committed, lendable) of some splits."""
    return {
        (flavor, worker): part
        for flavor, split in splits.items()
        for worker, part in split.parts.items()
    }


def pool_splits(
    wanted: Mapping[str, int],
    stood: Mapping[tuple[str, str], int],
    instant: datetime,
    *,
    field: str = "",
) -> dict[str, Split]:
    """Lay a pool's amounts over workers from what it stands on.

    Args:
        wanted: Flavor -> GPUs.
        stood: (flavor, worker) -> GPUs that stand there.
        instant: At which there has to be room.
        field: Input that a fault belongs to.

    Returns:
        Flavor -> split.
    """
    terms = flavor_terms()
    rooms = free_rooms(instant, flavors=wanted)
    found: dict[str, Split] = {}
    for flavor, gpus in sorted(wanted.items()):
        previous = {worker: (held, 0) for (name, worker), held in stood.items() if name == flavor}
        request = SplitRequest(
            flavor=name_of(flavor, terms),
            gpus=gpus,
            lendable=0,
            node_gpus=terms[flavor].node_gpus,
            rooms=own_rooms(rooms.get(flavor, {}), previous),
            previous=previous,
        )
        found[flavor] = split_line(request, field=field)
    return found


def _planned(
    workspace: WorkspacePromise, span: RevisionSpan | None, draft: RevisionDraft | None
) -> WorkspacePromise:
    """The workspace with the terms of a draft, or of the revision of that instant."""
    source = draft or span or RevisionDraft(lines=(), spill=workspace.spill)
    kept = with_held(source.lines, [line.flavor for line in workspace.lines])
    return replace(workspace, lines=kept, preference=source.preference, spill=source.spill)


def _laid_out(
    stood: Iterable[WorkspacePromise], planned: Iterable[WorkspacePromise], instant: datetime
) -> tuple[WorkspacePromise, ...]:
    """Lay out the workspaces whose lines change; the others keep what they stand on."""
    pairs = list(zip(stood, planned, strict=True))
    changed = {line.flavor for old, new in pairs if old.lines != new.lines for line in new.lines}
    terms = flavor_terms()
    changed &= terms.keys()
    if not changed:
        return tuple(new for _, new in pairs)
    rooms = free_rooms(instant, flavors=changed)
    found = []
    for old, new in pairs:
        if old.lines == new.lines:
            found.append(new)
            continue
        lines = [line for line in new.lines if line.flavor in terms]
        splits = split_for(old, lines, rooms=rooms, terms=terms)
        parts = parts_of(splits)
        for sign, held in ((1, old.split), (-1, parts)):
            for (flavor, worker), (gpus, _) in held.items():
                room = rooms.setdefault(flavor, {})
                room[worker] = room.get(worker, 0) + sign * gpus
        found.append(replace(new, split=parts))
    return tuple(found)


def _with_pools_at(promises: Promises, instant: datetime) -> Promises:
    """The same promises with the pool amounts of an instant."""
    amounts: dict[str, dict[str, int]] = {}
    for (slug, flavor), gpus in pool_amounts_at(instant).items():
        amounts.setdefault(slug, {})[flavor] = gpus
    own = dict(
        Pool.objects.filter(account__isnull=False, archived_at__isnull=True).values_list(
            "account__slug", "slug"
        )
    )
    accounts = []
    for account in promises.accounts:
        wanted = amounts.get(own.get(account.name, ""), {})
        split = _pool_parts_at(wanted, account.pool, account.pool_split, instant)
        accounts.append(replace(account, pool=wanted, pool_split=split))
    pools = []
    for pool in promises.pools:
        wanted = amounts.get(pool.name, {})
        split = _pool_parts_at(wanted, pool.amounts, pool.split, instant)
        pools.append(replace(pool, amounts=wanted, split=split))
    return replace(promises, accounts=tuple(accounts), pools=tuple(pools))


def _pool_parts_at(
    wanted: Mapping[str, int],
    stood: Mapping[str, int],
    parts: Mapping[tuple[str, str], int],
    instant: datetime,
) -> Mapping[tuple[str, str], int]:
    if dict(wanted) == dict(stood):
        return parts
    return {
        (flavor, worker): part
        for flavor, split in pool_splits(wanted, parts, instant).items()
        for worker, (part, _) in split.parts.items()
    }
