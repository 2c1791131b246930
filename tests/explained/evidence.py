"""Evidence documents as the shift stores them, for tests."""

from __future__ import annotations

from typing import Any

from clusters.explaining.names import Names

GPU = "nvidia.com/gpu"
H100 = f"h100/{GPU}"
FLAVORS = {"h100": "H100", "h100-spot": "H100 spot", "a100": "A100"}
EVERYTHING = Names(None, flavors=FLAVORS)
OWNER = Names({"acme-vision": "Vision"}, accounts={"acme": "Acme"}, flavors=FLAVORS)


def quota(**figures: int) -> dict[str, int]:
    return {"nominal": 0, "used": 0, "available": 0, "potential": 0, "lent": 0, **figures}


def holder(key: str, *, gpus: int = 8, protection: str = "PRIORITY", **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "clusterQueue": key.partition("/")[0],
        "amounts": {H100: gpus},
        "protection": protection,
        **more,
    }


def attempt(flavor: str = "h100", *, missing: int = 0, mode: str = "NO_FIT", reason: str = ""):
    reasons = [reason] if reason else []
    if missing and not reason:
        reasons = [f"insufficient unused quota for {GPU} in flavor {flavor}, {missing} more needed"]
    return {
        "podSet": "main",
        "flavor": flavor,
        "mode": mode,
        "missing": {GPU: missing} if missing else {},
        "reasons": reasons,
    }


def waiting(
    lacking: int = 8, *, gpus: int = 8, own: dict[str, int] | None = None, **more: Any
) -> dict[str, Any]:
    """A job of acme-vision that waits for ``gpus`` H100, of which ``lacking`` are not free."""
    return {
        "reason": "WaitingForQuota",
        "message": f"couldn't assign flavors to pod set main: insufficient unused quota for {GPU} "
        f"in flavor h100, {lacking} more needed",
        "clusterQueue": "acme-vision",
        "position": 1,
        "waiting": 1,
        "isParked": True,
        "hold": "",
        "requests": {GPU: gpus},
        "attempts": [attempt(missing=lacking)],
        "lacking": {H100: lacking},
        "quota": {H100: own or quota(nominal=16, used=16, potential=16)},
        "holders": [],
        "borrowers": [],
        "checks": [],
        **more,
    }
