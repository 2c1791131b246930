"""The guide's commands are run as they stand, and its promises are kept."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from rest_framework.test import APIClient

from tests.api.conftest import API, client_of

GUIDE = Path(__file__).parents[2] / "docs" / "api.md"


def commands() -> list[list[str]]:
    """The arguments of every curl command of the guide, in order."""
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    found = []
    for block in blocks:
        text = block.replace("\\\n", " ")
        for command in re.split(r"\n(?=curl|TOKEN)", text):
            inner = re.sub(r"^TOKEN=\$\((.*) \| jq -r \.token\)\s*$", r"\1", command, flags=re.S)
            if inner.startswith("curl"):
                found.append(shlex.split(inner))
    return found


def run(people, arguments: list[str]):
    """One curl command against the test client."""
    method, address, body, headers = None, "", None, {}
    rest = iter(arguments[1:])
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-d":
            body = next(rest)
        elif word == "-H":
            name, value = next(rest).split(": ", 1)
            headers[name] = value
        elif not word.startswith("-"):
            address = word.replace("$PORTAL", API.rstrip("/"))
    bearer = headers.pop("Authorization", "")
    client = APIClient()
    if bearer:
        client = people["admin" if "ADMIN" in bearer else "owner"]
    sent = {"HTTP_" + key.upper().replace("-", "_"): value for key, value in headers.items()}
    kind = sent.pop("HTTP_CONTENT_TYPE", "application/json")
    method = method or ("POST" if body else "GET")
    return client.generic(method, address, body or "", content_type=kind, **sent)


def test_every_command_of_the_guide_works(people):
    found = commands()
    assert len(found) == GUIDE.read_text().count("curl -")
    for arguments in found:
        answer = run(people, arguments)
        assert answer.status_code in (200, 201, 202), (arguments, answer.content)


def test_guide_names_every_status_with_its_meaning():
    named = {int(code) for code in re.findall(r"\b([45]\d\d)\b(?=[ ,|])", GUIDE.read_text())}
    assert named >= {400, 401, 403, 404, 409, 412, 413, 415, 422, 428, 429, 502, 503}


@pytest.mark.parametrize("word", ["restore", "withdraw", "decide", "archive", "rights", "resolve"])
def test_guide_names_only_actions_that_are_there(people, word):
    document = json.loads(client_of(people.fleet.admin).get(API + "schema").content)
    assert any(path.endswith("/" + word) for path in document["paths"])
