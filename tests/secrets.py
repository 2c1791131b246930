"""Every line that a test run logs is looked through for every secret that the run has used.

What opens something is noted where the product makes it or takes it: passwords, API tokens, keys of
webhooks, whatever is sealed, and every setting that opens something. A line with one of them fails
the test, with the event's name and not the secret.
"""

from __future__ import annotations

import logging
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.signals import setting_changed

from portal.logs import formatter

SHORTEST: Final = 12
"""What is shorter is a word that a line may have by chance."""
REMEMBERED: Final = 400
"""So many of the newest are looked for: a secret is logged when it is used, if at all."""
OPENS: Final = re.compile(r"SECRET|KEYS?$|PASSWORD$|TOKEN")
"""Settings by whose value somebody gets in, by their names in Django and in the environment."""
_IN_KUBECONFIG = re.compile(r"(?:token|client-key-data|password):\s*(\S+)")


class Watch(logging.Handler):
    """A handler at the root that keeps nothing but the places of leaks."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(formatter())
        self.secrets: deque[str] = deque(maxlen=REMEMBERED)
        self.leaks: list[str] = []
        # Of processes that tests start: what opens something, and where they log; read so far.
        self.given: set[str] = set()
        self.files: dict[Path, int] = {}

    def started(self, environment: Mapping[str, str], *streams: Any) -> None:
        """A process begins: what it was given, and the files that it writes to."""
        self.keep(*given_to(environment))
        for name in (getattr(stream, "name", None) for stream in streams):
            if isinstance(name, str) and name not in self.files:
                self.files[Path(name)] = 0

    def read_files(self) -> None:
        """Look through what processes wrote since the last time."""
        for path, begun in list(self.files.items()):
            if not path.is_file():
                del self.files[path]  # its folder went with its test
                continue
            with path.open("rb") as file:
                file.seek(begun)
                written = file.read()
            self.files[path] = begun + len(written)
            text = written.decode(errors="replace")
            if any(secret in text for secret in (*self.given, *self.secrets)):
                self.leaks.append(f"a line of {path.name}")

    def keep(self, *texts: str) -> None:
        """No line of the whole run may have any of these."""
        self.given |= {text for text in texts if len(text) >= SHORTEST}

    def note(self, *texts: str) -> None:
        """From now on no line may have any of these."""
        for text in texts:
            if len(text) >= SHORTEST and text not in self.secrets:
                self.secrets.append(text)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if any(secret in line for secret in (*self.given, *self.secrets)):
            self.leaks.append(f"{record.name}: {str(record.msg)[:60]} ({record.pathname})")


WATCH = Watch()


def watch() -> None:
    """Begin: in each process of a test run, once."""
    from budgets import sealing
    from budgets.models import User
    from budgets.services import access, second_factor
    from budgets.services.alerts import webhooks
    from clusters.kube import own_account

    watch_processes()
    for name in filter(str.isupper, dir(settings)):
        WATCH.keep(*of_setting(name, getattr(settings, name, None)))
    setting_changed.connect(_note_setting, weak=False)
    _note_with(sealing.MultiFernet, "encrypt", lambda given, _: _of_sealed(given[1]))
    _note_with(access, "_digest", lambda given, _: given[:1])
    _note_with(webhooks, "signing_key", lambda _, made: (made,))
    _note_with(second_factor, "_new_codes", lambda _, made: _of_codes(made))
    _note_with(User, "set_password", lambda given, _: given[1:2])
    _note_with(own_account, "_read", lambda _, made: (made.strip(),))


def of_setting(name: str, value: Any) -> Iterator[str]:
    """What opens something in a setting of Django."""
    if name == "PORTAL_PROVIDERS":
        yield from (provider.client_secret for provider in value.values())
    elif name == "DATABASES":
        yield from (database.get("PASSWORD") or "" for database in value.values())
    elif isinstance(value, str) and name.endswith("_URL"):
        yield urlsplit(value).password or ""
    elif OPENS.search(name):
        texts = value if isinstance(value, list) else [value]
        yield from (
            text for text in texts if isinstance(text, str) and not text.startswith("public:")
        )


def _note_setting(setting: str, value: Any, **_: Any) -> None:
    """A test gives a setting a value of its own."""
    WATCH.keep(*of_setting(setting, value))


def given_to(environment: Mapping[str, str]) -> Iterator[str]:
    """What opens something in the environment of a process: keys, and passwords of addresses."""
    for name, value in environment.items():
        if OPENS.search(name):
            yield from value.split(",")
        elif name.endswith("_URL") and (password := urlsplit(value).password):
            yield password


def watch_processes() -> None:
    """Look into the logs of all processes that tests start from now on."""
    start = subprocess.Popen.__init__

    @wraps(start)
    def starting(self: Any, *given: Any, **named: Any) -> None:
        streams = (named.get("stdout"), named.get("stderr"))
        WATCH.started(named.get("env") or {}, *streams)
        start(self, *given, **named)

    subprocess.Popen.__init__ = starting  # type: ignore[method-assign]


def listen() -> None:
    """Hear every line of this process, if that is not so already."""
    if WATCH not in logging.getLogger().handlers:
        logging.getLogger().addHandler(WATCH)


def _note_with(
    place: Any, name: str, secrets_of: Callable[[tuple[Any, ...], Any], tuple[Any, ...]]
) -> None:
    """Have a function of the product note what is secret of its arguments and its result."""
    whole = getattr(place, name)

    @wraps(whole)
    def noting(*given: Any, **named: Any) -> Any:
        made = whole(*given, **named)
        WATCH.note(*(text for text in secrets_of(given, made) if isinstance(text, str)))
        return made

    setattr(place, name, noting)


def _of_codes(codes: list[str]) -> tuple[str, ...]:
    """Recovery codes as people read and type them."""
    return (*codes, *(code.replace("-", "") for code in codes))


def _of_sealed(plain: bytes) -> tuple[str, ...]:
    """What opens something in a kubeconfig, or the whole of what is none."""
    text = plain.decode()
    return tuple(_IN_KUBECONFIG.findall(text)) or (() if "apiVersion" in text else (text,))
