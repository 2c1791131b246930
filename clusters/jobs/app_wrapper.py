"""AppWrapper: any objects in one; its own controller knows which pods they come to."""

from __future__ import annotations

from typing import Final

from clusters.documents.resources import Resource
from clusters.jobs.described import Described

APP_WRAPPER: Final = Described(
    Resource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper", True),
    integration="workload.codeflare.dev/appwrapper",
    words="whoever owns the kind",
    is_queued_here=False,
    tells_end=False,
    suspend=("suspend",),
    idle=(("phase",), ("Suspended", "", "Succeeded", "Failed")),
)
