"""What a ceiling can really reach, the largest single job, and whom a change touches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from budgets.plan.quota import share_of
from budgets.plan.words import Line, PoolPromise, Promises, WorkspacePromise


@dataclass(frozen=True, slots=True)
class Reach:
    """What one line can really reach, whole GPUs.

    Attributes:
        flavor: Flavor slug.
        ceiling: B, as typed.
        reachable: min(B, C + account pool + what others may lend + the platform pool's share).
        committed: Of it, what is the line's own.
        from_account_pool: Of the rest, what the account's pool could give.
        from_others: Of what is left then, what other workspaces of the account may lend.
        from_platform: Of what is left then, what a platform pool could give: all add up to it.
        largest_job: Most GPUs that one pod set could get on one cluster.
    """

    flavor: str
    ceiling: int
    reachable: int
    committed: int
    from_account_pool: int
    from_others: int
    from_platform: int
    largest_job: int


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """How much one workspace could borrow of one flavor on one cluster, before and after.

    Attributes:
        namespace: The workspace.
        account: Its account.
        flavor: Flavor slug.
        cluster: Worker slug; empty for the sum that the manager enforces.
        before: Borrowable GPUs before the change.
        after: Borrowable GPUs after it.
    """

    namespace: str
    account: str
    flavor: str
    cluster: str
    before: int
    after: int

    @property
    def words(self) -> str:
        """The row as a sentence."""
        change = self.after - self.before
        where = f" on {self.cluster}" if self.cluster else ""
        kind = "more" if change > 0 else "fewer"
        return (
            f"{self.namespace} could borrow {abs(change)} {kind} {self.flavor}{where} "
            f"({self.before} before, {self.after} after)"
        )


def reach(promises: Promises, namespace: str) -> tuple[Reach, ...]:
    """Tell what each line of a workspace can really reach.

    Args:
        promises: Everything in force, with the draft in its place.
        namespace: The workspace.

    Returns:
        One entry per line, in order of lines. O(lines x workspaces).
    """
    workspace = next(item for item in promises.workspaces if item.namespace == namespace)
    sources = _Sources(promises)
    found = []
    for line in workspace.lines:
        left, parts = line.ceiling, []
        for gpus in (line.committed, *sources.of(workspace, line.flavor, cluster="")):
            parts.append(min(gpus, left))
            left -= parts[-1]
        committed, pool, others, platform = parts
        found.append(
            Reach(
                flavor=line.flavor,
                ceiling=line.ceiling,
                reachable=sum(parts),
                committed=committed,
                from_account_pool=pool,
                from_others=others,
                from_platform=platform,
                largest_job=_largest_on_one_cluster(sources, workspace, line),
            )
        )
    return tuple(found)


def impact(before: Promises, after: Promises) -> tuple[ImpactRow, ...]:
    """List who can borrow more or less after a change, per flavor and cluster.

    Args:
        before: What stands.
        after: The same with the change in it.

    Returns:
        Changed rows only, losers first, then by namespace, flavor and cluster; the row without
        a cluster is the sum. O(workspaces x lines x workers).
    """
    old, new = _borrowable(before), _borrowable(after)
    rows = [
        ImpactRow(*key, before=old.get(key, 0), after=new.get(key, 0))
        for key in sorted(old.keys() | new.keys())
        if old.get(key, 0) != new.get(key, 0)
    ]
    return tuple(sorted(rows, key=lambda row: row.after > row.before))


def _largest_on_one_cluster(sources: _Sources, workspace: WorkspacePromise, line: Line) -> int:
    if not sources.workers:
        pool, others, platform = sources.of(workspace, line.flavor, cluster="")
        return min(line.ceiling, line.committed + pool + others + platform)
    return max(
        workspace.part_on(line.flavor, worker)[0]
        + sources.borrowable(workspace, line, cluster=worker)
        for worker in sources.workers
    )


def _borrowable(promises: Promises) -> dict[tuple[str, str, str, str], int]:
    sources = _Sources(promises)
    return {
        (workspace.namespace, workspace.account, line.flavor, cluster): sources.borrowable(
            workspace, line, cluster=cluster
        )
        for workspace in promises.workspaces
        for line in workspace.lines
        if line.ceiling > line.committed
        for cluster in ("", *sources.workers)
    }


class _Sources:
    """Sums that every line asks for: lent per account, pools, shares; on one cluster or in all."""

    def __init__(self, promises: Promises) -> None:
        self._lent = Counter[tuple[str, str, str]]()
        self._parents: dict[str, PoolPromise] = {
            account: pool for pool in promises.pools for account in pool.shares
        }
        self._accounts = {account.name: account for account in promises.accounts}
        found: set[str] = set()
        for workspace in promises.workspaces:
            for line in workspace.lines:
                self._lent[workspace.account, line.flavor, ""] += line.lendable
            for (flavor, worker), (_, lendable) in workspace.split.items():
                self._lent[workspace.account, flavor, worker] += lendable
                found.add(worker)
        splits: list[Mapping[tuple[str, str], int]] = [
            *(account.pool_split for account in promises.accounts),
            *(pool.split for pool in promises.pools),
        ]
        found |= {worker for split in splits for _, worker in split}
        self.workers = tuple(sorted(found))

    def of(self, workspace: WorkspacePromise, flavor: str, *, cluster: str) -> tuple[int, int, int]:
        """GPUs from the account's pool, from its other workspaces, from a platform pool."""
        account = self._accounts.get(workspace.account)
        pool = account.pool_on(flavor, cluster) if account is not None else 0
        own = (
            workspace.part_on(flavor, cluster)[1]
            if cluster
            else sum(line.lendable for line in workspace.lines if line.flavor == flavor)
        )
        others = self._lent[workspace.account, flavor, cluster] - own
        parent = self._parents.get(workspace.account)
        platform = 0
        if parent is not None:
            platform = share_of(parent, workspace.account, flavor)
            if cluster:
                platform = min(platform, parent.split.get((flavor, cluster), 0))
        return pool, others, platform

    def borrowable(self, workspace: WorkspacePromise, line: Line, *, cluster: str) -> int:
        """GPUs beyond the floor that a line could borrow, within its own limit there."""
        floor = workspace.part_on(line.flavor, cluster)[0] if cluster else line.committed
        limit = line.ceiling - floor if line.ceiling > line.committed else 0
        return min(limit, sum(self.of(workspace, line.flavor, cluster=cluster)))
