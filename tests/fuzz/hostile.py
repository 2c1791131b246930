"""Values that somebody would choose who means harm, by type. All chance comes from ``rng``."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from clusters.documents import labels as known

NAMES = tuple(f"h-{number}" for number in range(24))
"""All that is written is called by one of these, so that it meets itself again."""
NAMESPACES = ("acme-speech", "globex-search")
DIGITS = "9" * 5000
LARGE = 900_000
"""Characters: with what is around it, less than an API server takes of one object."""
WHOLE: Sequence[int] = (
    0, 1, -1, 2, 3, 17, 1000, 1001, 2**31 - 1, 2**31, -(2**31), 10**9, 2**63 - 1, -(2**63),
    999_999_999_999,
)  # fmt: skip
QUANTITIES: Sequence[str] = (
    "0", "1", "8", "-1", "1m", "1n", ".5", "0.0000001", "1e3", "1e30", "1E400", "1e999999",
    "1e3000000", "-1e999999", "1e-999999", "9223372036854775807", "9223372036854775808",
    "8Ei", "9999999Ei", "1e1000000000", DIGITS, f"0.{'0' * 4000}1", "1" * 990, "1e", "Ki", "+8",
    "nan", "Infinity", "0x10", "1_000", "٣",
)  # fmt: skip
TIMES: Sequence[str] = (
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-23:59", "1970-01-01T00:00:00Z", "2026-02-30T00:00:00Z",
    "2026-12-31T23:59:60Z", "2026-11-22T10:00:00.999999999Z", "2026-11-22T10:00:00", "20261122",
    "2026-W47-7", "", "9" * 40,
)  # fmt: skip
TEXTS: Sequence[str] = (
    "", " ", "a", "main", "default", "true", "false", "null", "None", "0", "-1", "1", "2", "1.5",
    "1e999999", DIGITS, "９９", "٣", "²", "1_0", "+1", " 7 ", "nan", "h100", "host", "x" * 63,
    "x" * 253, "y" * 1025, "a\x00b", "\x00", "line\nbreak\r\n", "\u2028\u2029\u202e\ufeff",
    "😀" * 40, "e\u0301" * 200, "<script>alert(1)</script>", "{{7*7}}{% debug %}", "%s%n%x",
    "../../etc",
    "' OR 1=1; --", "{", "[" * 5000, '{"a":' * 2000, "a/b/c", "/", ":", "acme-speech/", "/h-1",
    "a,b=c,=", "=" * 400, "2026-13-45T99:99:99Z", "4294967296", "9223372036854775808",
    "-0", "a\tb", "\ud7ff",
)  # fmt: skip
LABEL_TEXTS: Sequence[str] = (
    "", "true", "false", "default", "h100", "0", "1", "00", "7", "1000000000", "9" * 63, "1e63",
    "none", "x" * 63, "a.b-c_d", "2147483648", "31536000", *NAMES[:6],
)  # fmt: skip
# Whatever the portal reads by name, today's names and those that are added.
KEYS = tuple(sorted({
    value for name, value in vars(known).items()
    if name.isupper() and isinstance(value, str) and "/" in value and not value.endswith("/")
}))  # fmt: skip
FINALIZERS = (known.IN_USE_FINALIZER, "example.test/never", "foregroundDeletion", "orphan")
OWNER_KINDS = (
    ("batch/v1", "Job"), ("v1", "Pod"), ("kueue.x-k8s.io/v1beta2", "Workload"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"), ("ray.io/v1", "RayService"), ("apps/v1", "ReplicaSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), ("example.test/v1", "Nothing"),
)  # fmt: skip


def reference(rng: random.Random) -> str:
    """The key of something that may be there, its own too."""
    return f"{rng.choice(NAMESPACES)}/{rng.choice(NAMES)}"


def uid_of(rng: random.Random) -> str:
    """Stands for the UID of what has that name, which is known when it is written."""
    return f"uid:{rng.choice(NAMES)}"


def text(rng: random.Random) -> str:
    if rng.random() < 0.01:
        return rng.choice(("x", "é", "9", "\n", "[")) * (LARGE // 2)
    if rng.random() < 0.35:
        return rng.choice((rng.choice(NAMES), reference(rng), uid_of(rng)))
    return rng.choice(TEXTS)


def marks(rng: random.Random, *, is_label: bool) -> dict[str, str]:
    """Labels or annotations: names that are read, values of every sort."""
    found = {}
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        key = rng.choice(KEYS) if rng.random() < 0.9 else rng.choice(("a", "example.test/x"))
        found[key] = rng.choice(LABEL_TEXTS) if is_label else _annotation(rng)
    if not is_label and rng.random() < 0.01:
        found["example.test/large"] = "x" * 200_000
    return found


def _annotation(rng: random.Random) -> str:
    return rng.choice((
        lambda: rng.choice(TEXTS), lambda: rng.choice(TEXTS), lambda: reference(rng),
        lambda: uid_of(rng), lambda: str(rng.choice(WHOLE)), lambda: rng.choice(NAMES),
        lambda: "true",
    ))()  # fmt: skip


def owners(rng: random.Random) -> list[dict[str, Any]]:
    """Whose it is, as it claims: its own, that of nobody, or of hundreds."""
    found = []
    for number in range(rng.choice((1, 1, 1, 2, 2, 300))):
        version, kind = rng.choice(OWNER_KINDS)
        owner: dict[str, Any] = {
            "apiVersion": version, "kind": kind, "name": rng.choice((*NAMES, "x" * 300, "a\x00b")),
            "uid": uid_of(rng) if rng.random() < 0.8 else f"none-{number}",
        }  # fmt: skip
        if number == 0 and rng.random() < 0.7:
            owner["controller"] = True
        found.append(owner)
    return found


def whole(rng: random.Random, node: Mapping[str, Any]) -> int:
    found = rng.choice(WHOLE)
    if rng.random() < 0.9:
        most = 2**31 - 1 if node.get("format") == "int32" else 2**63 - 1
        found = min(found, node.get("maximum", most))
        found = max(found, node.get("minimum", -most))
    return found
