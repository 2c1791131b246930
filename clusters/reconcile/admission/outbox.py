"""Sends the admission shift's writes side by side, at most one at a time for each workload.

Threads only send and read back; what an answer means is decided by the shift's own thread, to
which every answer returns through the given callback.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from clusters.errors import ClusterError, LeaseLost, NotFound
from clusters.kube.client import KubeClient
from clusters.kube.resources import Resource
from clusters.reconcile.runtime.writer import Write, Writer, WritingStopped

Target = tuple[Resource, str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one write.

    Attributes:
        key: Whose turn it was.
        write: What was sent; None when objects were only read again.
        document: The object as it is now, when that is known.
        error: Why the write failed; None when it did not.
        reread: Objects read again after a failure: target → document, None when it is gone.
        fatal: The shift cannot go on.
    """

    key: str
    write: Write | None = None
    document: dict[str, Any] | None = None
    error: ClusterError | None = None
    reread: dict[Target, dict[str, Any] | None] | None = None
    fatal: BaseException | None = None
    is_stopped: bool = False


class Outbox:
    """Threads around a ``Writer``."""

    def __init__(
        self,
        client: KubeClient,
        writer: Writer,
        *,
        answer: Callable[[Answer], None],
        threads: int,
        name: str,
    ) -> None:
        self._client = client
        self._writer = writer
        self._answer = answer
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._busy: set[str] = set()

    def is_busy(self, key: str) -> bool:
        """Whether a write of this key is under way; its answer has not been taken yet."""
        return key in self._busy

    @property
    def load(self) -> int:
        return len(self._busy)

    def send(self, key: str, write: Write) -> None:
        """Send a write; the key is busy until ``done``."""
        self._busy.add(key)
        self._pool.submit(self._guard, key, lambda: self._send(key, write))

    def read(self, key: str, targets: list[Target]) -> None:
        """Read objects again."""
        self._busy.add(key)
        self._pool.submit(self._guard, key, lambda: Answer(key, reread=self._read(targets)))

    def done(self, key: str) -> None:
        """The answer of a key was taken."""
        self._busy.discard(key)

    def close(self) -> None:
        """Sends nothing more and waits for what is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _guard(self, key: str, work: Callable[[], Answer]) -> None:
        try:
            answer = work()
        except WritingStopped:
            answer = Answer(key, is_stopped=True)
        except LeaseLost as error:
            answer = Answer(key, fatal=error)
        except ClusterError as error:
            answer = Answer(key, error=error)
        except BaseException as error:  # it ends the shift, in the shift's own thread
            answer = Answer(key, fatal=error)
        self._answer(answer)

    def _send(self, key: str, write: Write) -> Answer:
        try:
            document = self._writer.send(write)
        except LeaseLost:
            raise
        except ClusterError as error:
            return Answer(key, write, error=error)
        return Answer(key, write, document)

    def _read(self, targets: list[Target]) -> dict[Target, dict[str, Any] | None]:
        found: dict[Target, dict[str, Any] | None] = {}
        for target in targets:
            resource, namespace, name = target
            try:
                found[target] = self._client.get(resource, name, namespace=namespace or None)
            except NotFound:
                found[target] = None
        return found
