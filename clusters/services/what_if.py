"""What-if in the portal's words: a budget raised or weighed, GPUs added, a worker drained.

Turns the wish into the documents that it would become on each cluster, the same way as saving it
would, and asks each cluster's engine about them. Nothing is saved and nothing is promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

from django.core.exceptions import ValidationError

from budgets.errors import NotAllowed, Rejected
from budgets.models import Account, Flavor, Pool, User, Workspace
from budgets.plan import Line, Promises, RevisionDraft, Spill
from budgets.selectors import judge_draft, promises_in_force, roles_of, utc_now
from clusters.explaining.answers import WhatIfAnswer, joined, read_answer
from clusters.explaining.names import Names
from clusters.manifests.names import Document
from clusters.models import Cluster, Question
from clusters.selectors.names import reader_names
from clusters.selectors.previews import changed_quota
from clusters.services.questions import Reply, ReplyState, answer_of, ask_what_if

MOST_GPUS: Final = 100_000
K = TypeVar("K")
_OPEN_YET: Final = (ReplyState.WAITING, ReplyState.REFUSED, ReplyState.SILENT)


@dataclass(frozen=True, slots=True)
class Asked:
    """A what-if on its way.

    Attributes:
        questions: One for each cluster that the change is about, the manager first.
        notes: What has to be known of the wish itself, such as a fleet without room for it.
    """

    questions: tuple[Question, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownReply:
    """What became of a question, in the names that its reader may see.

    Attributes:
        id: Of the question; of the first of several whose answers are told as one.
        cluster: Slug; empty for who does not see clusters.
        state: One of ``ReplyState``.
        problem: Why there is no answer, unless it is there or waited for.
        answer: None unless it is answered.
    """

    id: UUID
    cluster: str
    state: str
    problem: str
    answer: WhatIfAnswer | None


def replies_to(user: User, questions: Sequence[Question]) -> list[ShownReply]:
    """What became of questions that a user may read; five queries, and one for each.

    Who does not see clusters gets one reply, which names none and tells none apart.
    """
    names = reader_names(user)
    found = [(question, answer_of(question)) for question in questions]
    if not names.sees_everything:
        return [_as_one(found, names)] if found else []
    return [
        ShownReply(
            id=question.pk,
            cluster=question.cluster,
            state=reply.state.value,
            problem=names.message(reply.problem),
            answer=read_answer(reply.answer, names) if reply.answer is not None else None,
        )
        for question, reply in found
    ]


def _as_one(found: Sequence[tuple[Question, Reply]], names: Names) -> ShownReply:
    replies = [reply for _, reply in found]
    first, problem, answer = found[0][0].pk, "", None
    state = next((row.state for row in replies if row.state in _OPEN_YET), ReplyState.ANSWERED)
    if state is ReplyState.SILENT:
        problem = "A cluster that this is about does not answer. Ask again in a while."
    elif state is ReplyState.REFUSED:
        problem = names.message(next(row.problem for row in replies if row.state is state))
    elif state is ReplyState.ANSWERED:
        answer = joined([read_answer(row.answer, names) for row in replies])
    return ShownReply(first, "", state.value, problem, answer)


def ask_raise(actor: User | None, *, workspace: Workspace, flavor: Flavor, by: int) -> Asked:
    """Ask what more (or fewer) committed GPUs would lead to; the ceiling moves with them.

    Args:
        actor: Who may change this budget; None for a command on the server.
        workspace: One that the actor may see.
        flavor: Of the line, which may be new.
        by: GPUs, not 0; negative lowers, at most to nothing.

    Raises:
        NotAllowed: The actor may not change this budget.
        Rejected: The number is not usable, or nothing would change.
    """
    roles = roles_of(actor) if actor is not None else None
    if roles is not None and not roles.may_edit(workspace):
        raise NotAllowed(
            "Only people who may change this budget can ask what a change would lead to."
        )
    _require_number(by, may_be_negative=True)
    draft = raised_draft(workspace, flavor, by)
    preview = judge_draft(workspace, draft, roles=roles, now=utc_now())
    documents = changed_quota(preview.promises_before, preview.promises_after)
    notes = tuple(dict.fromkeys(fault.message for fault in preview.faults))
    return replace(_ask(actor, documents), notes=notes)


def ask_add(
    actor: User | None,
    *,
    cluster: Cluster,
    flavor: Flavor,
    by: int,
    account: Account | None = None,
    pool: Pool | None = None,
) -> Asked:
    """Ask what a new node pool would lead to, given to an account or to a platform pool.

    Nodes alone start nothing: quota decides. So somebody has to be named who gets them.

    Args:
        actor: An admin; None for a command on the server.
        cluster: The worker that gets the nodes.
        flavor: Of the nodes.
        by: GPUs, above 0.
        account: Whose own pool gets them; or
        pool: the platform pool that gets them.

    Raises:
        NotAllowed: The actor is no admin.
        Rejected: The number, the cluster or the receiver is not usable.
    """
    require_admin(actor)
    _require_number(by)
    if not cluster.runs_jobs:
        raise Rejected.because("cluster", "not_a_worker", "Nodes are added to a worker.")
    if (account is None) == (pool is None):
        raise Rejected.because("receiver", "required", "Name an account or a platform pool.")
    return _ask(actor, quota_with_nodes((flavor, cluster), by, account or pool))


def quota_with_nodes(
    part: tuple[Flavor, Cluster], by: int, receiver: Account | Pool | None
) -> dict[str, list[Document]]:
    """Cluster slug → its queues and cohorts if somebody had more GPUs of a flavor on a cluster.

    Args:
        part: Flavor and cluster of the nodes.
        by: GPUs, above 0.
        receiver: Whose own pool, or the platform pool that gets them; nobody changes nothing.
    """
    key = part[0].slug, part[1].slug
    if isinstance(receiver, Pool) and receiver.account is not None:
        receiver = receiver.account
    if receiver is None:
        return {}
    if isinstance(receiver, Pool):
        # With its amount change the limits of those that draw on it, and nobody else's.
        drawing = list(receiver.shares.values_list("account__slug", flat=True))
        before = promises_in_force(accounts=drawing)
        return changed_quota(before, _with_pool_nodes(before, receiver.slug, key, by))
    before = promises_in_force(accounts=[receiver.slug])
    return changed_quota(before, _with_account_nodes(before, receiver.slug, key, by))


def ask_drain(actor: User | None, *, cluster: Cluster) -> Asked:
    """Ask what draining a worker would stop, and who would lose reach.

    Raises:
        NotAllowed: The actor is no admin.
        Rejected: It is the manager, which holds no GPUs.
    """
    require_admin(actor)
    if not cluster.runs_jobs:
        raise Rejected.because("cluster", "not_a_worker", "A manager holds no GPUs to drain.")
    return Asked((ask_what_if(cluster, [{"kind": "Drain"}], actor),))


def ask_weigh(actor: User | None, *, workspace: Workspace, weight: Decimal) -> Asked:
    """Ask what another weight of fair sharing would lead to: who would start, who be preempted.

    Weights count on clusters whose Configuration has fair sharing; elsewhere nothing starts by it.

    Args:
        actor: An admin; None for a command on the server.
        workspace: One that the actor may see.
        weight: 0 or more; see :func:`budgets.services.weigh_workspace`.

    Raises:
        NotAllowed: The actor is no admin.
        Rejected: The weight is none, or is the one in force.
    """
    require_admin(actor, "Only a platform admin can ask about weights.")
    try:
        Workspace._meta.get_field("fair_weight").clean(weight, workspace)
    except ValidationError as error:
        words = f"{weight} is no weight: {' '.join(error.messages)}"
        raise Rejected.because("weight", "invalid", words) from error
    before = promises_in_force(accounts=[workspace.account.slug])
    weighed = tuple(
        replace(row, fair_weight=weight) if row.namespace == workspace.namespace else row
        for row in before.workspaces
    )
    return _ask(actor, changed_quota(before, replace(before, workspaces=weighed)), field="weight")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all clusters together answered.

    Attributes:
        words: One sentence or two.
        is_good: A waiting job starts, and nobody's job is preempted or stopped.
    """

    words: str
    is_good: bool


