"""Text from outside, and what of it every database of the portal can keep.

PostgreSQL keeps no NUL, no half of a surrogate pair and, in JSON, no number beyond a float. What a
person sends is refused with the place where it stands; what a cluster tells, which nobody here can
refuse, is kept with U+FFFD in their stead.

JSON of others is read while the garbage collector waits: brackets within brackets lead the parser
to the end of the interpreter's stack, and whatever is cleaned up there, of whomever, fails. A quick
parser reads it, which has each key once for all documents; what that one refuses, Python's reads.

Source: PostgreSQL manual, 8.14 (JSON types); YAML 1.1, read as Kubernetes reads it
(sigs.k8s.io/yaml, a fork of go-yaml 2.4: its README on numbers of base 60, resolve.go on integers).
"""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

MOST_VALUES: Final = 20_000
"""In one YAML document, with every alias written out."""
MOST_DEPTH: Final = 100
MOST_BITS: Final = 64
"""Of an integer in YAML; Kubernetes has none that is longer."""
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# In JSON they stand escaped or not at all.
_HINT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<unstorable>u0000|u[dD][89a-fA-F]..)|.)", re.DOTALL
)
_PLAIN = (str, int, float, bool, type(None))


class UnreadableText(ValueError):
    """Text that is no document; the message is a sentence that quotes nothing of it.

    Attributes:
        line: Where reading stopped, from 1; None where it is not about one line.
    """

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def is_storable(value: Any) -> bool:
    """Whether every text (keys too) and number of a decoded JSON document can be kept."""
    return all(_is_kept(part) for part in _scalars(value))


def storable(text: str) -> str:
    """The same with U+FFFD for every character that cannot be kept."""
    return _UNSTORABLE.sub("\ufffd", text)


def read_json(text: str | bytes) -> Any:
    """One JSON document that somebody else wrote, with U+FFFD for what cannot be kept.

    Raises:
        ValueError: it is not JSON in UTF-8, or nested too deeply.
    """
    body = text if isinstance(text, bytes) else text.encode()
    if _HINT.search(body):
        body = _ESCAPE.sub(_kept_escape, body)
    collects = gc.isenabled()
    gc.disable()
    try:
        return _parsed(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    finally:
        if collects:
            gc.enable()


def _parsed(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except ValueError:  # such as a number beyond a float, which is not a fault of the JSON
        return json.loads(body.decode())


def _kept_escape(match: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if match["unstorable"] else match[0]


def read_yaml(text: str) -> Any:
    """One YAML document as JSON has it: dates stay text, keys are texts.

    Raises:
        UnreadableText: it is not YAML, or says what JSON or the database has no word for.
    """
    try:
        return _json_of(yaml.load(text, _Loader), _Budget())  # noqa: S506  a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        where = f" near line {line}" if line else ""
        # The parser's own message quotes the text, which may be a token.
        raise UnreadableText(f"This is not YAML{where}.", line=line) from None
    except RecursionError:
        raise UnreadableText("The YAML is nested too deeply.") from None
    except UnreadableText:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        # A value that is not what its tag says, such as !!int '' or !!bool maybe.
        raise UnreadableText("The YAML has a value that cannot be read.") from None


class _Loader(yaml.SafeLoader):
    """Kubernetes knows neither dates in YAML nor numbers of base 60: ``1:30`` is a text."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in forms if not tag.endswith(":timestamp")]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        """The tag of what has none: nothing but a text has a colon."""
        if kind is yaml.ScalarNode and implicit[0] and ":" in value:
            return self.DEFAULT_SCALAR_TAG
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]  # its stubs

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge what ``<<`` names, counted before it is copied: each level can multiply it."""
        merged = 0
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                continue
            for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(part, yaml.MappingNode):
                    self.flatten_mapping(part)
                    merged += len(part.value)
                if merged > MOST_VALUES:
                    raise UnreadableText(f"The YAML has more than {MOST_VALUES:,} values.")
        super().flatten_mapping(node)


def _number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    """What ``!!int`` or ``!!float`` says, said outright or not."""
    if ":" in str(loader.construct_scalar(node)):
        raise UnreadableText("The YAML has a number of base 60. Write it with base 10.")
    value = yaml.SafeLoader.yaml_constructors[node.tag](loader, node)
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise UnreadableText(f"The YAML has an integer of more than {MOST_BITS} bits.")
    return value


for _tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
    _Loader.add_constructor(_tag, _number)


class _Budget:
    """An alias can stand for very much: what it stands for is counted as if it were written."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def spend(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise UnreadableText(f"The YAML has more than {MOST_VALUES:,} values.")
        if depth > MOST_DEPTH:
            raise UnreadableText("The YAML is nested too deeply.")


def _json_of(value: Any, budget: _Budget, depth: int = 0) -> Any:
    budget.spend(depth)
    if isinstance(value, dict):
        return {_key(key): _json_of(part, budget, depth + 1) for key, part in value.items()}
    if isinstance(value, list):
        return [_json_of(part, budget, depth + 1) for part in value]
    if not isinstance(value, _PLAIN):
        raise UnreadableText(f"The YAML has a value of a kind that JSON lacks ({_kind(value)}).")
    if not _is_kept(value):
        raise UnreadableText(
            "The YAML has a NUL, half a surrogate pair, or a number beyond a float."
        )
    return value


def _key(key: Any) -> str:
    """As Kubernetes' reader makes a text of it."""
    if not isinstance(key, _PLAIN) or not _is_kept(key):
        raise UnreadableText(f"The YAML has a name that is not a text ({_kind(key)}).")
    if isinstance(key, str):
        return key
    return "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)


def _kind(value: Any) -> str:
    return type(value).__name__


def _is_kept(value: Any) -> bool:
    if isinstance(value, str):
        return _UNSTORABLE.search(value) is None
    return not isinstance(value, float) or math.isfinite(value)


def _scalars(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            waiting += part
        else:
            yield part
