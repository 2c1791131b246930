"""What servers that tests write on a bare socket need."""

from __future__ import annotations

import socket


def request_of(peer: socket.socket) -> bytes:
    """The next request, head and body, which a client may send in several pieces.

    Empty when the client has closed the connection.
    """
    request = b""
    while not _is_whole(request):
        if not (piece := peer.recv(65_536)):
            return b""
        request += piece
    return request


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
    return bool(end) and len(body) >= int(length or 0)