def verdict_of(replies: Sequence[ShownReply]) -> Verdict | None:
    """The answers as one; None until every cluster has answered.

    Jobs wait on the manager, so that it says how many start; a worker then needs room for them.
    """
    answers = [row.answer for row in replies if row.answer is not None]
    if not answers or len(answers) < len(replies):
        return None
    hubs = Cluster.objects.filter(role=Cluster.Role.MANAGER).values_list("slug", flat=True)
    of_hubs = [row.answer for row in replies if row.cluster in set(hubs) and row.answer]
    started = max(answer.started_count for answer in of_hubs or answers)
    preempted = max(answer.preempted_count for answer in answers)
    stopped = max(answer.stopped_count for answer in answers)
    barred = max(answer.barred_count for answer in answers)
    opened = max(answer.opened_count for answer in answers)
    others = any(answer.preempted or answer.stopped for answer in answers)
    is_of_owner = not all(row.cluster for row in replies)
    when = "as soon as a worker has room" if of_hubs else "at once"
    if is_of_owner:
        when = "as soon as there is room"
    words = [
        f"{started:,} waiting {_jobs(started)} {when}." if started else "No waiting job starts."
    ]
    if opened:
        words.append(f"{opened:,} more can start later, once others end.")
    if preempted or stopped:
        taken = [
            f"{count:,} running {verb_one if count == 1 else verb_many}"
            for count, verb_one, verb_many in (
                (preempted, "job is preempted", "jobs are preempted"),
                (stopped, "job is stopped", "jobs are stopped"),
            )
            if count
        ]
        again = "It queues" if preempted + stopped == 1 else "They queue"
        words.append(f"{' and '.join(taken)}. {again} again.")
    elif others:
        words.append("Jobs of others would be preempted or stopped for it.")
    else:
        whose = "None of your running jobs" if is_of_owner else "No running job"
        words.append(f"{whose} is preempted or stopped.")
    if barred:
        words.append(f"{barred:,} {'job' if barred == 1 else 'jobs'} can no longer start there.")
    others |= any(answer.barred for answer in answers)
    return Verdict(" ".join(words), bool(started or opened) and not others)


