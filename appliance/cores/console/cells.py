"""Cells and tables, how figures are said in them, and the two ways in which a table is shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.cores.console.about import About

NOTHING = "–"  # for what is not known from here
PLAIN, GOOD, WARN, BAD, FAINT = "plain", "good", "warn", "bad", "faint"


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: str = PLAIN


@dataclass(frozen=True, slots=True)
class Table:
    """`numbers` are the positions of columns that are aligned to the right."""

    title: str
    columns: tuple[str, ...]
    numbers: tuple[int, ...]
    rows: tuple[tuple[Cell, ...], ...]
    subjects: tuple[About, ...] = ()  # of the rows, one for each; empty where none has one


# --- how figures are said


def count(number: int | float) -> str:
    """1234567 -> "1,234,567"; rates are rounded."""
    return f"{round(number):,}"


def latency(microseconds: int) -> str:
    """In milliseconds, with three significant digits."""
    if microseconds == 0:
        return NOTHING
    milliseconds = microseconds / 1000
    digits = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{digits}f} ms"


def size(number: int) -> str:
    return f"{number / (1 << 20):.0f} MiB"


def duration(milliseconds: int) -> str:
    """Two units at most: "9 s", "4 min 10 s", "3 h 5 min"."""
    seconds = max(0, milliseconds) // 1000
    for unit, name, low, low_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit:
            rest = seconds % unit // low
            return f"{seconds // unit} {name}" + (f" {rest} {low_name}" if rest else "")
    return f"{seconds} s"


# --- the two displays


def plain(table: Table) -> dict[str, Any]:
    """Plain values for JSON: a cell is [text, tone]."""
    return {
        "title": table.title,
        "columns": list(table.columns),
        "numbers": list(table.numbers),
        "rows": [[[cell.text, cell.tone] for cell in row] for row in table.rows],
    }


def padded(table: Table) -> list[tuple[Cell, ...]]:
    """The lines of a table, its head first: each cell as wide as its column."""
    head = tuple(Cell(name, FAINT) for name in table.columns)
    grid = [head, *table.rows]
    widths = [max(len(row[i].text) for row in grid) for i in range(len(table.columns))]

    def line(row: Sequence[Cell]) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                cell.text.rjust(width) if i in table.numbers else cell.text.ljust(width), cell.tone
            )
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )

    return [line(row) for row in grid]


def lines(table: Table, paint: Callable[[str, str], str] = lambda text, _tone: text) -> list[str]:
    """Lines for a terminal. `paint(text, tone)` may colour a cell; it must not change its width."""
    if not table.rows:
        return [paint("No alarms.", GOOD)] if table.title == "Alarms" else []
    return [
        "  ".join(paint(cell.text, cell.tone) for cell in row).rstrip() for row in padded(table)
    ]
