"""Real clusters that stories share; each starts with the first story that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fixtures import require_parts, shared
from tests.controlplane.fleet import parts_for
from tests.stories.stages import KueueCluster, prepare_portal_plane


@pytest.fixture(scope="session")
def portal_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server without Kueue, with the portal's rights on it."""
    require_parts(tuple(parts_for(kueue=False, kwok=False)))
    folder = tmp_path_factory.mktemp("stories-portal")
    with (
        ControlPlane("portal", folder) as plane,
        shared("portal_plane", [plane], is_mended=False),
    ):
        prepare_portal_plane(plane)
        yield plane


@pytest.fixture(scope="session")
def kueue_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KueueCluster]:
    """A real API server for a real Kueue."""
    require_parts(tuple(parts_for(kueue=True, kwok=False)))
    folder = tmp_path_factory.mktemp("stories-kueue")
    with (
        ControlPlane("kueue", folder) as plane,
        shared("kueue_cluster", [plane], is_mended=False),
    ):
        yield KueueCluster(plane)
