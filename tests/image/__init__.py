"""The image without a container daemon: the Dockerfile's own steps, in a root made of packages.

``python -m tests.image`` carries them out, starts the portal in the result as a container would be
started, and writes what is in it.
"""

from __future__ import annotations

from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
