"""Spend rules of one workspace: how full each cap is, what it does, and changing it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from budgets import selectors
from budgets.models import SpendEffect, SpendRule, User, Workspace
from budgets.plan.drafts import name_of
from budgets.selectors import spending as seen
from budgets.selectors.billing import portal_currency
from budgets.services import spending
from budgets.services.spending import RuleDraft
from budgets.spending import new_jobs_words, running_jobs_words
from budgets.units import quantise
from portal.bounds import MONEY, WARN_AT_PERCENT
from portal.web.forms import OfferedField, ReasonForm, TimeField
from portal.web.pages import page
from portal.web.setup_pages import Row, Section, sections_page
from portal.web.tags import age, when

# The model's own words speak of floor and ceiling; the pages call them committed and burst.
COLUMNS = ("Cap", "Used", "Reached", "New jobs then", "Running jobs then", "State", "Set by")
GRACE = "How long running jobs go on after the cap is reached."
SENTENCE = "{action} when {counts} passes {amount} {unit} in a {window}"


class CapForm(ReasonForm):
    """A new rule: a sentence, and what means something with one choice of it alone."""

    action = forms.ChoiceField(
        label="What happens", choices=SpendRule.Action.choices, initial="drop_to_floor"
    )
    counts = forms.ChoiceField(label="What is counted", choices=SpendRule.Counts.choices)
    amount = forms.DecimalField(label="Cap", **MONEY)
    unit = forms.ChoiceField(label="Unit", choices=SpendRule.Unit.choices)
    window = forms.ChoiceField(label="Time", choices=SpendRule.Window.choices, initial="month")
    grace_minutes = forms.IntegerField(
        label="Grace period, minutes", min_value=0, initial=0, required=False, help_text=GRACE
    )
    grant_start = TimeField(label="Grant begins")
    grant_end = TimeField(label="Grant ends", help_text="Leave it empty for no end.")
    warn_at_percent = forms.IntegerField(label="Tell us at, percent", initial=80, **WARN_AT_PERCENT)
    field_order = ["grace_minutes", "grant_start", "grant_end", "warn_at_percent", "reason"]

    def __init__(self, *args: Any, currency: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        words = dict(SpendRule.Unit.choices)
        words[SpendRule.Unit.MONEY] = currency or words[SpendRule.Unit.MONEY]
        self.part("unit").choices = [*reversed(words.items())]
        self.part("grace_minutes").means_with = "drain"
        self.part("grant_start").means_with = self.part("grant_end").means_with = "grant"

    def clean(self) -> dict[str, Any]:
        """What means nothing with these choices is left out, whatever stands in it."""
        typed = super().clean() or self.cleaned_data
        if typed.get("action") != SpendRule.Action.HOLD_AND_DRAIN:
            typed["grace_minutes"] = 0
        if typed.get("window") != SpendRule.Window.GRANT:
            typed["grant_start"] = typed["grant_end"] = None
        return typed


class ChosenRule(ReasonForm):
    """Which rule; those that the reader may change."""

    rule = OfferedField(label="Cap")
    field_order = ["rule"]


class ChangeForm(ChosenRule):
    """Another amount or action; what is left empty stays."""

    amount = forms.DecimalField(label="New cap", required=False, **MONEY)
    action = forms.ChoiceField(
        label="When it is reached",
        required=False,
        choices=[("", "as before"), *SpendRule.Action.choices],
    )
    grace_minutes = forms.IntegerField(
        label="Grace period, minutes", min_value=0, required=False, help_text=GRACE
    )
    warn_at_percent = forms.IntegerField(
        label="Tell us at, percent", required=False, **WARN_AT_PERCENT
    )
    field_order = ["rule", "amount", "action", "grace_minutes", "warn_at_percent", "reason"]


class GlassForm(ChosenRule):
    """Until when a rule does nothing."""

    until = TimeField(
        label="Until",
        help_text="Within seven days. Leave it empty to let a suspended cap act again now.",
    )
    field_order = ["rule", "until", "reason"]


@page("GET", "POST")
def spend_rules(request: HttpRequest, user: User, namespace: str) -> HttpResponseBase:
    """Every cap with its bar; forms for those who may change one."""
    found = selectors.workspace_for(user, namespace)
    roles = selectors.roles_of(user)
    rules = list(seen.rules_of(found))
    changeable = [rule for rule in rules if seen.may_change(roles, rule)]
    states = seen.cap_states(rules)
    sections = [_caps(states)]
    if seen.may_add(roles, found) and found.archived_at is None:
        sections.append(_add(user, found))
    if changeable:
        offered = {"rule": {str(rule.pk): (str(rule), rule) for rule in changeable}}
        sections += _changes(user, {"offered": offered})
    return sections_page(
        request,
        title="Spend caps",
        headline=_headline(seen.effect_of(found), seen.earliest_drain(states)),
        sections=sections,
        crumbs=(
            ("Workspaces", reverse("workspaces")),
            (found.name, reverse("workspace", args=[namespace])),
        ),
    )


def _headline(effect: SpendEffect | None, drains: datetime | None) -> SafeString | str:
    if effect is None:
        return "No cap holds anything back now."
    then = format_html("are stopped {}.", age(drains)) if drains else "go on."
    words = [
        {
            "None": "",
            "Hold": format_html("New jobs are held; running jobs {}", then),
            "HoldAndDrain": "New jobs are held, and running jobs are stopped.",
        }[effect.stop_policy],
        "Jobs borrow nothing beyond the committed GPUs." if effect.floor_only else "",
    ]
    return format_html(
        "{} ({})", format_html_join(" ", "{}", zip(filter(None, words))), effect.reason
    )


def _caps(states: list[seen.CapState]) -> Section:
    return Section(
        key="caps",
        title="Caps",
        text="Counted up to this second, jobs that run now included. Days and months are those of "
        "the account's billing zone.",
        columns=COLUMNS,
        rows=[_row(state) for state in states],
        empty="There is no cap yet. Only the burst limits of the budget limit what is used.",
    )


def _row(state: seen.CapState) -> Row:
    rule, cap = state.rule, state.rule.as_cap
    return Row(
        str(rule),
        _bar(state),
        _reached(state),
        new_jobs_words(cap),
        running_jobs_words(cap),
        _state(state),
        rule.created_by.get_username() if rule.created_by else "portal",
    )


def _bar(state: seen.CapState) -> SafeString:
    # Two places, for people; rules compare the exact figure.
    amount = f"{quantise(state.spent, digits=2):,} of {state.rule.amount:,} {state.rule.unit_words}"
    figure = f"{state.percent:,} %: {amount}"
    terms = selectors.flavor_terms() if state.unpriced else {}
    unpriced = ", ".join(name_of(flavor, terms) for flavor in state.unpriced)
    more = f"; no price for {unpriced}" if unpriced else ""
    return format_html(
        '<progress max="100" value="{}" aria-label="{} %"></progress>'
        '<span class="meter-text">{}{}</span>',
        min(100, state.percent), state.percent, figure, more,
    )  # fmt: skip


def _reached(state: seen.CapState) -> SafeString | str:
    if state.verdict.reached_at is not None:
        return age(state.verdict.reached_at)
    if state.exhausted_at is not None:
        return format_html("at the present rate {}", when(state.exhausted_at))
    return format_html("not before {}", when(state.window.end))


def _state(state: seen.CapState) -> SafeString | str:
    if state.glass is not None:
        return format_html(
            "Suspended by {} until {}: {}",
            state.glass.person.get_username(), when(state.glass.until), state.glass.reason,
        )  # fmt: skip
    if state.verdict.reached_at is None:
        if state.percent >= state.rule.warn_at_percent:
            return format_html('<span class="tag warn">{}</span>', "Nearly reached")
        return format_html('<span class="tag good">{}</span>', "Room left")
    reached = format_html('<span class="tag trouble">{}</span>', "Reached")
    drains = state.verdict.drains_at
    return format_html("{}<br>running jobs stop {}", reached, age(drains)) if drains else reached


def _add(user: Any, found: Workspace) -> Section:
    def add(typed: dict[str, Any]) -> None:
        reason = typed.pop("reason")
        draft = RuleDraft(**{**typed, "grace_minutes": typed["grace_minutes"] or 0})
        spending.create_spend_rule(user, workspace=found, draft=draft, reason=reason)

    return Section(
        key="add",
        title="Add a cap",
        text="A cap that only tells you, or stops bursting, never keeps a job from the committed "
        "GPUs. A cap that holds lets new jobs wait until it has room again.",
        sentence=SENTENCE,
        form=CapForm,
        arguments={"currency": portal_currency()},
        do=add,
        button="Add cap",
        said="The cap is in force.",
    )


def _changes(user: User, arguments: dict[str, Any]) -> list[Section]:
    """What can be done to a cap, which is chosen in each form."""

    def change(typed: dict[str, Any]) -> None:
        spending.change_spend_rule(
            user, **{name: value for name, value in typed.items() if value not in (None, "")}
        )

    def suspend(typed: dict[str, Any]) -> None:
        if typed["until"] is None:
            spending.mend_glass(user, rule=typed["rule"], reason=typed["reason"])
        else:
            spending.break_glass(user, **typed)

    return [
        Section(
            key="change",
            title="Change a cap",
            text="After a raise, jobs that the cap held back can start at once.",
            is_folded=True,
            form=ChangeForm,
            arguments=arguments,
            do=change,
            button="Change cap",
            said="The cap is changed.",
        ),
        Section(
            key="glass",
            title="Suspend a cap in an emergency",
            text="Everybody reads your name and your reason beside the cap. The cap goes on "
            "counting. Afterwards it acts again, with its whole grace period.",
            form=GlassForm,
            arguments=arguments,
            do=suspend,
            button="Suspend cap",
            said="The change is in force.",
            is_danger=True,
        ),
        Section(
            key="remove",
            title="Remove a cap",
            form=ChosenRule,
            arguments=arguments,
            do=lambda typed: spending.remove_spend_rule(user, **typed),
            button="Remove cap",
            said="The cap is removed. Jobs that it held back can start again.",
            is_danger=True,
        ),
    ]
