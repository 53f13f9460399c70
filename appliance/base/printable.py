"""Texts of strangers, made harmless where people or programs of people read them.

A terminal obeys control characters and turns text around for bidirectional marks; a spreadsheet
computes a cell that begins with a sign. What is stored stays as it is: these are for showing only.
"""

import json
import re
from typing import Any

REPLACEMENT = "\ufffd"
# Control characters but newline and tab; separators of lines; marks that turn what follows around.
UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
# what makes a spreadsheet take a cell for something to compute
FORMULA = "^[=+\\-@\t\r]"
_UNSAFE, _FORMULA = re.compile(UNSAFE), re.compile(FORMULA)


def safe(text: str) -> str:
    """`text` with what could command a terminal shown as a replacement character."""
    return _UNSAFE.sub(REPLACEMENT, text)


def one_line(text: str) -> str:
    """As `safe`, for names and reasons that must not begin a line of their own."""
    return safe(text.replace("\n", REPLACEMENT).replace("\t", " "))


def json_line(value: Any, indent: int | None = None) -> str:
    """`value` as JSON in printable ASCII: a reader gets every character, a terminal none."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def counted(count: int, noun: str, nouns: str = "") -> str:
    """ "1 room", "1,200 rooms"; `nouns` where the plural is not `noun` and an s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def cell(text: str) -> str:
    """`text` for a cell of a CSV file: never a formula."""
    shown = safe(text)
    return "'" + shown if _FORMULA.match(text) else shown
