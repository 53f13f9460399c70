"""How much the functions of a room assert: what tidy says of it, and a table for people.

`python tools/tidy_asserts.py` prints, for each room of ASSERTS_MIN, functions, assertions and how
many of these there are in a function, module by module.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools.tidy_rules import ASSERTS_MIN, ASSERTS_STEP
from tools.tidy_source import Source, sources_read


def counted(source: Source) -> tuple[int, int]:
    """(functions, assertions) of a module. A function of a Protocol has nothing to assert."""
    functions = [
        node
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_stub(node)
    ]
    return len(functions), sum(isinstance(node, ast.Assert) for node in source.nodes)


def is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether nothing but `...` or a docstring is its body."""
    return all(
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        for statement in node.body
    )


def check_asserts(sources: Iterable[Source]) -> None:
    """No room of ASSERTS_MIN has fewer assertions than its floor, on average of its functions; a
    floor that it has left a step below is raised.
    """
    known = list(sources)
    for room, floor in ASSERTS_MIN.items():
        own = [source for source in known if source.is_python and source.room == room]
        if not own:
            continue  # a part of the tree
        functions, asserts = (sum(column) for column in zip(*map(counted, own), strict=True))
        said = f"{asserts} assertions in {functions} functions of {room}"
        if asserts < floor * functions:
            own[0].report(1, "asserts", f"{said}, at least {floor} each")
        elif asserts >= (floor + ASSERTS_STEP) * functions:
            own[0].report(1, "asserts", f"{said}: raise the floor of {floor} in ASSERTS_MIN")


def main() -> None:
    sources = sources_read(Path(__file__).resolve().parent.parent)
    for room in ASSERTS_MIN:
        own = [source for source in sources if source.is_python and source.room == room]
        rows = [(source.path, *counted(source)) for source in own]
        rows.append((room, sum(row[1] for row in rows), sum(row[2] for row in rows)))
        for path, functions, asserts in rows:
            print(f"{path:<44} {functions:>5} {asserts:>5} {asserts / max(1, functions):>6.2f}")


if __name__ == "__main__":
    main()
