"""One provider for all tests of a process; each begins with people of its own and no fault."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers import Missing
from tests.signin.company import Company, running

PORTAL = "http://testserver"


@pytest.fixture(scope="session")
def provider() -> Iterator[Company]:
    try:
        with running() as company:
            yield company
    except Missing as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture
def company(provider: Company, settings) -> Company:
    """The provider, as the portal's only one; nobody works there yet."""
    settings.PORTAL_PUBLIC_URL = PORTAL
    settings.PORTAL_PROVIDERS = {"corp": provider.as_setting()}
    provider.becomes(fault=None, people={})
    provider.serves(PORTAL)
    return provider
