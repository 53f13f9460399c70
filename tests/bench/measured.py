"""docs/measured.md: what the last `make bench` found of the executable and of the volume."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measured.md"
PARTS = {"executable", "volume"}  # of `make bench`: the page is made of both
_HEAD = """# Measured

Written by `make bench`, which ends with 1 when a bar is missed. How it is measured:
[performance.md](performance.md).

"""


def page(rows: Iterable[dict[str, Any]], machine: dict[str, Any], commit: str, when: str) -> str:
    """The text: a row for each figure that has a bar."""
    told = "".join(
        f"| {row['what']} | {row['value']} {row['unit']} | {row['bar']} | "
        f"{'held' if row['held'] else '**missed**'} |\n"
        for row in rows
        if row["kind"] in ("executable", "volume")
    )
    return (
        f"{_HEAD}{when}, commit {commit}: {machine['cores']} cores of {machine['model']}, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, Python {machine['python']}.\n\n"
        f"| what | measured | bar | |\n|---|---|---|---|\n{told}"
    )
