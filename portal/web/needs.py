"""What needs the reader: each fact in a sentence, with the page where it is put right.

The selectors say what is so and who may know it; here it is only worded and put in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from budgets import selectors
from budgets.models import BudgetRevision, SpendRule, User
from budgets.selectors import approvals, attention
from budgets.selectors.fleet.grid import FleetGrid
from budgets.selectors.spending import CapState
from clusters import selectors as seen
from portal.web.tags import ago, gpus, named, when

ORDER = ("trouble", "warn", "busy")
TOLD_MOST = 5
EFFECTS = {
    SpendRule.Action.WARN: "It only tells; nothing is held back.",
    SpendRule.Action.DROP_TO_FLOOR: "Jobs borrow nothing beyond the committed GPUs.",
    SpendRule.Action.HOLD: "New jobs are held.",
    SpendRule.Action.HOLD_AND_DRAIN: "New jobs are held, and running jobs are stopped.",
}
ANSWERS = {
    BudgetRevision.State.LIVE: "accepted",
    BudgetRevision.State.IN_PART: "accepted in part",
    BudgetRevision.State.DECLINED: "declined",
}


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that waits for a person.

    Attributes:
        tone: ``trouble``, ``warn`` or ``busy``, as of the tags.
        title: The fact, in a sentence.
        text: What it means, or what happens meanwhile.
        url: Where it is put right.
        link: What the link says.
    """

    tone: str
    title: SafeString | str
    text: SafeString | str
    url: str
    link: str


def needs_of(
    user: User,
    *,
    today: Sequence[seen.ClusterToday] = (),
    grid: FleetGrid | None = None,
    requests: int | None = None,
    undelivered: int | None = None,
) -> list[Need]:
    """What needs a reader, the worst first.

    Args:
        user: The reader.
        today: The clusters, for an admin's overview.
        grid: The fleet, likewise.
        requests: How many they see, where that was counted already.
        undelivered: Messages that were given up, likewise.
    """
    roles = selectors.roles_of(user)
    if requests is None:
        requests = selectors.visible_requests(user).count()
    found = [
        *_set_up(user, roles),
        *(need for cluster in today for need in _cluster(cluster)),
        *(_fleet(grid) if grid is not None else ()),
        *(cap_need(state) for state in attention.caps_that_tell(user)),
        *_decisions(user, roles, requests),
        *_told(user, roles),
        *(_platform(user, undelivered) if roles.sees_everything else _own(user)),
    ]
    return sorted(found, key=lambda need: ORDER.index(need.tone))


def cap_need(state: CapState) -> Need:
    """One cap that is reached, or soon will be."""
    space, rule = state.rule.budget.workspace, state.rule
    is_reached = state.percent >= 100
    if not is_reached:
        at = state.exhausted_at
        text = format_html("At the present rate it is reached {}.", when(at)) if at else ""
    elif state.glass is not None:
        text = format_html("Suspended by {} until {}.", state.glass.person, when(state.glass.until))
    else:
        text = EFFECTS[SpendRule.Action(rule.action)]
    return Need(
        "trouble" if is_reached else "warn",
        f"{space.name} has used {state.percent} % of its cap of {_cap(rule)}.",
        text,
        reverse("spend_rules", args=[space.namespace]),
        "Spend caps",
    )


def _cap(rule: SpendRule) -> str:
    window = "in the whole grant" if rule.window == SpendRule.Window.GRANT else f"a {rule.window}"
    what = " of burst" if rule.counts == SpendRule.Counts.ABOVE_FLOOR else ""
    return f"{rule.amount:,.2f} {rule.unit_words}{what} {window}"


