"""A request that comes in several pieces is one request."""

from __future__ import annotations

import socket

import pytest

from tests.sockets import request_of

GET = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /jobs HTTP/1.1\r\nContent-Length: 4\r\n\r\n{  }"


@pytest.mark.parametrize("request_", [GET, POST])
def test_a_request_is_read_to_its_end(request_: bytes) -> None:
    for cut in range(1, len(request_)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.settimeout(0.001)
            ours.sendall(request_[:cut])
            with pytest.raises(TimeoutError):
                request_of(theirs)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(request_)
        assert request_of(theirs) == request_
        ours.close()
        assert request_of(theirs) == b""
