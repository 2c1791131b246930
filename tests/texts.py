"""Every text that a person reads, as one list: ``python -m tests.texts`` writes it to artifacts.

``python -m tests.texts --since REVISION`` writes what was reworded since then instead, file by
file, before and after.

Texts are found as gettext would find them: what stands between the tags of a template, the words of
its attributes and components, string literals of Python and JavaScript that read as words, and the
paragraphs of the documentation. A branch of a template shows as `` | ``, a value as ``{name}``.
Left out: docstrings, log events, faults of programmers, and Kueue's sentences, which stay as Kueue
writes them (``clusters/kueue``). Source: none; the list is for reading, nothing depends on it.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ARTIFACT: Final = ROOT / "artifacts" / "texts.md"

_INLINE: Final = "a|strong|em|b|code|span|br|abbr|time|ins|del|small"
_BLOCK: Final = re.compile(rf"</?(?!(?:{_INLINE})\b)[a-zA-Z][^>]*>")
_SHOWN_ATTRIBUTES: Final = re.compile(
    r'(?:aria-label|placeholder|title|alt|data-confirm|data-label|caption)="([^"]*)"'
)
_COMPONENT: Final = re.compile(r"{%\s*(?:card|table|fact|sample|sort_head|chart|field)\b(.*?)%}")
_QUOTED: Final = re.compile(r'(?<![=\w])"([^"]*)"|(?:label|aside|with)="([^"]*)"')
_BRANCH: Final = re.compile(r"{%\s*(?:else|elif|empty)\b.*?%}")
_TAG: Final = re.compile(r"{%.*?%}", re.DOTALL)
_VALUE: Final = re.compile(r"{{\s*([\w.]+)[^}]*}}")
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
# Two words with one space between them, at least one of them in small letters.
_WORDS: Final = re.compile(r"(?:[A-Za-z’'\"”),:;%}]+ )+[\"“({]?[A-Za-z{0-9]")
_CODE: Final = re.compile(
    r"^\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH|BEGIN|LOCK|SET|PRAGMA|EXPLAIN)\b"
    r"|\(\?P?[<:]|\\[dswS]|^[-\w.]+/[-\w./]+ |=%|<[a-z]+ |^--"
)
_FAULTS_OF_PROGRAMMERS: Final = frozenset(
    {"TypeError", "AssertionError", "RuntimeError", "NotImplementedError", "KeyError"}
)
_SHOWN_KEYWORDS: Final = frozenset(
    {"label", "help_text", "title", "text", "help", "headline", "button", "empty", "words", "link"}
)
_SILENT_CALLS: Final = frozenset(
    {"debug", "info", "warning", "error", "exception", "compile", "execute", "cast", "TypeVar"}
)


def texts_of_template(source: str) -> Iterator[str]:
    """The texts of a template, in the order of the file; values as ``{name}``."""
    source = re.sub(r"{#.*?#}|<!--.*?-->", "", source, flags=re.DOTALL)
    source = re.sub(r"<(script|style|svg defs)\b.*?</\1>", "", source, flags=re.DOTALL)
    for found in _COMPONENT.finditer(source):
        for words in _QUOTED.findall(found[1]):
            yield from (part.lstrip("#") for part in "".join(words).split("|"))
    yield from _SHOWN_ATTRIBUTES.findall(_VALUE.sub(r"{\1}", source))
    # White space and tags of the template language may stand inside an element's tag.
    bare = _TAG.sub("", _BRANCH.sub(" ¦ ", source))
    for part in _BLOCK.split(_VALUE.sub(r"{\1}", bare)):
        text = re.sub(r"<[^>]*>", "", part)
        yield re.sub(r"^[ ¦]+|[ ¦]+$", "", " ".join(text.split())).replace("¦", "|")


def texts_of_python(source: str) -> Iterator[str]:
    """The string literals of a module that read as words, f-strings with ``{…}`` for values."""
    tree = ast.parse(source)
    silent = {id(node) for node in _silent(tree)}
    yield from _read(tree, silent)


def _read(node: ast.AST, silent: set[int], *, is_shown: bool = False) -> Iterator[str]:
    if id(node) in silent:
        return
    if isinstance(node, ast.JoinedStr):
        text = "".join(
            part.value if isinstance(part, ast.Constant) else _name(part) for part in node.values
        )
        if _reads_as_words(text):
            yield text
        for part in node.values:
            if not isinstance(part, ast.Constant):
                yield from _read(part, silent)
        return
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and (
            _reads_as_words(node.value) or (is_shown and _WORD.search(node.value))
        ):
            yield node.value
        return
    for child in ast.iter_child_nodes(node):
        yield from _read(
            child,
            silent,
            is_shown=is_shown
            if isinstance(node, ast.keyword)
            else isinstance(child, ast.keyword) and child.arg in _SHOWN_KEYWORDS,
        )


def _name(part: ast.expr) -> str:
    return "{" + ast.unparse(part.value) + "}" if isinstance(part, ast.FormattedValue) else "{}"


def _silent(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes whose strings nobody reads: docstrings, log events, faults of programmers, types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.body[:1] if ast.get_docstring(node, clean=False) else ()
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in _SILENT_CALLS or name in _FAULTS_OF_PROGRAMMERS:
                yield node
        if isinstance(node, ast.AnnAssign):
            yield node.annotation
        if isinstance(node, ast.Assert):
            yield node


def _reads_as_words(text: str) -> bool:
    return len(_WORD.findall(text)) > 1 and bool(_WORDS.search(text)) and not _CODE.search(text)


def texts_of_script(source: str) -> Iterator[str]:
    """The string literals of a script that read as words."""
    source = re.sub(r"^\s*//.*$|/\*.*?\*/", "", source, flags=re.MULTILINE | re.DOTALL)
    for found in re.finditer(r'"([^"\n]*)"|`([^`]*)`', source):
        text = found[1] or found[2] or ""
        if _reads_as_words(text):
            yield " ".join(text.split())


def texts_of_document(source: str) -> Iterator[str]:
    """The paragraphs, rows and headings of a Markdown file, without its code."""
    source = re.sub(r"^```.*?^```", "", source, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=[*|#]|\d+\. )", source):
        yield " ".join(block.split())


_KINDS: Final = (
    ("Templates", "templates/**/*.html", texts_of_template),
    ("Services, pages, commands", "[bcp]*/**/*.py", texts_of_python),
    ("Scripts", "static/js/*.js", texts_of_script),
    ("README", "README.md", texts_of_document),
    ("Documentation", "docs/**/*.md", texts_of_document),
)
_OF_KUEUE: Final = ("clusters/kueue/", "clusters/devcluster/")


def texts(root: Path = ROOT) -> Iterator[tuple[str, str, list[str]]]:
    """Kind, file, and its texts, each once and in order; files without texts are left out."""
    for kind, pattern, read in _KINDS:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if "/migrations/" in name or name.startswith(_OF_KUEUE):
                continue
            found = [text for text in _once(read(path.read_text())) if _WORD.search(_bare(text))]
            if found:
                yield kind, name, found


def _bare(text: str) -> str:
    return re.sub(r"{[^}]*}", "", text)


def _once(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text.strip() for text in found))


def texts_at(revision: str) -> dict[str, list[str]]:
    """File → its texts, as they were at a revision of git."""
    kept = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(kept.stdout)) as archive:
            archive.extractall(folder, filter="data")
        return {name: found for _, name, found in texts(Path(folder))}


def reworded(before: dict[str, list[str]], after: dict[str, list[str]]) -> Iterator[str]:
    """Lines of Markdown: for each file that differs, its old texts beside the new ones."""
    for name in sorted({*before, *after}):
        old, new = before.get(name, []), after.get(name, [])
        if old == new:
            continue
        yield from (f"### {name}", "")
        match = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for step, a, b, c, d in match.get_opcodes():
            if step != "equal":
                for was, now in zip_longest(old[a:b], new[c:d]):
                    yield from (
                        f"- {when}: {' '.join(text.split())}"
                        for when, text in (("before", was), ("after", now))
                        if text is not None
                    )
                yield ""


def main() -> None:
    """Write the list, or what differs from another revision's, and say how much it is."""
    asked = argparse.ArgumentParser(prog="python -m tests.texts", description=__doc__)
    asked.add_argument("target", nargs="?", type=Path, help="where to write it")
    asked.add_argument("--since", metavar="REVISION", help="write what was reworded since then")
    given = asked.parse_args()
    if given.since:
        _write_reworded(given.since, given.target or ARTIFACT.with_name("texts-since.md"))
    else:
        _write_all(given.target or ARTIFACT)


def _write_reworded(revision: str, target: Path) -> None:
    lines = list(reworded(texts_at(revision), {name: found for _, name, found in texts()}))
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join([f"# Texts reworded since {revision}", "", *lines]))
    counts = (sum(line.startswith(f"- {when}:") for line in lines) for when in ("before", "after"))
    print("{} texts before, {} after, in {}".format(*counts, target))


def _write_all(target: Path) -> None:
    counts: dict[str, int] = {}
    lines = ["# Every text that a person reads", ""]
    kind_before = ""
    for kind, name, found in texts():
        if kind != kind_before:
            lines += [f"## {kind}", ""]
            kind_before = kind
        counts[kind] = counts.get(kind, 0) + len(found)
        lines += [f"### {name}", "", *(f"* {' '.join(text.split())}" for text in found), ""]
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines))
    told = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    print(f"{sum(counts.values())} texts ({told}) in {target}")


if __name__ == "__main__":
    main()
