"""Nobody takes the portal from all others: what costs much is limited per person, at every door.

A door is an address with a method, of the pages or of the API, by the name that the router gives
it. Looks are counted in windows of a minute, over all processes of the web. A person has one
allowance of each kind for pages and API together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from django.http import HttpRequest
from rest_framework.exceptions import ErrorDetail, Throttled
from rest_framework.throttling import BaseThrottle

from portal.counting import count

log = structlog.stdlib.get_logger(__name__)

WINDOW_S: Final = 60
WHAT_IF, WHY, PREVIEW = "what-if", "why", "preview"
EXPORT, UPLOAD, CHECK = "export", "upload", "check"
MOST: Final[Mapping[str, tuple[int, str]]] = {
    WHAT_IF: (60, "what-if questions"),
    WHY: (300, "explanations of why a job waits"),
    PREVIEW: (240, "previews"),
    EXPORT: (60, "files"),
    UPLOAD: (60, "uploads"),
    CHECK: (30, "checks of clusters and jobs"),
}
"""Of each kind so many a minute, and what they are called."""
_READ: Final = ("GET", "HEAD")
_FILE: Final = "FILE"
_COSTLY: Final[Mapping[str, Mapping[str, str]]] = {
    WHAT_IF: {"POST": "what_if api:what-if-list"},
    WHY: {"GET": "job api:workload-why"},
    PREVIEW: {
        "POST": "budget budget_check decide revision undo reallocate weigh_account weigh_workspace "
        "rate_card maintenance_plan api:preview api:dating-back api:revision-restore "
        "api:reallocation api:maintenance-preview api:export-preview",
        "GET": "budget_check decide reallocate weigh_account weigh_workspace rate_card "
        "api:reallocation api:usage-groups api:export-preview",
    },
    EXPORT: {
        "POST": "exports api:export-list api:export-plan-list",
        "GET": "export_file export_about cluster_rights statement_pdf api:export-file "
        "api:audit-file api:cluster-rights",
        _FILE: "usage jobs audit",
    },
    UPLOAD: {
        "POST": "register cluster_change rate_propose billing_terms api:cluster-list "
        "api:cluster-inspection api:cluster-kubeconfig api:cluster-switch "
        "api:rate-card-list api:flavor-spot-prices",
    },
    CHECK: {"POST": "cluster_preflight job_look api:cluster-preflight api:workspace-looks"},
}
"""Kind → method → names of addresses. POST stands for whatever is no reading, FILE for a reading
whose query asks for a format."""
DOORS: Final = {
    (name, way): kind
    for kind, ways in _COSTLY.items()
    for way, names in ways.items()
    for name in names.split()
}
"""What is counted as what, by the name of its address and the method."""


@dataclass(frozen=True, slots=True)
class TooMany:
    """Somebody's allowance of a kind is used up; `wait_s` seconds until it is there anew."""

    kind: str
    wait_s: int

    def __str__(self) -> str:
        most, words = MOST[self.kind]
        return (
            f"You have asked for {most} {words} within a minute, the most that one person can "
            f"have. Nothing was done. Try again in {self.wait_s} s."
        )


def counted(request: HttpRequest, user: Any) -> TooMany | None:
    """Count a request to its person; None where it may go on.

    Args:
        request: Whose address is known already.
        user: Who asks; nobody is counted who has not signed in.
    """
    match = request.resolver_match
    method = "GET" if request.method in _READ else "POST"
    ways = (_FILE, method) if method == "GET" and "format" in request.GET else (method,)
    name = match.view_name if match is not None else ""
    kind = next((DOORS[name, way] for way in ways if (name, way) in DOORS), None)
    if kind is None or not user.is_authenticated:
        return None
    now, (most, _) = time.time(), MOST[kind]
    key = f"allowance:{kind}:{user.pk}:{int(now // WINDOW_S)}"
    [used] = count([key], window_s=WINDOW_S)
    if used <= most:
        return None
    log.info("allowance_used_up", kind=kind, user=user.pk)
    return TooMany(kind, max(1, math.ceil(WINDOW_S - now % WINDOW_S)))


class PersonThrottle(BaseThrottle):
    """The same for the API."""

    def allow_request(self, request: Any, view: Any) -> bool:
        """Whether this person may go on.

        Raises:
            Throttled: not now; it says until when.
        """
        found = counted(request, request.user)
        if found is not None:
            error = Throttled(found.wait_s)
            error.detail = ErrorDetail(str(found), error.default_code)
            raise error
        return True
