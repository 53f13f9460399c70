"""A posted value as a document: strict JSON, bounded."""

import json
from typing import Any, TypeGuard

from appliance.base.json_text import parse_json
from appliance.base.limits import FARM_DOCUMENT_DEPTH_MAX, FARM_DOCUMENT_SIZE_MAX, FARM_ID_MAX

DATE_MAX = 7_258_118_400_000  # ms since 1970, the year 2200: later than any clock of today says


def parse_document(value: bytes) -> dict[str, Any] | None:
    """The object in a value; None: it is none, and this layer skips it.

    Refused: other than UTF-8, more than FARM_DOCUMENT_SIZE_MAX bytes, keys that stand twice, floats
    and other words than integers for numbers, deep nesting, halves of characters: nobody could post
    what is told of them on.
    """
    if len(value) > FARM_DOCUMENT_SIZE_MAX:
        return None
    depth = 0
    for byte in value:  # brackets in texts count too: no document comes near
        depth += byte in b"[{"
    if depth > FARM_DOCUMENT_DEPTH_MAX:
        return None
    try:
        text = value.decode()
        found = parse_json(
            text,
            object_pairs_hook=_once,
            parse_float=_refuse,
            parse_constant=_refuse,
            parse_int=_integer,
        )
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no integer")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError("an integer of too many digits")
    return int(text)


def poster_of(document: dict[str, Any]) -> int | None:
    """The Raft id a document claims to come from, if it has a valid one."""
    found = document.get("id")
    valid = isinstance(found, int) and not isinstance(found, bool) and 0 < found <= FARM_ID_MAX
    return found if valid else None


def date_of(document: dict[str, Any]) -> int | None:
    """Its time in milliseconds since 1970, if it has a valid one."""
    found = document.get("date")
    return found if is_date(found) else None


def is_date(value: Any) -> TypeGuard[int]:
    """Whether a clock could say so; one that has lost its time begins in 1970."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= DATE_MAX
