"""Kombu's transport over Redis, of which a connection that is gone says so.

A worker that loses its broker closes the channel, which wants to put messages back that were not
acknowledged, over a connection that has forgotten where it led. That is an ``AttributeError`` there
(kombu 5.7.0), which no caller takes for a lost connection: the worker takes nothing any more, and
ends when all that it works on has ended, a shift being the longest.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError as Disconnected


class Channel(kombu_redis.Channel):
    """As Kombu's."""

    def _connparams(self, *args: Any, **kwargs: Any) -> Any:
        if self.connection is None or self.connection.client is None:
            raise Disconnected("this connection to the broker is closed")
        return super()._connparams(*args, **kwargs)  # type: ignore[no-untyped-call]


class Transport(kombu_redis.Transport):
    """As Kombu's, with these channels."""

    Channel = Channel
