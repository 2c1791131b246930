"""What every row is asked before it is saved."""

from __future__ import annotations

import pytest

from budgets.errors import Rejected
from budgets.services import create_account
from budgets.services.alerts.webhooks import create_webhook
from tests.builders import SmallFleet

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", ["a\r\nBcc: all@example.org", "a\x00b", "a\u2028b", "a\x1b[2Jb"])
def test_names_that_break_a_line_are_refused(fleet: SmallFleet, name: str):
    with pytest.raises(Rejected) as refused:
        create_account(fleet.admin, slug="broken", name=name)
    assert ("name", "control_character") in {(f.field, f.code) for f in refused.value.faults}
    with pytest.raises(Rejected) as refused:
        create_webhook(fleet.admin, name=name, url="https://example.org/hook")
    assert [f.field for f in refused.value.faults if f.code == "control_character"] == ["name"]
