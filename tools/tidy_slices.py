"""Where the bytes of a layout are cut by numbers: in `formats`, which gives them names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.tidy_rules import SLICE_MIN, SLICED_ROOM, STILL_SLICED
from tools.tidy_source import Source

_TEXTS = {"decode", "hex", "hexdigest", "str"}  # calls that give text


def check_slices(source: Source) -> None:
    """No slice with a number of its own outside `formats`, but for those listed, which only grow
    fewer.
    """
    if source.room is None or source.room == SLICED_ROOM:
        return
    found = sorted(numeric_slices(source.tree))
    allowed = STILL_SLICED.get(source.path, 0)
    for line in found[allowed:]:
        source.report(line, "slice", "cut by a number: name the field, in formats if it is bytes")
    if len(found) < allowed:
        source.report(1, "slice", f"{len(found)} cuts by numbers: STILL_SLICED has {allowed}")


def numeric_slices(tree: ast.AST) -> Iterator[int]:
    """Lines. What is cut to be shown to people is no layout."""
    for node in _without_shown(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper)
            if any(_has_number(bound) for bound in bounds) and not _is_text(node.value):
                yield node.lineno


def _without_shown(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of f-strings."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack += [
            child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.JoinedStr)
        ]


def _has_number(bound: ast.expr | None) -> bool:
    """`8`, `start + 8`, `8 * i`: a size or an offset; less than SLICE_MIN counts things."""
    if isinstance(bound, ast.BinOp):
        return _has_number(bound.left) or _has_number(bound.right)
    if isinstance(bound, ast.UnaryOp):
        return _has_number(bound.operand)
    if not isinstance(bound, ast.Constant) or not isinstance(bound.value, int):
        return False
    return bound.value >= SLICE_MIN


def _is_text(value: ast.expr) -> bool:
    if isinstance(value, ast.JoinedStr):
        return True
    if isinstance(value, ast.Call):
        called = value.func
        name = called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)
        return name in _TEXTS
    return False
