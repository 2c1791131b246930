"""The app of a person with a second factor, in a test's hands."""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import pyotp

from budgets import services
from budgets.models import User
from budgets.services.second_factor import STEP_S


@dataclass(frozen=True, slots=True)
class App:
    """What the phone knows.

    Attributes:
        secret: In base32.
        recovery: Codes on paper.
    """

    secret: str
    recovery: tuple[str, ...] = ()

    @classmethod
    def of_address(cls, address: str) -> App:
        """As the app reads it from the picture."""
        return cls(parse_qs(urlsplit(address).query)["secret"][0])

    def code(self, *, steps: int = 0) -> str:
        """The code of now, or of a step before or after it; of the real clock or a frozen one."""
        return pyotp.TOTP(self.secret).at(int(time.time()) + steps * STEP_S)


def set_up(user: User) -> App:
    """Give somebody a second factor; the code of now is not used up by it."""
    app = App(services.begin_second_factor(user).secret)
    return App(app.secret, tuple(services.confirm_second_factor(user, code=app.code(steps=-1))))
