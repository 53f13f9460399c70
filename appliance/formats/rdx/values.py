"""Single values: their bytes, and what they stand for.

F float    I int of 64 bits    R id    S text    T word
"""

from typing import Any

from appliance.base.errors import PacketRefused, TextRefused
from appliance.formats.toytlv.ids import Id, unzip_id, zip_id
from appliance.formats.toytlv.integers import (
    unzip_float,
    unzip_signed,
    zip_float,
    zip_signed,
)

INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 63) - 1
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def encode_value(letter: str, native: Any) -> bytes:
    """The bytes of a native value: float, int, Id, str, str. It is of the right type and range."""
    if letter == "F":
        return zip_float(float(native))
    if letter == "I":
        assert INTEGER_MIN <= native <= INTEGER_MAX
        return zip_signed(native)
    if letter == "R":
        return zip_id(native)
    assert letter in "ST"
    data: bytes = native.encode("utf-8", "surrogatepass")
    return data


def decode_value(letter: str, value: bytes) -> float | int | Id | str:
    """The native value; bytes that are no UTF-8 become replacement characters."""
    if letter == "F":
        return unzip_float(value)
    if letter == "I":
        return unzip_signed(value)
    if letter == "R":
        return unzip_id(value)
    return value.decode("utf-8", "replace")


def value_text(letter: str, value: bytes) -> str:
    """A single value in the notation."""
    native = decode_value(letter, value)
    if letter == "F":
        return f"{native:f}"
    if letter == "S":
        assert isinstance(native, str)
        return quote(native)
    if letter == "T":
        return str(native) or "null"
    return str(native)


def check_value(letter: str, value: bytes) -> None:
    """PacketRefused unless these bytes may follow a stamp in a value of this type."""
    if letter in "FI" and len(value) > 8:
        raise PacketRefused("bad_value", f"{letter} of {len(value)} bytes, at most 8")
    if letter == "R":
        unzip_id(value)


# --- quoted text ----------------------------------------------------------------------------------


def quote(text: str) -> str:
    parts = [_ESCAPES.get(char) or (f"\\u{ord(char):04x}" if char < " " else char) for char in text]
    return '"' + "".join(parts) + '"'


def unquote(text: str) -> str:
    """What stands between the quotes of `text`, which has both."""
    assert len(text) >= 2 and text[0] == text[-1] == '"'
    out, at, end = [], 1, len(text) - 1
    while at < end:
        char = text[at]
        at += 1
        if char != "\\":
            out.append(char)
            continue
        char = text[at] if at < end else ""
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            at += 4
            if (
                len(digits) < 4
                or at > end
                or not all(c in "0123456789abcdefABCDEF" for c in digits)
            ):
                raise TextRefused("\\u is followed by four hexadecimal digits")
            out.append(chr(int(digits, 16)))
        elif char in _ESCAPED and char:
            out.append(_ESCAPED[char])
        else:
            raise TextRefused(f"\\{char} is no escape")
    joined = "".join(out)  # pairs of \u that are one character are joined here
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
