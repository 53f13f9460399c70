"""Where a size is rounded up to sectors by hand: `whole_sectors` says it once, for all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.tidy_rules import SECTOR_NAMES, SECTOR_SIZE, SECTORS_HOME
from tools.tidy_source import Source, name_of


def check_sectors(source: Source) -> None:
    """No sum of the program that is `whole_sectors`, outside the module that defines it."""
    if source.room is None or source.path == SECTORS_HOME:
        return
    for line in rounded_up(source.nodes):
        source.report(line, "sectors", "rounded up by hand: whole_sectors of formats/geometry")


def rounded_up(nodes: list[ast.AST]) -> Iterator[int]:
    """Lines of `-(-n // S) * S`, `(n + S - 1) // S * S`, `(n + S - 1) & ~(S - 1)` and `n + -n % S`,
    where S is a sector, by name or by number.
    """
    for node in nodes:
        if isinstance(node, ast.BinOp) and _ROUNDED.get(type(node.op), _never)(node):
            yield node.lineno


def _times(node: ast.BinOp) -> bool:
    """A number of sectors, counted up, times a sector."""
    sides = (node.left, node.right), (node.right, node.left)
    return any(_is_sector(sector) and _is_counted_up(count) for count, sector in sides)


def _is_counted_up(node: ast.expr) -> bool:
    """`-(-n // S)` or `(n + S - 1) // S`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return isinstance(_divided(node.operand), ast.UnaryOp)
    divided = _divided(node)
    return divided is not None and _adds_a_sector(divided)


def _divided(node: ast.expr) -> ast.expr | None:
    """What is divided by a sector here."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) and _is_sector(node.right):
        return node.left
    return None


def _adds_a_sector(node: ast.expr) -> bool:
    """`n + S - 1`, in any order, or `n + 4095`."""
    terms, signs = [node], (ast.Add, ast.Sub)
    while deeper := [t for t in terms if isinstance(t, ast.BinOp) and isinstance(t.op, signs)]:
        terms = [t for t in terms if t not in deeper]
        terms += [side for t in deeper for side in (t.left, t.right)]
    last = SECTOR_SIZE - 1
    return len(terms) > 1 and any(_is_sector(t) or _is_number(t, last) for t in terms)


def _masked(node: ast.BinOp) -> bool:
    return _adds_a_sector(node.left) and isinstance(node.right, ast.UnaryOp)


def _added(node: ast.BinOp) -> bool:
    """What is missing to a whole sector, added to what it is missing of."""
    for whole, rest in ((node.left, node.right), (node.right, node.left)):
        if isinstance(rest, ast.BinOp) and isinstance(rest.op, ast.Mod) and _is_sector(rest.right):
            if ast.dump(rest.left) == ast.dump(ast.UnaryOp(ast.USub(), whole)):
                return True
    return False


def _never(node: ast.BinOp) -> bool:
    return False


_ROUNDED = {ast.Mult: _times, ast.BitAnd: _masked, ast.Add: _added}


def _is_sector(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else name_of(node)
    return name in SECTOR_NAMES or _is_number(node, SECTOR_SIZE)


def _is_number(node: ast.expr, number: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == number
