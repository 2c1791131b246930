"""A change tells the workers, once for each transaction and only when it stands."""

from __future__ import annotations

import pytest
from django.db import transaction

from budgets.announcements import Work, announce, announced
from budgets.services.budget.in_force import raise_generations


@pytest.fixture
def heard():
    """What was announced so far."""
    found: list[Work] = []

    def listen(work: Work, **_: object) -> None:
        found.append(work)

    announced.connect(listen)
    yield found
    announced.disconnect(listen)


@pytest.mark.django_db(transaction=True)
def test_work_is_announced_once_and_only_after_the_commit(heard):
    with transaction.atomic():
        raise_generations(["flavor:h100"])
        raise_generations(["account:acme"])
        announce(Work.EXPORTS)
        assert heard == []
    assert sorted(heard) == [Work.EXPORTS, Work.SYNC]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_announced_of_what_was_rolled_back_or_did_not_rise(heard):
    with pytest.raises(RuntimeError), transaction.atomic():
        raise_generations(["flavor:h100"])
        raise RuntimeError
    with transaction.atomic():
        raise_generations([])
    assert heard == []
    raise_generations(["flavor:h100"])
    assert heard == [Work.SYNC]
