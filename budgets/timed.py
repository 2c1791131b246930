"""A whole answer over HTTP comes in time, however slowly its bytes come.

A socket's own time-out is for the next byte: who sends one now and then would hold a thread for
ever. Here the thread that waits says until when the answer has to be there.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
from typing import Any, Final

BUFFER: Final = 64 * 1024


class _Time(threading.local):
    """When the answer that a thread reads has to be there, as a monotonic second."""

    ends: float | None = None


_TIME = _Time()


def begin(seconds: float) -> None:
    """What this thread reads from now on has to be there within so many seconds."""
    _TIME.ends = time.monotonic() + seconds


def end() -> None:
    """The answer is there, or was given up."""
    _TIME.ends = None


class _Timed(io.RawIOBase):
    """The bytes of a connection as they come, until the time of the answer is over."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        # Holds the socket open as long as the answer is read, whatever becomes of the connection.
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if _TIME.ends is None:
            return self._raw.readinto(buffer)
        left = _TIME.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        usual = self._socket.gettimeout()
        self._socket.settimeout(left if usual is None else min(usual, left))
        try:
            return self._raw.readinto(buffer)
        finally:
            self._socket.settimeout(usual)

    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    """An answer that comes in time, from its first byte on: a connection's ``response_class``."""

    def __init__(self, sock: socket.socket, *arguments: Any, **more: Any) -> None:
        super().__init__(sock, *arguments, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock), BUFFER)
