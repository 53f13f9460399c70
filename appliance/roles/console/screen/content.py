"""Lines of cells as the library's content. Everything that the screen shows is made here."""

from collections.abc import Iterable

from textual.content import Content, Span

from appliance.base.printable import one_line
from appliance.cores.console.cells import BAD, FAINT, GOOD, PLAIN, WARN
from appliance.cores.console.small_screen import Line

# Of the sixteen colours that each terminal has.
STYLES = {
    GOOD: "ansi_green",
    WARN: "ansi_yellow",
    BAD: "bold ansi_red",
    FAINT: "ansi_bright_black",
    PLAIN: "",
}
BETWEEN = "  "  # cells


def shown(lines: Iterable[Line], left: int = 0) -> Content:
    """`lines` from the column `left` on. Text is text: markup in it is not read as such, and what
    could command a terminal, or begin a line of its own, is replaced."""
    parts: list[str] = []
    spans: list[Span] = []
    at = 0
    for line in lines:
        column = 0
        for number, cell in enumerate(line):
            text = (BETWEEN if number else "") + one_line(cell.text)
            cut = text[max(0, left - column) :]
            column += len(text)
            if STYLES[cell.tone] and cut:
                spans.append(Span(at, at + len(cut), STYLES[cell.tone]))
            parts.append(cut)
            at += len(cut)
        parts.append("\n")
        at += 1
    return Content("".join(parts[:-1]), spans)
