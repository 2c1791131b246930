"""One provider for all tests of a process; each begins with people of its own and no fault."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.signin.company import Company, running_or_skipped

PORTAL = "http://testserver"


@pytest.fixture(scope="session")
def provider() -> Iterator[Company]:
    with running_or_skipped() as company:
        yield company


@pytest.fixture
def company(provider: Company, settings) -> Company:
    """The provider, as the portal's only one; nobody works there yet."""
    settings.PORTAL_PUBLIC_URL = PORTAL
    settings.PORTAL_PROVIDERS = {"corp": provider.as_setting()}
    provider.becomes(fault=None, people={})
    provider.serves(PORTAL)
    return provider
