"""Long work that somebody started: how far it is, as a part that asks again by itself."""

from __future__ import annotations

import uuid

from django.db.models import Q
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404

from budgets import selectors
from budgets.models import Operation, User
from portal.web.htmx import polled
from portal.web.pages import page


@page()
def operation(request: HttpRequest, user: User, operation_id: uuid.UUID) -> HttpResponseBase:
    """One operation, for who started it and for admins; it stops asking when it has ended."""
    scope = Q() if selectors.roles_of(user).is_admin else Q(started_by=user)
    found = get_object_or_404(Operation.objects.filter(scope), pk=operation_id)
    kind, _, name = found.subject.partition(":")
    context = {
        "operation": found,
        "is_running": found.state == Operation.State.RUNNING,
        "about": name or found.subject,
        "cluster": name if kind == "cluster" else "",
    }
    return polled(request, "operations/operation.html", context, partial="progress")
