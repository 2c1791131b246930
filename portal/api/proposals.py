"""Four eyes: what waits for a second person of finance, and what holds for the installation."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from budgets import models, selectors
from budgets import services as promises
from budgets.models import Installation, Proposal, User
from budgets.selectors import approvals as read
from budgets.services import billing as actions
from portal.api.paging import CREATED
from portal.api.shapes import RowSerializer, Strict
from portal.api.views import ASKED, Noun, View, admin_in_session, answers, deed, finds, lists
from portal.bounds import REASON


class ProposalSerializer(RowSerializer[models.Proposal]):
    """A deed that moves money, exactly as it will be done.

    ``seen`` is what its proposer saw; it is approved only while all of it is still so. ``state`` is
    waiting, approved, declined, withdrawn or expired.
    """

    state = serializers.SerializerMethodField()
    told = (
        "id deed subject parameters seen reason state proposed_by proposed_at expires_at "
        "decided_by decided_at decision_reason outcome"
    )

    def get_state(self, row: Proposal) -> str:
        return row.phase_at(selectors.utc_now()).value


class ProposalDecision(Strict):
    """Approve, by somebody else than the proposer, or decline with a reason."""

    approve = serializers.BooleanField(source="is_approved")
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)


class InstallationSerializer(RowSerializer[models.Installation]):
    """What holds for the installation.

    ``price_tolerance`` is the percent by which one person alone records a price off what two people
    agreed on. While ``is_one_person`` the one who proposes may approve.
    """

    is_one_person = serializers.BooleanField()
    told = "price_tolerance is_one_person one_person_since one_person_until"


class PriceToleranceInput(Strict):
    """Percent, 0 to 100."""

    percent = serializers.CharField(max_length=30)
    reason = serializers.CharField(**REASON)


class OnePersonInput(Strict):
    """Whether one person runs everything alone; switching it off is final."""

    is_one_person = serializers.BooleanField()
    reason = serializers.CharField(**REASON)


class Proposals(Noun):
    """What waits for a second person of finance, and what was decided; for platform roles."""

    each = "One proposal."
    shape = ProposalSerializer
    found = finds("proposal", lambda user, pk: read.visible_proposals(user).get(pk=pk))
    list = lists(read.visible_proposals, CREATED)
    decide = deed(
        actions.decide_proposal,
        takes=ProposalDecision,
        text="Approves a proposal, which is carried out at once, or declines it; the proposer can "
        "only withdraw it.",
    )

    @answers()
    def retrieve(self, user: User, proposal: Proposal) -> Any:
        return proposal


class InstallationView(View):
    """What holds for the installation as a whole; for everybody who is logged in."""

    @answers(InstallationSerializer)
    def get(self, user: User) -> Installation:
        return read.installation()


class PriceToleranceView(View):
    """By how much one person alone may be off with a price."""

    @answers(ProposalSerializer, takes=PriceToleranceInput, code=ASKED)
    def put(self, user: User, **given: Any) -> Any:
        """Proposes another tolerance; another one of finance approves it."""
        return promises.propose_price_tolerance(user, **given)


class OnePersonView(View):
    """Whether one person runs everything alone; changed by an admin in a browser session."""

    @answers(InstallationSerializer, takes=OnePersonInput, by=admin_in_session)
    def put(self, user: User, is_one_person: bool, reason: str) -> Any:
        """Lets one person approve what they proposed, or ends that for good."""
        switch = promises.start_one_person if is_one_person else promises.end_one_person
        return switch(user, reason=reason)
