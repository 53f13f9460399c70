"""Texts of strangers where they are shown: nothing in them is obeyed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.printable import cell, counted, json_line, one_line, safe

HOSTILE = [
    "\x9b31m",
    "\x1b]0;title\x07",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\x7f",
    "a\u2028b",
    "\r",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_could_command_a_terminal_is_replaced(text: str) -> None:
    assert "\ufffd" in safe(text)
    assert "\ufffd" in one_line(text)
    assert "\ufffd" in cell(text)


def test_words_of_any_language_stay_with_their_lines() -> None:
    text = "строка\n\tשלום 👩‍👩‍👧"
    assert safe(text) == text
    assert "\n" not in one_line(text)


@given(st.text())
def test_json_is_printable_ascii_and_says_the_same(text: str) -> None:
    line = json_line({"body": text})
    assert line.isascii() and line.isprintable()
    assert json.loads(line) == {"body": text}


@pytest.mark.parametrize("text", ["=1+2", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert cell(text).startswith("'")
    assert cell("a" + text)[0] == "a"


def test_one_of_a_thing_is_not_many() -> None:
    assert [counted(n, "room") for n in (0, 1, 2, 1200)] == [
        "0 rooms",
        "1 room",
        "2 rooms",
        "1,200 rooms",
    ]
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(2, "entry", "entries") == "2 entries"
