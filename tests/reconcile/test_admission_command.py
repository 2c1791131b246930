"""``manage.py run_shift``: a shift in the foreground, as an operator starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from clusters.kube import resources as r
from tests.reconcile.admission_harness import (
    Embedded,
    Place,
    is_true,
    job,
    multikueue_objects,
    quota_objects,
)
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parents[2]


def start(folder: Path, world: Embedded, name: str, role: str, *more: str) -> subprocess.Popen[str]:
    for place in world.places.values():
        (folder / place.name).write_text(place.kubeconfig)
    command = [sys.executable, "manage.py", "run_shift", "--kubeconfig", str(folder / name)]
    return subprocess.Popen(
        [*command, "--role", role, "--mode", "portal", *more],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def holder(place: Place) -> str:
    return str(place.all(r.LEASE)[0]["spec"].get("holderIdentity"))


@pytest.mark.embedded
def test_run_shift_works_until_it_is_stopped(tmp_path):
    with Embedded("manager", "w1", webhooks=True) as world:
        manager = world["manager"]
        manager.create(*multikueue_objects("w1"), *quota_objects(8, check=True))
        world["w1"].create(*quota_objects(8))
        config = tmp_path / "kueue.yaml"
        config.write_text("waitForPodsReady:\n  enable: false\nmultiKueue:\n  origin: x\n")
        processes = [
            start(tmp_path, world, "manager", "admission", "--config", str(config)),
            start(tmp_path, world, "w1", "admission"),
            start(tmp_path, world, "manager", "dispatch", "--worker", f"w1={tmp_path / 'w1'}"),
        ]
        try:
            manager.create(job("train", gpus=8, run_s=0.5, managed=True))
            eventually(lambda: is_true(manager.workload_of("train"), "Finished"))
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            ended = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], ended
        assert all(text.rstrip().endswith("stopped") for text in ended)
        leases = [item["spec"].get("holderIdentity") for item in manager.all(r.LEASE)]
        assert leases == ["", ""]


@pytest.mark.embedded
def test_run_shift_goes_on_after_its_lease_was_lost(tmp_path):
    with Embedded("w1") as world:
        place = world["w1"]
        place.create(*quota_objects(8))
        process = start(tmp_path, world, "w1", "admission")
        try:
            lease = eventually(lambda: next(iter(place.all(r.LEASE)), None))
            stolen = {"spec": {"holderIdentity": "intruder", "leaseDurationSeconds": 1}}
            name, namespace = lease["metadata"]["name"], lease["metadata"]["namespace"]
            place.client.patch(r.LEASE, name, stolen, namespace=namespace)
            eventually(lambda: holder(place).endswith("-2"))
            place.create(job("train", gpus=8, run_s=0.5))
            eventually(lambda: is_true(place.workload_of("train"), "Finished"))
        finally:
            process.send_signal(signal.SIGTERM)
            text = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0, text
        assert "takes it again as soon as it is free" in text


@pytest.mark.parametrize(
    ("more", "want"),
    [
        (["--kubeconfig", "/nowhere"], "/nowhere cannot be read"),
        (["--kubeconfig", "{file}", "--worker", "w1"], "write it as NAME=KUBECONFIG"),
        (["--kubeconfig", "{file}", "--config", "{file}"], "holds no Kueue Configuration"),
    ],
)
def test_run_shift_says_what_is_wrong_with_its_options(tmp_path, more, want):
    file = tmp_path / "file"
    file.write_text("just text")
    options = [word.format(file=file) for word in more]
    with pytest.raises(CommandError, match=want):
        call_command("run_shift", "--role", "dispatch", *options)
