"""The notation in which people write values.

    12  -3          I          1e5  1.5e0    F        b0b-1  1f8-a3-5   R
    "text"          S          word          T        null  true        T
    {1,"a",b}       set E      {k:v,...}     map M    [1,2]             L, refused
    (3)             counter N  (+3)  (-3)    counter Z
    +3              N counts 3 more          ++3  --3 Z counts up or down

A time in round brackets after a single value is accepted and has no effect. Brackets nest at most
`TEXT_DEPTH_MAX` deep, and only single values may stand in a set or a map.
"""

import re
from typing import NamedTuple

from appliance.base.errors import TextRefused
from appliance.base.limits import TEXT_DEPTH_MAX
from appliance.formats.rdx.stamps import bare, count_record, element
from appliance.formats.rdx.values import INTEGER_MAX, INTEGER_MIN, encode_value, unquote
from appliance.formats.toytlv.ids import parse_id
from appliance.formats.toytlv.integers import zip_signed

_TIME = r"(?:\([0-9a-fA-F]+,[0-9]+\))?"
_LEXEMES = re.compile(
    r"\s*(?:"
    r'(?P<S>"(?:[^"\\\r\n]|\\.)*")'
    rf"|(?P<F>-?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+(?![\w.-])){_TIME}"
    rf"|(?P<R>[0-9a-fA-F]+(?:-[0-9a-fA-F]+)+(?![\w-])){_TIME}"
    rf"|(?P<I>-?[0-9]+(?![\w.-])){_TIME}"
    r"|(?P<Z>\([+-][0-9]{1,20}\))|(?P<N>\([0-9]{1,20}\))"
    r"|(?P<up>(?:\+\+|--)[0-9]{1,20})|(?P<more>\+[0-9]{1,20})"
    rf"|(?P<T>[_a-zA-Z][_0-9a-zA-Z]*(?![\w-])){_TIME}"
    r"|(?P<mark>[{}\[\]:,])"
    r")\s*"
)


class Value(NamedTuple):
    """A parsed value. `letter` N+ and Z+ are increments; `state` then holds none, `amount` does."""

    letter: str
    state: bytes
    amount: int = 0


class _Single(NamedTuple):
    letter: str
    value: bytes


def parse_value(text: str) -> Value:
    """The value that `text` is, all of it; TextRefused otherwise."""
    reader = _Reader(text)
    value = reader.value(0)
    if reader.at < len(text):
        raise TextRefused(f"nothing may follow a value: {text[reader.at :][:40]!r}")
    return value


class _Reader:
    """Takes lexemes off the front."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def _next(self) -> tuple[str, str]:
        match = _LEXEMES.match(self.text, self.at)
        if match is None or match.lastgroup is None:
            raise TextRefused(f"no value begins here: {self.text[self.at :][:40]!r}")
        self.at = match.end()
        return match.lastgroup, match.group(match.lastgroup)

    def value(self, depth: int) -> Value:
        kind, word = self._next()
        if kind == "mark":
            if depth >= TEXT_DEPTH_MAX:
                raise TextRefused(f"brackets nest more than {TEXT_DEPTH_MAX} deep")
            if word == "{":
                return self._braces(depth + 1)
            raise TextRefused(
                "an array has no merge and cannot be made" if word == "[" else f"{word} is no value"
            )
        if kind in ("N", "Z"):
            return _counter(kind, int(word[1:-1]))
        if kind == "more":
            return Value("N+", b"", _bounded(int(word), INTEGER_MAX))
        if kind == "up":
            return Value("Z+", b"", _bounded(int(word[2:]), INTEGER_MAX) * (-1, 1)[word[0] == "+"])
        letter, value = _single(kind, word)
        return Value(letter, bare(0, 0, value))

    def _braces(self, depth: int) -> Value:
        """A set or a map, after its opening brace."""
        rows: list[tuple[_Single, ...]] = []
        if self._mark("}"):
            return Value("E", b"")
        while True:
            row = [self._element(depth)]
            if self._mark(":"):
                row.append(self._element(depth))
            rows.append(tuple(row))
            if self._mark("}"):
                break
            if not self._mark(","):
                raise TextRefused(f"a comma or a brace is missing: {self.text[self.at :][:40]!r}")
        if len({len(row) for row in rows}) > 1:
            raise TextRefused("a set has no colons, and a map has one in each pair")
        return _map(rows) if len(rows[0]) == 2 else _set([row[0] for row in rows])

    def _element(self, depth: int) -> _Single:
        found = self.value(depth)
        if len(found.letter) != 1 or found.letter not in "FIRST":
            raise TextRefused("only single values may stand in a set or a map")
        return _Single(found.letter, found.state[1:])  # the stamp is empty: one byte

    def _mark(self, wanted: str) -> bool:
        if self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            while self.text[self.at : self.at + 1].isspace():
                self.at += 1
            return True
        return False


def _single(kind: str, word: str) -> _Single:
    if kind == "S":
        return _Single("S", encode_value("S", unquote(word)))
    if kind == "F":
        return _Single("F", encode_value("F", float(word)))
    if kind == "R":
        return _Single("R", encode_value("R", parse_id(word)))
    if kind == "I":
        number = int(word) if len(word) <= 20 else 1 << 64
        if not INTEGER_MIN <= number <= INTEGER_MAX:
            raise TextRefused(f"{word[:30]} does not fit 64 bits")
        return _Single("I", encode_value("I", number))
    assert kind == "T"
    return _Single("T", b"" if word == "null" else word.encode())


def _bounded(count: int, most: int) -> int:
    if count > most:
        raise TextRefused(f"a count of more than {most}")
    return count


def _counter(kind: str, count: int) -> Value:
    if kind == "N":
        most = (1 << 64) - 1
        return Value("N", count_record(_bounded(count, most), 0) if count else b"", count)
    if not INTEGER_MIN <= count <= INTEGER_MAX:
        raise TextRefused(f"{count} does not fit 64 bits")
    return Value("Z", element("I", 0, 0, zip_signed(count)) if count else b"", count)


def _set(found: list[_Single]) -> Value:
    members = {one.value: one for one in found}  # equal bytes are one element, whatever their type
    parts = [element(members[value].letter, 0, 0, value) for value in sorted(members)]
    return Value("E", b"".join(parts))


def _map(rows: list[tuple[_Single, ...]]) -> Value:
    pairs = {row[0]: row[1] for row in rows}
    parts = [
        element(key.letter, 0, 0, key.value) + element(pairs[key].letter, 0, 0, pairs[key].value)
        for key in sorted(pairs)
    ]
    return Value("M", b"".join(parts))
