"""Kueue's wiring, as far as it can be seen without running Kueue."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from . import kueue_setup


def can_mount() -> bool:
    tool = shutil.which("unshare")
    if tool is None:
        return False
    probe = [tool, "--user", "--map-root-user", "--mount", "true"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def test_configuration_overrides_win_key_by_key(tmp_path: Path) -> None:
    found = kueue_setup.configuration(
        {"multiKueue": {"workerLostTimeout": "2s"}, "integrations": {"frameworks": ["pod"]}},
        webhook_port=1,
        health_port=2,
        certificates=tmp_path,
    )
    assert found["multiKueue"] == {"gcInterval": "5s", "workerLostTimeout": "2s"}
    assert found["integrations"]["frameworks"] == ["pod"]
    assert found["webhook"]["port"] == 1


@pytest.mark.skipif(not can_mount(), reason="unshare may not make user namespaces here")
def test_metrics_certificate_path_exists_without_the_right_to_write_it(tmp_path: Path) -> None:
    certificates = kueue_setup.METRICS_CERTIFICATES
    layer = tmp_path / "etc"
    served = layer / certificates.relative_to("/etc")
    served.mkdir(parents=True)
    (served / "tls.crt").write_text("of this layer")

    prefix = kueue_setup.mounted_over_etc(layer)
    command = [*prefix, "cat", str(certificates / "tls.crt"), "/etc/passwd"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == "of this layer" + Path("/etc/passwd").read_text()
