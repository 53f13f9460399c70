"""What is no JSON text that anybody could bear is a ValueError, whatever is wrong with it."""

import json
from typing import Any

import pytest

from appliance.base.json_text import parse_json
from appliance.base.limits import JSON_DEPTH_MAX


def nested(depth: int, begin: str = "[", end: str = "]", core: str = "") -> str:
    return begin * depth + core + end * depth


MOST = [
    nested(JSON_DEPTH_MAX),
    nested(JSON_DEPTH_MAX, core="1"),
    nested(JSON_DEPTH_MAX, core="1,2"),
    nested(JSON_DEPTH_MAX - 1, '{"a":', "}", core='{"b":null}'),
    nested(JSON_DEPTH_MAX // 2, '[{"a":', "}]", core="0"),
    "[1," + nested(JSON_DEPTH_MAX - 1) + "]",
]


@pytest.mark.parametrize("text", MOST, ids=lambda text: text[:20])
def test_values_may_be_nested_to_the_limit_and_no_deeper(text: str) -> None:
    assert parse_json(text) == json.loads(text)
    for begin, end in (("[", "]"), ("[0,", "]"), ('{"a":', "}"), ('{"b":1,"a":', "}")):
        with pytest.raises(ValueError, match="nested more than"):
            parse_json(begin + text + end)


@pytest.mark.parametrize("depth", [300, 900, 980, 1_000, 5_000, 100_000])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}"), ("[[],", "]")])
def test_deep_nesting_is_a_value_error_however_deep(
    depth: int, closed: bool, begin: str, end: str
) -> None:
    text = begin * depth + ("0" + end * depth if closed else "")
    for raw in (text, text.encode(), bytearray(text.encode())):
        with pytest.raises(ValueError):
            parse_json(raw)


def test_whether_a_text_is_too_deep_does_not_depend_on_who_asks() -> None:
    def asked(depth: int) -> Any:
        return parse_json(MOST[0]) if depth == 0 else asked(depth - 1)

    assert asked(300) == parse_json(MOST[0])


@pytest.mark.parametrize(
    "raw",
    ["[" * 5_000, "{}" * 5_000, "\\\\" + "[" * 400],
)
def test_brackets_in_a_text_and_values_side_by_side_are_no_depth(raw: str) -> None:
    assert parse_json(json.dumps(raw)) == raw
    rows = [[[]], {}, {"a": [1]}] * 1_000
    assert parse_json(json.dumps({"rows": rows, "text": raw})) == {"rows": rows, "text": raw}


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff", b'"\xc3"', b'"\xed\xa0\x80"', b'["\xf8"]', "{}".encode("utf-16"), b"[1", b"nul",
     b"9" * 5_000, b"-" + b"9" * 5_000, b'{"a":' + b"1" * 4_301 + b"}", b"\x00", b"1 2",
     b"\xef\xbb\xbf1"],
    ids=lambda raw: repr(raw[:12]),
)  # fmt: skip
def test_what_is_no_json_or_no_utf_8_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(raw)


def test_the_hooks_of_the_library_are_used() -> None:
    assert parse_json(b'{"a":1,"b":1.5}', parse_int=str, parse_float=len) == {"a": "1", "b": 3}
