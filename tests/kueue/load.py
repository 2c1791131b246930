"""The same documents into the engine: simulator and real cluster read one source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from clusters.kueue.configuration import Configuration
from clusters.kueue.cycle.engine import Engine


def load_engine(
    documents: Iterable[Mapping[str, Any]],
    *,
    configuration: Configuration | Mapping[str, Any] | None = None,
    now: datetime,
) -> Engine:
    """Build an engine from API documents in any order.

    Args:
        documents: manifests or live objects; kinds that admission does not read are left out.
        configuration: Kueue Configuration, parsed or as a document; defaults when missing.
        now: current time, aware.

    Returns:
        An engine that knows them all.

    Raises:
        KeyError: a required field is missing.
        ValueError: a quantity, time or enum value is malformed.
    """
    engine = Engine(configuration)
    order = {kind: index for index, kind in enumerate(engine.kinds)}
    read = [document for document in documents if document["kind"] in order]
    for document in sorted(read, key=lambda item: order[item["kind"]]):
        engine.upsert(document, now=now)
    return engine
