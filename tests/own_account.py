"""What kubelet mounts of a pod's service account, as it writes it: whole, by one rename."""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path

from clusters.kube.own_account import AUTHORITY, TOKEN
from tests.kube.test_kubeconfig import CERTIFICATE

USER = "system:serviceaccount:gpu-portal:portal"


def token_of(user: str = USER, *, number: int = 1) -> str:
    """A token in the form that Kubernetes has; nobody has signed it."""

    def part(claims: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part({'sub': user, 'jti': number})}.c2lnbmVk"


class OwnFolder:
    """A projected volume.

    Args:
        place: An empty folder.
        authority: What ca.crt has.
    """

    def __init__(self, place: Path, *, authority: str = CERTIFICATE) -> None:
        self.place, self._authority = place, authority
        self._count = itertools.count()
        for name in (TOKEN, AUTHORITY):
            (place / name).symlink_to(Path("..data") / name)

    def write(self, token: str) -> None:
        """As kubelet's atomic writer does: a reader finds the old token or the new one."""
        written = self.place / f"..{next(self._count)}"
        written.mkdir()
        (written / TOKEN).write_text(token)
        (written / AUTHORITY).write_text(self._authority)
        fresh = self.place / "..fresh"
        fresh.symlink_to(written.name)
        fresh.rename(self.place / "..data")
