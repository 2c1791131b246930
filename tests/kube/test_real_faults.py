"""What a real API server does to reflectors, leases and TLS when paused, killed or foreign."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from clusters import errors
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.kubeconfig import connection_of
from clusters.kube.lease import ClusterLease, LeaseName, LeaseSettings
from clusters.kube.pulse import Pulse
from clusters.kube.watch import Reflector
from tests.controlplane.control_plane import ControlPlane
from tests.kube.documents import config_map
from tests.kube.test_kubeconfig import CERTIFICATE
from tests.kube.test_reflector import Image, running
from tests.waiting import eventually

NOTICED_WITHIN_S = 10.0


@pytest.fixture
def plane(bare_cluster: ControlPlane) -> ControlPlane:
    return bare_cluster


def connected(plane: ControlPlane) -> KubeClient:
    return KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text(), read_timeout_s=3.0)


def test_paused_api_server_is_noticed_in_time_and_heals(
    plane: ControlPlane, unique: Callable[[str], str]
) -> None:
    namespace, image = unique("paused"), Image()
    with connected(plane) as client:
        client.create(r.NAMESPACE, {"metadata": {"name": namespace}})
        pulse = Pulse(client)
        reflector = Reflector(
            client, r.CONFIG_MAP, image, selection=Selection(namespace), pulse=pulse
        )
        with running(reflector, pulse):
            assert eventually(lambda: reflector.is_watching and pulse.last_answer is not None)
            plane.pause_api_server()
            started = time.monotonic()
            assert eventually(lambda: pulse.is_lost)
            assert time.monotonic() - started < NOTICED_WITHIN_S
            plane.resume_api_server()
            assert eventually(lambda: not pulse.is_lost and reflector.is_watching)
            client.create(r.CONFIG_MAP, config_map(namespace, "after"))
            assert eventually(lambda: "after" in image.names)


def test_killed_api_server_is_noticed_and_its_watch_resumes(
    plane: ControlPlane, unique: Callable[[str], str]
) -> None:
    namespace, image = unique("killed"), Image()
    with connected(plane) as client:
        client.create(r.NAMESPACE, {"metadata": {"name": namespace}})
        pulse = Pulse(client)
        reflector = Reflector(
            client, r.CONFIG_MAP, image, selection=Selection(namespace), pulse=pulse
        )
        lease = ClusterLease(
            client, LeaseName(namespace, "role"), holder="me", settings=LeaseSettings(duration_s=2)
        )
        assert lease.try_acquire()
        with running(reflector, pulse):
            assert eventually(lambda: reflector.is_watching and pulse.last_answer is not None)
            plane.kill_api_server()
            assert eventually(lambda: pulse.is_lost)
            time.sleep(1.1)
            with pytest.raises(errors.LeaseLost):
                lease.check()
            plane.start_api_server()
            assert eventually(lambda: reflector.is_watching and not pulse.is_lost)
            # Nobody took it meanwhile: the lease is still there and can be renewed.
            lease.renew()
            lease.check()
            client.create(r.CONFIG_MAP, config_map(namespace, "after"))
            assert eventually(lambda: "after" in image.names)


def test_certificate_of_another_ca_is_not_trusted(plane: ControlPlane) -> None:
    known = connection_of(plane.admin_kubeconfig.read_text())
    stranger = type(known)(known.server, CERTIFICATE, "token")
    with KubeClient.from_connection(stranger) as client, pytest.raises(errors.Untrusted):
        client.get(r.NAMESPACE, "default")
