"""What tidy says of names: words that say nothing, words that the field does not use, names that
nothing uses."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from tools.tidy_rules import (
    BANNED_NAMES,
    KEPT_IDENTIFIERS,
    STILL_ARGUMENTS,
    STILL_IDENTIFIERS,
    STILL_SAID,
)
from tools.tidy_source import Source, name_of

_PLAIN_DECORATORS = {"property", "cached_property", "staticmethod", "classmethod", "contextmanager"}


def check_names(source: Source) -> None:
    for part in Path(source.path).with_suffix("").parts:
        for word in re.split(r"[_\W]+", part.lower()):
            if word in BANNED_NAMES or (source.is_python and word == "and"):
                source.report(1, "name", f"{part}: a name with {word!r} says nothing")
    if not source.is_python:
        return
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in source.nodes:
        if isinstance(node, definitions):
            words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", node.name)
            for word in BANNED_NAMES & {word.lower() for word in words}:
                source.report(node.lineno, "name", f"{node.name}: {word!r} says nothing")


def check_glossary(sources: list[Source], glossary: str) -> None:
    """No more names with words of the last column of docs/glossary.md than STILL_SAID counts."""
    better: dict[str, str] = {}
    for row in glossary.splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) == 3 and cells[2] not in ("", "not", "---"):
            for word in cells[2].split(", "):
                better[word] = f"{better[word]} or {cells[0]}" if word in better else cells[0]
    names = [(word, source, line) for source in sources for word, line in named_by(source, better)]
    for word, term in better.items():
        found = [(source, line) for said, source, line in names if said == word]
        allowed = STILL_SAID.get(word, 0)
        if len(found) > allowed:
            message = f"{word!r} in {len(found)} names, at most {allowed}: the glossary says {term}"
            found[-1][0].report(found[-1][1], "glossary", message)
        elif len(found) < allowed:
            message = f"{word!r} in {len(found)} names: lower its count in STILL_SAID"
            (found[-1][0] if found else sources[0]).report(1, "glossary", message)
    said: set[str] = set()
    for source in sources:
        if source.room is not None:  # tests call what they will
            for word, name, line in arguments_by(source, better):
                said.add(word)
                if word not in STILL_ARGUMENTS:
                    message = f"argument {name}: the glossary says {better[word]}"
                    source.report(line, "glossary", message)
    for word in better.keys() & set(STILL_ARGUMENTS) - said:
        sources[0].report(1, "glossary", f"{word!r} names no argument: out of STILL_ARGUMENTS")


def check_identifiers(sources: list[Source]) -> None:
    """No more identifiers with a word of STILL_IDENTIFIERS than it counts there."""
    found: dict[str, list[tuple[Source, int, str]]] = {word: [] for word in STILL_IDENTIFIERS}
    for source in sources:
        if source.room is not None or source.path.startswith("tools/"):
            for name, line in identifiers_of(source).items():
                for word in words_in(name, STILL_IDENTIFIERS):
                    if not is_kept(name, source.path):
                        found[word].append((source, line, name))
    for word, allowed in STILL_IDENTIFIERS.items():
        count = len(found[word])
        if count > allowed:
            source, line, name = found[word][-1]
            message = (
                f"{name}: {word!r} in {count} identifiers, at most {allowed}: see the glossary"
            )
            source.report(line, "identifier", message)
        elif count < allowed:
            message = f"{word!r} in {count} identifiers: lower its count in STILL_IDENTIFIERS"
            sources[0].report(1, "identifier", message)


def is_kept(name: str, path: str) -> bool:
    return any(name == kept and fnmatchcase(path, files) for kept, files, _ in KEPT_IDENTIFIERS)


def identifiers_of(source: Source) -> dict[str, int]:
    """Whatever a module names or is named by, and the line that does so first."""
    names = {Path(source.path).stem: 1}
    for node in source.nodes:
        for field in ("name", "id", "attr", "arg", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                names.setdefault(name, getattr(node, "lineno", 1))
    return names


def named_by(source: Source, words: Collection[str]) -> Iterator[tuple[str, int]]:
    """Which of `words` a module, its classes and functions are named by, and in which line.

    A plural counts as its singular; names of tests are sentences and may say anything.
    """
    names = [(Path(source.path).stem, 1)]
    for node in source.nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append((node.name, node.lineno))
    for name, line in names:
        if not name.startswith("test_"):
            for word in words_in(name, words):
                yield word, line


def arguments_by(source: Source, words: Collection[str]) -> Iterator[tuple[str, str, int]]:
    """Which of `words` arguments are named by: the word, the name and the line."""
    for node in source.nodes:
        if isinstance(node, ast.arg):
            for word in words_in(node.arg, words):
                yield word, node.arg, node.lineno


def words_in(name: str, words: Collection[str]) -> Iterator[str]:
    """Those of `words` that are parts of a name, in the singular or the plural."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
    for word in words:
        for part in parts:
            if part in (word, word + "s"):
                yield word


def check_used(sources: list[Source]) -> None:
    """What a module of the program defines is named a second time, outside of tests and pages."""
    read = [source for source in sources if not source.path.startswith(("tests/", "docs/"))]
    counts = Counter(word for source in read for word in re.findall(r"\w+", source.text))
    python = [source for source in read if source.is_python]
    own = {n.name for source in python for n in source.nodes if isinstance(n, ast.ClassDef)}
    for source in python:
        if source.room is not None:
            for name, line in defined(source.tree.body, own):
                if counts[name] == 1:
                    source.report(line, "unused", f"{name}: nothing uses it, but for tests at most")


def defined(body: Iterable[ast.stmt], own: Collection[str]) -> Iterator[tuple[str, int]]:
    """Names and lines of what stands in a module or a class, without what a library calls: methods
    of its classes, and what is handed to its decorators. Names taken out of a row are a numbering.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            plain = all(name_of(each) in _PLAIN_DECORATORS for each in node.decorator_list)
            if plain and not node.name.startswith("__"):
                yield node.name, node.lineno
        elif isinstance(node, ast.ClassDef):
            yield node.name, node.lineno
            if all(name_of(base) in own for base in node.bases):
                yield from defined(node.body, own)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and not target.id.startswith("__"):
                    yield target.id, node.lineno