def _set_up(user: User, roles: selectors.RoleSet) -> Iterator[Need]:
    if not roles.is_admin:
        return
    steps = [step for step in selectors.setup_steps(user) if not step.done]
    if steps:
        left = f"{len(steps)} step{'' if len(steps) == 1 else 's'} left"
        first, url = steps[0], reverse("setup")
        yield Need(
            "busy", f"{first.title}.", f"{first.text} ({left})", url, "Go on with the set-up"
        )
    installation = approvals.installation()
    if installation.is_one_person:
        yield Need(
            "warn",
            "One person runs this installation alone.",
            format_html("Since {}. Every statement says so.", when(installation.one_person_since)),
            reverse("setup_installation"),
            "Ask for two people",
        )


def _decisions(user: User, roles: selectors.RoleSet, requests: int) -> Iterator[Need]:
    if requests:
        whose = "your decision" if roles.is_admin else "an admin"
        yield Need(
            "warn" if roles.is_admin else "busy",
            f"{_many(requests, 'request')} {_waits(requests)} for {whose}.",
            "Nothing changes before the decision.",
            reverse("requests"),
            f"Look at {_them(requests)}",
        )
    waiting = approvals.waiting_for(user)
    if waiting:
        yield Need(
            "warn",
            f"{_many(waiting, 'proposal')} {_waits(waiting)} for your approval.",
            "Whoever proposed it cannot approve it.",
            reverse("approvals"),
            f"Look at {_them(waiting)}",
        )


def _told(user: User, roles: selectors.RoleSet) -> Iterator[Need]:
    if roles.is_finance:
        for entry in approvals.told_to_finance(user)[:TOLD_MOST]:
            yield Need(
                "warn",
                entry.after["text"],
                format_html("{}, {}.", when(entry.at), ago(entry.at)),
                f"{reverse('approvals')}#told",
                "Everybody in finance is told",
            )
    alerts = list(attention.alerts_of_today(user)[: TOLD_MOST + 1])
    for alert in alerts[:TOLD_MOST]:
        yield Need(
            "warn", alert.text, f"Raised {ago(alert.raised_at)}.", reverse("alerts"), "Alerts"
        )
    if len(alerts) > TOLD_MOST:
        yield Need("warn", "More alerts were raised today.", "", reverse("alerts"), "All alerts")


def _own(user: User) -> Iterator[Need]:
    for budget in selectors.held_budgets(user)[:TOLD_MOST]:
        space = budget.workspace
        yield Need(
            "warn",
            f"New jobs of {space.name} are held.",
            budget.stop_reason,
            reverse("workspace", args=[space.namespace]),
            space.name,
        )
    for revision in attention.answered_requests(user):
        space = revision.budget.workspace
        answer = ANSWERS[BudgetRevision.State(revision.state)]
        yield Need(
            "busy",
            f"Your request for {space.name} was {answer}.",
            f"{revision.decided_by}, {ago(revision.decided_at)}. {revision.decision_reason}",
            reverse("revision", args=[space.namespace, revision.number]),
            f"Revision {revision.number}",
        )


def _platform(user: User, undelivered: int | None) -> Iterator[Need]:
    failed = attention.failed_deliveries(user) if undelivered is None else undelivered
    if failed:
        yield Need(
            "trouble",
            f"{_many(failed, 'message')} could not be delivered.",
            "The portal has given up on them. You can make it try again.",
            f"{reverse('alerts')}#deliveries",
            "Deliveries",
        )
    rows = list(attention.open_discrepancies(user)[: TOLD_MOST + 1])
    names = seen.cluster_names() if rows else {}
    for row in rows[:TOLD_MOST]:
        yield Need(
            "warn",
            f"{named(row.cluster, names)}: {row.get_kind_display().lower()} since "
            f"{_plain(row.start)}.",
            row.message,
            reverse("discrepancy", args=[row.pk]),
            "Reconciliation",
        )
    if len(rows) > TOLD_MOST:
        url = reverse("reconciliation")
        yield Need("warn", "More figures contradict each other.", "", url, "All of them")
    stuck = [row for row in seen.stuck_actions(user) if row.state == row.State.FAILED]
    if stuck:
        yield Need(
            "warn",
            f"{_many(len(stuck), 'action')} on jobs {_was(len(stuck))} refused.",
            stuck[0].message,
            reverse("job", args=[stuck[0].cluster.slug, stuck[0].uid]),
            f"{stuck[0].name}",
        )


