"""What all frames are, the binary layout that follows from a class, and both encodings, written."""

import functools
import struct
from typing import Any, ClassVar, get_args, get_type_hints

import msgspec

from appliance.formats.client.fields import Kind
from appliance.formats.client_errors import FrameMalformed

SUBPROTOCOL_JSON = "tigerchat.v1.json"
SUBPROTOCOL_BINARY = "tigerchat.v1.binary"
SUBPROTOCOLS = (SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON)
SUBPROTOCOL_TOKEN = "tigerchat.token."  # and a token: of pages, which cannot send Authorization
BINARY_VERSION = 1
HEAD = struct.Struct("<BBH")  # code, version, count
HEAD_SIZE = HEAD.size


class Frame(msgspec.Struct, tag_field="type", omit_defaults=True):
    """One frame. `code` is its number in binary; a class's tag is its name in JSON."""

    code: ClassVar[int] = 0
    many: ClassVar[bool] = False


class Layout:
    """The binary layout of a class of frames or list items, derived from its fields."""

    def __init__(self, of: type) -> None:
        self.fields: list[tuple[str, Kind, bool]] = []
        self.nested: dict[str, tuple[type, Layout]] = {}
        self.list_name = ""
        self.list_of: Layout | None = None
        hints = get_type_hints(of, include_extras=True)
        for name in of.__struct_fields__:  # type: ignore[attr-defined]
            self._add(name, hints[name])

    def _add(self, name: str, hint: Any) -> None:
        assert not self.list_name  # the list stands last: its items follow the fields
        if getattr(hint, "__origin__", None) is list:
            self.list_name, self.list_of = name, Layout(get_args(hint)[0])
            return
        if isinstance(hint, type):
            self.nested[name] = (hint, Layout(hint))
            self.fields.append((name, Kind(""), False))
            return
        optional = any(part is type(None) for part in get_args(hint))
        if optional:
            hint = get_args(hint)[0]
        kind = next(part for part in get_args(hint) if isinstance(part, Kind))
        assert not optional or not kind.code or kind.absent is not None
        self.fields.append((name, kind, optional))

    def struct(self) -> struct.Struct:
        """The fields up to and with the size of a last one that varies: for hot frames."""
        assert all(not kind.varies for _, kind, _ in self.fields[:-1])
        return struct.Struct("<" + "".join(kind.code for _, kind, _ in self.fields))

    def encode(self, frame: Any, out: list[bytes]) -> None:
        """Append the fields of `frame`."""
        for name, kind, optional in self.fields:
            value = getattr(frame, name)
            if name in self.nested:
                self.nested[name][1].encode(value, out)
            elif kind.varies:
                text = "" if value is None else value
                raw = text.encode()
                out += (struct.pack("<" + kind.code, len(raw)), raw)
            elif kind.code:
                if optional and value is None:
                    value = kind.absent
                elif kind.pack is not None:
                    value = kind.pack(value)
                out.append(struct.pack("<" + kind.code, value))

    def decode(self, data: bytes, offset: int, named: dict[str, Any]) -> int:
        """Read the fields at `offset` into `named`; the offset behind them.

        Raises struct.error where `data` ends early, UnicodeError on text that is none, ValueError
        on a value that has no meaning.
        """
        for name, kind, optional in self.fields:
            if name in self.nested:
                inner: dict[str, Any] = {}
                offset = self.nested[name][1].decode(data, offset, inner)
                named[name] = inner
                continue
            if not kind.code:
                if kind.unpack is not None:
                    named[name] = kind.unpack(named["author_id"])
                continue
            value: Any
            (value,) = struct.unpack_from("<" + kind.code, data, offset)
            offset += struct.calcsize("<" + kind.code)
            if kind.varies:
                if offset + value > len(data):
                    raise struct.error("text ends early")
                end = offset + value
                value, offset = data[offset:end].decode(), end
            if optional and value == kind.absent:
                continue
            named[name] = kind.unpack(value) if kind.unpack is not None else value
        return offset


@functools.cache
def layout_of(frame: type[Frame]) -> Layout:
    """The binary layout of a class of frames."""
    return Layout(frame)


# --- written

encode_json = msgspec.json.Encoder(uuid_format="canonical").encode  # one frame -> bytes


def binary_head(frame: type[Frame], count: int) -> bytes:
    """The four bytes before `count` items."""
    return HEAD.pack(frame.code, BINARY_VERSION, count)


def binary_code(data: bytes) -> int:
    """The code of a binary frame; raises FrameMalformed when there is none."""
    if len(data) < HEAD.size or data[1] != BINARY_VERSION:
        raise FrameMalformed("a binary frame starts with code, version 1 and a count")
    return data[0]


def encode_binary(*frames: Frame) -> bytes:
    """One binary frame; several frames only of a kind that may be many."""
    first = frames[0]
    layout = layout_of(type(first))
    items = getattr(first, layout.list_name) if layout.list_name else frames
    assert all(type(frame) is type(first) for frame in frames)
    assert len(frames) == 1 or first.many
    out = [binary_head(type(first), len(items))]
    for frame in frames:
        layout.encode(frame, out)
    if layout.list_of is not None:
        for item in items:
            layout.list_of.encode(item, out)
    return b"".join(out)