def _jobs(count: int) -> str:
    return "job starts" if count == 1 else "jobs start"


def _with_account_nodes(promises: Promises, slug: str, part: tuple[str, str], by: int) -> Promises:
    accounts = tuple(
        replace(
            item, pool=_plus(item.pool, part[0], by), pool_split=_plus(item.pool_split, part, by)
        )
        if item.name == slug
        else item
        for item in promises.accounts
    )
    return replace(promises, accounts=accounts)


def _with_pool_nodes(promises: Promises, slug: str, part: tuple[str, str], by: int) -> Promises:
    pools = tuple(
        replace(item, amounts=_plus(item.amounts, part[0], by), split=_plus(item.split, part, by))
        if item.name == slug
        else item
        for item in promises.pools
    )
    return replace(promises, pools=pools)


def _plus(amounts: Mapping[K, int], key: K, by: int) -> dict[K, int]:
    return {**amounts, key: amounts.get(key, 0) + by}


def raised_draft(workspace: Workspace, flavor: Flavor, by: int) -> RevisionDraft:
    """The budget in force with one line changed; both numbers move, what may be borrowed stays."""
    revision = workspace.budget.in_force
    rows = list(revision.lines.select_related("flavor")) if revision is not None else []
    lines = [Line(row.flavor.slug, row.committed, row.ceiling, row.lendable) for row in rows]
    if all(line.flavor != flavor.slug for line in lines):
        lines.append(Line(flavor.slug, 0, 0, 0))
    changed = [_changed(line, by) if line.flavor == flavor.slug else line for line in lines]
    return RevisionDraft(
        lines=tuple(changed),
        preference=tuple(revision.preference) if revision is not None else (),
        spill=Spill(revision.spill) if revision is not None else Spill.NEXT_FLAVOR_FIRST,
        reason="What if",
    )


def _changed(line: Line, by: int) -> Line:
    moved = max(by, -line.committed)
    lendable = line.lendable + moved if line.lendable == line.committed else line.lendable
    committed = line.committed + moved
    return Line(line.flavor, committed, line.ceiling + moved, min(lendable, committed))


def _ask(
    actor: User | None, documents: Mapping[str, Sequence[Document]], *, field: str = "by"
) -> Asked:
    if not documents:
        words = "This changes no quota on any cluster, so nothing would happen."
        raise Rejected.because(field, "no_change", words)
    clusters = Cluster.objects.in_bulk(list(documents), field_name="slug")
    now = utc_now()
    return Asked(
        tuple(
            ask_what_if(clusters[slug], changes_of(changed), actor, at=now)
            for slug, changed in documents.items()
        )
    )


def changes_of(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """New versions of objects, as a question names them."""
    return [{"kind": document["kind"], "document": document} for document in documents]


def require_admin(
    actor: User | None,
    words: str = "Only a platform admin can ask about nodes and clusters.",
) -> None:
    """Go on only for an admin, and for a command on the server.

    Raises:
        NotAllowed: The actor is somebody else.
    """
    if actor is not None and not roles_of(actor).is_admin:
        raise NotAllowed(words)


def _require_number(by: int, *, may_be_negative: bool = False) -> None:
    if by == 0 or abs(by) > MOST_GPUS or (by < 0 and not may_be_negative):
        least = -MOST_GPUS if may_be_negative else 1
        words = f"Type whole GPUs between {least:,} and {MOST_GPUS:,}, and not 0."
        raise Rejected.because("by", "invalid", words)
