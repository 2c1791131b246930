"""What is in a root: a bill of materials (CycloneDX, JSON) of its Python and Debian packages.

``python -m tests.image.sbom ROOT FILE`` writes that of any unpacked image whose packages are in
``/opt/portal``, such as one that ``docker export`` gave. The format is CycloneDX's own library's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

VENV = "opt/portal"
DPKG = "var/lib/dpkg/status"


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """One package: of ``pypi`` or of ``deb``, with its processor where it has one."""

    kind: str
    name: str
    version: str
    architecture: str = ""

    @property
    def url(self) -> PackageURL:
        """As scanners of vulnerabilities look it up."""
        if self.kind == "pypi":
            return PackageURL("pypi", None, self.name, self.version)
        return PackageURL("deb", "debian", self.name, self.version, {"arch": self.architecture})


def python_of(venv: Path) -> str:
    """Major and minor version of the Python of a virtual environment, such as 3.12."""
    (folder,) = venv.glob("lib/python*")
    return folder.name.removeprefix("python")


def python_packages(venv: Path) -> Iterator[Package]:
    """What is installed in a virtual environment."""
    for site in sorted(venv.glob("lib/python*/site-packages")):
        for found in metadata.distributions(path=[str(site)]):
            yield Package("pypi", canonicalize_name(found.metadata["Name"]), found.version)


def debian_packages(status: str) -> Iterator[Package]:
    """What dpkg's status says is installed."""
    for paragraph in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if ": " in line and not line[0].isspace()
        )
        if fields.get("Status") == "install ok installed":
            yield Package("deb", fields["Package"], fields["Version"], fields["Architecture"])


def packages_of(root: Path) -> list[Package]:
    """Those of an unpacked image, in order."""
    status = root / DPKG
    found = list(python_packages(root / VENV))
    found += debian_packages(status.read_text()) if status.exists() else ()
    return sorted(found)


def bill(packages: Iterable[Package], *, product: str, version: str) -> str:
    """The bill as JSON."""
    made = Bom()
    image = Component(type=ComponentType.CONTAINER, name=product, version=version, bom_ref=product)
    made.metadata.component = image
    for package in packages:
        url = package.url
        made.components.add(
            Component(
                type=ComponentType.LIBRARY,
                name=package.name,
                version=package.version,
                purl=url,
                bom_ref=url.to_string(),
            )
        )
    made.register_dependency(image, made.components)
    writer = make_outputter(made, OutputFormat.JSON, SchemaVersion.V1_6)
    return str(writer.output_as_string(indent=2))


def required(requirements: str, *, python: str) -> dict[str, str]:
    """Name → version of what a compiled requirements file asks for.

    Args:
        requirements: Its text.
        python: Major and minor version, of which the newest release counts; all else is as on
            this machine.
    """
    found = {}
    environment = {"python_version": python, "python_full_version": f"{python}.99"}
    for line in requirements.splitlines():
        if not line or line[0] in "# \t":
            continue
        wish = Requirement(line.removesuffix("\\").strip())
        if wish.marker is None or wish.marker.evaluate(environment):
            (pin,) = wish.specifier
            found[canonicalize_name(wish.name)] = pin.version
    return found


def missing(wanted: Mapping[str, str], packages: Iterable[Package]) -> list[str]:
    """What is wanted and is not there in that version."""
    have = {package.name: package.version for package in packages if package.kind == "pypi"}
    return [f"{name}=={version}" for name, version in wanted.items() if have.get(name) != version]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.image.sbom", description=__doc__)
    parser.add_argument("root", type=Path, help="an unpacked image")
    parser.add_argument("file", type=Path, help="where the bill is written")
    given = parser.parse_args()
    found = packages_of(given.root)
    if not found:
        print(f"{given.root} has no packages in {VENV} and no {DPKG}: name an unpacked image.")
        return 1
    given.file.write_text(bill(found, product="gpu-budget-portal", version=""))
    print(f"{len(found)} packages are in {given.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