def _cluster(today: seen.ClusterToday) -> Iterator[Need]:
    """What is wrong with one cluster; the first of a chain of causes alone."""
    row = today.row
    need = _Of(row.name, reverse("cluster", args=[row.slug]))
    if row.blocked_reason:
        yield need("trouble", "waits for a decision.", row.blocked_reason)
    elif row.unreadable:
        yield need("trouble", f"cannot be reached: {row.unreadable}.", row.message)
    elif not row.is_reachable:
        since = f" It last answered {ago(row.last_contact_at)}." if row.last_contact_at else ""
        words = "does not answer." if row.last_contact_at else "has not answered yet."
        yield need("trouble" if row.last_contact_at else "busy", words, f"{row.message}{since}")
    elif row.multikueue_active == "False":
        yield need("trouble", "answers, but the manager cannot use it.", row.multikueue_message)
    elif today.idle:
        roles = ", ".join(shift.role for shift in today.idle)
        why = next((shift.failure for shift in today.idle if shift.failure), "")
        yield need("trouble", f"has no shift at work for: {roles}.", why)
    if row.is_credential_ending:
        words = format_html("Its credential ends {}.", when(row.certificate_expires_at))
        yield need("warn", "needs a new kubeconfig.", words)
    if not row.writes_enabled:
        yield need("warn", "gets no changes.", "Writing to it is switched off, so changes wait.")
    if today.parked:
        yield need(
            "trouble",
            f"has {_many(today.parked, 'object')} set aside.",
            today.parked_says,
        )
    if row.failed_count:
        words = f"refuses {_many(row.failed_count, 'object')} of the portal."
        yield need("trouble", words, "What they promise is not in force there.")
    if row.drift_count:
        words = f"differs from what the portal wants in {_many(row.drift_count, 'field')}."
        yield need("warn", words, "Somebody else changed this, and it has not been put back.")
    if today.incidents:
        words = f"shows {_many(today.incidents, 'incident')} of Kueue's known defects."
        yield need("warn", words, "")


@dataclass(frozen=True, slots=True)
class _Of:
    """Needs of one cluster, whose page is the place for each."""

    name: str
    url: str

    def __call__(self, tone: str, words: str, text: str) -> Need:
        return Need(tone, f"{self.name} {words}", text, self.url, self.name)


def _fleet(grid: FleetGrid) -> Iterator[Need]:
    for flavor in grid.short:
        total = grid.totals[flavor.slug]
        words = (
            f"{gpus(total.excess)} of {flavor.name} are promised beyond what there is."
            if total.excess > 0
            else f"{gpus(total.unmet)} of {flavor.name} are promised, and no worker has room."
        )
        text = f"{total.promised:,} are promised, and {total.limit:,} can be."
        yield Need("trouble", words, text, reverse("fleet"), "Fleet")
    names = seen.cluster_names() if grid.over_use else {}
    for place in grid.over_use:
        yield Need("trouble", *over_use_words(place, names), reverse("fleet"), "Fleet")


def over_use_words(place: Any, clusters: Mapping[str, str]) -> tuple[str, SafeString]:
    """A place with more in use than it has: the fact, and what is known of it.

    Args:
        place: Of the grid.
        clusters: Slug → name.
    """
    cluster = named(place.cluster, clusters)
    return (
        f"{cluster} shows {place.in_use} {place.flavor.name} in use of {place.capacity}.",
        format_html(
            "These figures contradict each other, since {} at the latest. "
            "Is the capacity stated too low, or one cluster counted twice?",
            when(place.since),
        ),
    )


def _plain(instant: Any) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _waits(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
