"""Which of several reasons is told to hold a queue, since when, until when, and what ends it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from budgets.plan import StopPolicy
from clusters.explaining.evidence import read_evidence
from clusters.explaining.findings import Explained, explained
from clusters.explaining.stops import Stop, StopSource
from tests.explained.evidence import OWNER, attempt, quota, waiting

SINCE, UNTIL = datetime(2026, 3, 2, 10, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
HOLD, DRAIN, NONE = StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN, StopPolicy.NONE
CLOSED = "untolerated taint {gpu-budget-portal.dev/maintenance cordoned NoSchedule <nil>} in flavor"


def person(policy: StopPolicy = HOLD) -> Stop:
    return Stop(
        StopSource.PERSON,
        policy,
        "ada",
        SINCE,
        note="benchmark week",
        keeper="an owner or an admin",
    )


def cap(policy: StopPolicy = HOLD, until: datetime | None = UNTIL) -> Stop:
    return Stop(StopSource.CAP, policy, "500 EUR a month", SINCE, until, keeper="finance")


def window(policy: StopPolicy = HOLD, flavor: str = "") -> Stop:
    return Stop(
        StopSource.MAINTENANCE, policy, "worker gpu-east", SINCE, UNTIL, keeper="an admin",
        flavor=flavor,
    )  # fmt: skip


ARCHIVED = Stop(StopSource.ARCHIVED, HOLD, since=SINCE)


def told(*stops: Stop, **evidence: Any) -> Explained:
    document = waiting(**{"hold": "Hold", "holdKind": "ClusterQueue", **evidence})
    return explained(replace(read_evidence(document), stops=stops), OWNER)


@pytest.mark.parametrize(
    ("stop", "want", "want_remedy"),
    [
        pytest.param(
            person(),
            'Ada put its budget on hold at 2026-03-02 10:00 UTC ("benchmark week"): nothing starts '
            "until an owner or an admin releases it.",
            "An owner or an admin releases the hold.",
            id="a person",
        ),
        pytest.param(
            cap(),
            "The spend cap of 500 EUR a month was reached at 2026-03-02 10:00 UTC: nothing starts "
            "until 2026-04-01 00:00 UTC, or until finance raises it.",
            "The cap starts over at 2026-04-01 00:00 UTC, or finance raises, removes or suspends "
            "the cap of 500 EUR a month.",
            id="a cap",
        ),
        pytest.param(
            cap(until=None),
            "The spend cap of 500 EUR a month was reached at 2026-03-02 10:00 UTC: nothing starts "
            "until finance raises it.",
            "Finance raises, removes or suspends the cap of 500 EUR a month.",
            id="a cap of a grant without an end",
        ),
        pytest.param(
            window(),
            "Worker gpu-east is closed for maintenance since 2026-03-02 10:00 UTC: nothing starts "
            "there until 2026-04-01 00:00 UTC.",
            "Maintenance of worker gpu-east ends at 2026-04-01 00:00 UTC, or an admin ends it "
            "earlier.",
            id="maintenance",
        ),
        pytest.param(
            ARCHIVED,
            "Its workspace was archived at 2026-03-02 10:00 UTC: nothing starts in it any more.",
            "Submit the job in another workspace: an archived one stays held.",
            id="an archived workspace",
        ),
    ],
)
def test_sentence_names_what_holds_the_queue(stop: Stop, want: str, want_remedy: str):
    found = told(stop)
    assert found.sentence == want
    assert found.remedies == (want_remedy,)


def test_strongest_is_told_first_and_the_others_are_named():
    found = told(person(), window(), cap(DRAIN), hold="HoldAndDrain")
    assert found.sentence == (
        "The spend cap of 500 EUR a month was reached at 2026-03-02 10:00 UTC: nothing starts "
        "until 2026-04-01 00:00 UTC, or until finance raises it; it is also held by ada and by "
        "maintenance of worker gpu-east (until 2026-04-01 00:00 UTC); running jobs are being "
        "stopped."
    )
    assert len(found.remedies) == 3, "each has to go"
    assert told(cap(), person()).sentence.startswith("Ada put its budget on hold"), "no end known"


def test_queue_that_nothing_stops_any_more_is_released_by_the_next_sync():
    found = told(cap(NONE))
    assert "nothing asks for it any more" in found.sentence
    assert found.remedies == ()


def test_soft_cap_is_why_nothing_is_borrowed():
    found = told(cap(NONE), hold="")
    assert found.sentence == (
        "Waits for 8 H100: 8 more are needed; 16 of its 16 committed are in use and none may be "
        "borrowed under the spend cap of 500 EUR a month (until 2026-04-01 00:00 UTC)."
    )
    assert found.remedies[0].startswith("The cap starts over at 2026-04-01 00:00 UTC")


def test_job_larger_than_the_floor_is_not_told_never_under_a_soft_cap():
    found = told(
        cap(NONE), lacking=8, gpus=24, reason="ExceedsMaxQuota", hold="",
        own=quota(nominal=16, potential=16),
    )  # fmt: skip
    assert found.sentence == (
        "It asks for 24 H100, and its budget has no more than 16 H100 under the spend cap of 500 "
        "EUR a month (until 2026-04-01 00:00 UTC)."
    )
    assert not any("ceiling" in text for text in found.remedies), "a higher ceiling gives nothing"


def test_flavor_under_maintenance_is_told_with_its_end():
    closed = attempt("h100", reason=f"{CLOSED} h100")
    found = told(window(NONE, "h100"), attempts=[closed], lacking={}, hold="")
    assert found.sentence == (
        "No flavor of its budget suits it (H100: it is closed for maintenance until 2026-04-01 "
        "00:00 UTC)."
    )
    assert found.remedies == (
        "Maintenance of H100 on worker gpu-east ends at 2026-04-01 00:00 UTC, or an admin ends it "
        "earlier.",
    )


def test_job_that_a_spend_check_turned_back_is_told_its_cap():
    found = told(cap(), reason="Deactivated", hold="", isTurnedBack=True)
    assert found.sentence == (
        "The spend cap of 500 EUR a month was reached at 2026-03-02 10:00 UTC: nothing starts "
        "until 2026-04-01 00:00 UTC, or until finance raises it; the job comes back by itself "
        "then."
    )
    assert len(found.remedies) == 1
