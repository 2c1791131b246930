"""The company's provider: a certified OpenID Connect provider in Node.js, on loopback."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests

from portal.providers import Provider
from tests.lanes import IN_CI
from tests.servers import Missing
from tests.signin.packages import node, packages

PROVIDER = Path(__file__).resolve().parent / "provider.mjs"
CLIENT_ID, CLIENT_SECRET = "portal", "a secret of the tests alone"
API, MACHINE = "https://portal.test/api", "ci-reporter"
"""The portal's API as the provider knows it, and a machine that asks for tokens to it."""
PASSWORD = "right"


class Company:
    """A running provider, and what it does from now on.

    Attributes:
        issuer: As it names itself.
    """

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"

    def becomes(self, **changes: Any) -> None:
        """``people``, ``clients`` and ``fault`` are set, and ``rotate`` makes a new key."""
        requests.post(f"{self.issuer}/control", json=changes, timeout=30).raise_for_status()

    def knows(self, **groups: list[str]) -> None:
        """People by their names with their groups, and nobody else."""
        people = {
            name: {
                "preferred_username": name,
                "given_name": name.title(),
                "family_name": "Of Company",
                "email": f"{name}@company.example",
                "email_verified": True,
                "groups": found,
            }
            for name, found in groups.items()
        }
        self.becomes(people=people)

    def serves(self, portal: str) -> None:
        """The portal at an address is a client from now on."""
        client = {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "redirect_uris": [f"{portal}/signin/corp/back/"],
            "post_logout_redirect_uris": [f"{portal}/login/"],
        }
        machine = {
            "client_id": MACHINE,
            "client_secret": CLIENT_SECRET,
            "grant_types": ["client_credentials"],
            "response_types": [],
            "redirect_uris": [],
        }
        self.becomes(clients=[client, machine])

    def as_setting(self, **changes: Any) -> Provider:
        """As the portal's settings name it."""
        given = {
            "name": "corp",
            "label": "Company",
            "issuer": self.issuer,
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "scopes": "openid profile email",
            "groups": "groups",
            "username": "preferred_username",
            "api_audience": API,
        }
        return Provider(**given | changes)

    def token(self, scope: str = "portal:read", *, resource: str = API) -> str:
        """What the machine gets by its secret.

        Args:
            scope: Asked for, words apart by spaces.
            resource: For which API.
        """
        asked = {"grant_type": "client_credentials", "scope": scope, "resource": resource}
        answer = requests.post(
            f"{self.issuer}/token", data=asked, auth=(MACHINE, CLIENT_SECRET), timeout=30
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def vouches(self, asked: str, *, name: str, password: str = PASSWORD) -> str:
        """The address to which the provider sends a browser that was sent to it.

        Args:
            asked: Where the portal sent it.
            name: Of whoever sits there.
            password: What they type.
        """
        with requests.Session() as browser:
            answer = browser.get(asked, allow_redirects=False, timeout=30)
            for _ in range(10):
                if answer.status_code in (302, 303):
                    address = urljoin(answer.url, answer.headers["Location"])
                    if not address.startswith(self.issuer):
                        return address
                    answer = browser.get(address, allow_redirects=False, timeout=30)
                else:
                    assert answer.status_code == 200, answer.text
                    given = {"login": name, "password": password}
                    answer = browser.post(answer.url, data=given, allow_redirects=False, timeout=30)
        raise AssertionError("the provider sent nobody back")


@contextlib.contextmanager
def running() -> Iterator[Company]:
    """A provider that ends with the block.

    Raises:
        Missing: Node.js or the provider's packages.
    """
    command = [node(), str(PROVIDER), str(packages())]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdin and process.stdout
        try:
            port = process.stdout.readline()
            if not port.strip().isdecimal():
                log.seek(0)
                raise RuntimeError(f"the provider did not start: {log.read()[-2000:]}")
            yield Company(int(port))
        finally:
            process.stdin.close()
            process.terminate()
            process.wait(60)
            process.stdout.close()


@contextlib.contextmanager
def running_or_skipped() -> Iterator[Company]:
    """The same for a fixture: what the machine lacks skips its tests, and fails them in CI."""
    try:
        with running() as found:
            yield found
    except Missing as missing:
        (pytest.fail if IN_CI else pytest.skip)(str(missing))
