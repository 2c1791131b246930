"""Filters of lists that a person keeps under a name: saved and deleted by that person alone.

They change nothing that others see, so they are not in the audit log. The page that a view is of
has read its query before it is saved.
"""

from __future__ import annotations

from django.db import transaction

from budgets.errors import Fault
from budgets.models import SavedView, User
from budgets.selectors.saved_views import saved_views
from budgets.services.guards import save_checked

MOST_VIEWS = 30


@transaction.atomic
def save_view(actor: User, *, page: str, name: str, query: str) -> SavedView:
    """Keep what somebody sees of a page.

    Args:
        actor: Whose view it is.
        page: One of :class:`SavedView.Page`.
        name: One line, at most 60 characters, once for each person and page.
        query: Of the page's address, as its form took it; at most 2,000 characters.

    Raises:
        Rejected: The name is empty, taken or too long, or ``MOST_VIEWS`` are kept already.
    """
    # One after the other: each sees the names and the number of those before.
    User.objects.select_for_update(of=("self",)).only("pk").get(pk=actor.pk)
    row = SavedView(user=actor, page=page, name=name.strip(), query=query)
    is_full = saved_views(actor).count() >= MOST_VIEWS
    words = f"You have {MOST_VIEWS} saved views, the most that you can keep. Delete one first."
    save_checked(row, also=[Fault("", "too_many", words)] if is_full else ())
    return row


@transaction.atomic
def delete_view(actor: User, *, view: SavedView) -> None:
    """Keep one of one's own views no longer.

    Raises:
        SavedView.DoesNotExist: It is another person's.
    """
    saved_views(actor).get(pk=view.pk).delete()
