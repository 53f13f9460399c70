"""The files of the tree as tidy reads them, and what it says of one. Standard library only."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from tools.tidy_rules import EXCEPTIONS, SKIPPED_FOLDERS, TEXT_SUFFIXES

PROGRAM = "appliance"


@dataclass(frozen=True, order=True)
class Violation:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.rule} {self.message}"


@dataclass(frozen=True)
class Import:
    """`module` is absolute; `name` is what `from module import name` takes, or empty."""

    line: int
    module: str
    name: str
    inside_function: bool


@dataclass(eq=False)
class Source:
    """One file of the tree; Python is parsed once."""

    path: str
    text: str
    violations: list[Violation] = field(default_factory=list)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree: walking it anew for each rule took most of tidy's time."""
        return list(ast.walk(self.tree))

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @cached_property
    def module(self) -> str:
        parts = self.path.removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    @cached_property
    def room(self) -> str | None:
        return room_of(self.module)

    @cached_property
    def imports(self) -> list[Import]:
        return list(imports_of(self))

    def report(self, line: int, rule: str, message: str) -> None:
        if not is_excepted(rule, self.path):
            self.violations.append(Violation(self.path, line, rule, message))


def room_of(module: str) -> str | None:
    """`appliance.cores.vsr.journal` -> `cores/vsr`; None for what is not ours."""
    parts = module.split(".")
    if parts[0] != PROGRAM:
        return None
    if len(parts) == 1:
        return ""
    roomy = parts[1] in {"cores", "drivers", "roles", "commands"}
    return "/".join(parts[1:3]) if roomy else parts[1]


def is_excepted(rule: str, path: str) -> bool:
    return any(
        fnmatchcase(rule, pattern) and fnmatchcase(path, where) for pattern, where, _ in EXCEPTIONS
    )


def sources_read(top: Path) -> list[Source]:
    sources = []
    for path in paths_listed(top):
        if path.suffix not in TEXT_SUFFIXES or path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue  # data without a suffix
        sources.append(Source(path.relative_to(top).as_posix(), text))
    return sources


def paths_listed(top: Path) -> list[Path]:
    """What git knows or would take; without git, everything outside of skipped folders."""
    if (top / ".git").exists():
        command = ["git", "-C", str(top), "ls-files", "-z", "-co", "--exclude-standard"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return sorted({top / name for name in done.stdout.split("\0") if name})
    found = (path for path in top.rglob("*") if path.is_file())
    return sorted(p for p in found if not SKIPPED_FOLDERS & set(p.relative_to(top).parts[:-1]))


def imports_of(source: Source) -> Iterator[Import]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    holders = (ast.stmt, ast.ExceptHandler, ast.match_case)  # no expression has an import in it
    stack: list[tuple[ast.AST, bool]] = [(source.tree, False)]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, "", inside)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(source, node)
            for alias in node.names:
                yield Import(node.lineno, module, alias.name, inside)
        inside = inside or isinstance(node, functions)
        children = ast.iter_child_nodes(node)
        stack.extend((child, inside) for child in children if isinstance(child, holders))


def absolute(source: Source, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = source.module.split(".")
    drop = node.level - (1 if source.is_package else 0)
    base = parts[: len(parts) - drop] if drop else parts
    return ".".join([*base, *([node.module] if node.module else [])])


def target_of(imported: Import, modules: set[str]) -> str:
    """The module an import reaches: `from package import module` reaches the module."""
    deeper = f"{imported.module}.{imported.name}"
    return deeper if imported.name and deeper in modules else imported.module


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f".{node.attr}" if node.value.id == "self" else ""
    return ""
