"""Answers of an API server, read so that whatever stands in them can be stored.

Kubernetes checks names and labels, not messages: what a failed process printed last can come, NUL
and all, into the condition of a Workload. PostgreSQL has no NUL, and one such message must not
hold up what every other workload of the cluster did.
"""

from __future__ import annotations

import json
import re
from typing import Any

from budgets.texts import storable

# Escaped, because JSON has them in no other form; a mere hint, the texts themselves decide.
_HINT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def read_json(body: bytes) -> Any:
    """A JSON body, with U+FFFD for characters that no database keeps.

    Raises:
        ValueError: it is not JSON in UTF-8, or nested too deeply.
    """
    try:
        found = json.loads(body.decode())
        return storable(found) if _HINT.search(body) else found
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
