"""The bill of materials names what is installed, as scanners look it up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.image import TREE
from tests.image.sbom import (
    Package,
    bill,
    debian_packages,
    main,
    missing,
    packages_of,
    python_of,
    python_packages,
    required,
)

HERE = Path(sys.prefix)
WANTED = required((TREE / "requirements.txt").read_text(), python=python_of(HERE))
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u13
Description: GNU C Library: Shared libraries
 Version: of nobody

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


def test_every_requirement_is_in_the_bill_of_what_is_installed_here() -> None:
    """In the image, ``python -m tests.image`` asks the same."""
    found = sorted(python_packages(HERE))
    assert missing(WANTED, found) == []
    told = json.loads(bill(found, product="gpu-budget-portal", version="1"))
    urls = {component["purl"] for component in told["components"]}
    assert {f"pkg:pypi/{name}@{version}" for name, version in WANTED.items()} <= urls
    assert len(WANTED) > 40


def test_a_requirement_that_is_missing_or_of_another_version_is_noticed() -> None:
    found = list(python_packages(HERE))
    without = [package for package in found if package.name != "django"]
    (django,) = (package for package in found if package.name == "django")
    assert missing(WANTED, without) == [f"django=={django.version}"]
    older = [*without, Package("pypi", "django", "1.0")]
    assert missing(WANTED, older) == [f"django=={django.version}"]


def test_bill_is_of_cyclonedx_and_has_debians_packages() -> None:
    (libc,) = debian_packages(STATUS)
    assert libc == Package("deb", "libc6", "2.36-9+deb12u13", "amd64")
    told = json.loads(bill([libc], product="gpu-budget-portal", version="0.1.0"))
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["component"]["version"] == "0.1.0"
    (component,) = told["components"]
    assert component["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64"


def test_command_writes_the_bill_of_an_unpacked_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, file = tmp_path / "root", tmp_path / "sbom.json"
    root.mkdir()
    monkeypatch.setattr(sys, "argv", ["sbom", str(root), str(file)])
    assert main() == 1 and not file.exists()
    assert "name an unpacked image" in capsys.readouterr().out
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(STATUS)
    assert main() == 0 and packages_of(root)[0].name == "libc6"
    assert "libc6" in file.read_text()
