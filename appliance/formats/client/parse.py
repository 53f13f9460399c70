"""Both encodings, read: what a client sent, and for clients what an edge sent."""

import contextlib
import functools
import operator
import struct
from typing import Any

import msgspec

from appliance.formats.client.fields import U64, Id, Label
from appliance.formats.client.frame import HEAD, Frame, Layout, binary_code, layout_of
from appliance.formats.client.table import FRAMES_CLIENT, FRAMES_CLIENT_JSON, FRAMES_EDGE
from appliance.formats.client_errors import FieldInvalid, FrameMalformed, FrameUnknown

# --- JSON


class _Loose(msgspec.Struct):
    """What an error answer repeats of a frame that could not be understood."""

    request: Any = None
    room_id: Any = None
    client_seq: Any = None


def _union(frames: tuple[type[Frame], ...]) -> Any:
    return functools.reduce(operator.or_, frames)


_JSON_CLIENT: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(
    _union(FRAMES_CLIENT + FRAMES_CLIENT_JSON)
)
_JSON_EDGE: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(_union(FRAMES_EDGE))
_JSON_LOOSE = msgspec.json.Decoder(_Loose)


def _parse_json(decoder: msgspec.json.Decoder[Frame], data: bytes | str) -> Frame:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        if "$.type`" in str(error) or "required field `type`" in str(error):
            raise FrameUnknown(str(error)) from None
        raise FieldInvalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FrameMalformed(f"not JSON in UTF-8: {error}") from None
    except RecursionError:
        raise FrameMalformed("nested too deeply") from None


def parse_json(data: bytes | str) -> Frame:
    """The client's frame in one JSON object. Raises FrameMalformed, FrameUnknown, FieldInvalid."""
    return _parse_json(_JSON_CLIENT, data)


def parse_json_edge(data: bytes | str) -> Frame:
    """The edge's frame, for clients. Raises as `parse_json`."""
    return _parse_json(_JSON_EDGE, data)


def named_in(data: bytes | str) -> dict[str, Any]:
    """`request`, `room_id`, `client_seq` of a JSON frame that was refused, as far as they are
    right."""
    try:
        loose = _JSON_LOOSE.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return _right(msgspec.structs.asdict(loose))


def _right(values: dict[str, Any]) -> dict[str, Any]:
    """Those of `values` that an error answer repeats."""
    named = {}
    for name, kind in (("request", Label), ("room_id", Id), ("client_seq", U64)):
        try:
            named[name] = msgspec.convert(values.get(name), kind)
        except msgspec.ValidationError:
            continue
    return named


# --- binary

_BY_CODE_CLIENT = {frame.code: frame for frame in FRAMES_CLIENT}
_BY_CODE_EDGE = {frame.code: frame for frame in FRAMES_EDGE}


def _parse_binary(by_code: dict[int, type[Frame]], data: bytes) -> list[Frame]:
    frame = by_code.get(binary_code(data))
    if frame is None:
        raise FrameUnknown(f"no frame has code {data[0]:#04x}")
    layout, count = layout_of(frame), HEAD.unpack_from(data)[2]
    if count != 1 and not frame.many and not layout.list_name:
        raise FrameMalformed(f"{count} items where one is allowed")
    try:
        rows, offset = _rows(layout, data, 1 if layout.list_name else count, HEAD.size)
        if layout.list_of is not None:
            rows[0][layout.list_name], offset = _rows(layout.list_of, data, count, offset)
    except (struct.error, UnicodeError, ValueError, IndexError) as error:
        raise FrameMalformed(f"code {data[0]:#04x}: {error}") from None
    if offset != len(data):
        raise FrameMalformed(f"{len(data) - offset} bytes follow the last item")
    try:
        return [
            msgspec.convert({"type": frame.__struct_config__.tag, **_named(frame, row)}, frame)
            for row in rows
        ]
    except msgspec.ValidationError as error:
        raise FieldInvalid(str(error)) from None


def _rows(layout: Layout, data: bytes, count: int, offset: int) -> tuple[list[dict[str, Any]], int]:
    rows = []
    for _ in range(count):
        row: dict[str, Any] = {}
        offset = layout.decode(data, offset, row)
        rows.append(row)
    return rows, offset


def _named(frame: type[Frame], row: dict[str, Any]) -> dict[str, Any]:
    """Fields under their names in JSON, which may differ from those of the attributes."""
    names = dict(zip(frame.__struct_fields__, frame.__struct_encode_fields__, strict=True))
    return {names[name]: value for name, value in row.items()}


def parse_binary(data: bytes) -> list[Frame]:
    """The client's frames in one binary frame; FrameMalformed, FrameUnknown or FieldInvalid."""
    return _parse_binary(_BY_CODE_CLIENT, data)


def named_in_binary(data: bytes) -> dict[str, Any]:
    """As `named_in`, of a binary frame of one item: what stands before the field that is broken."""
    frame = _BY_CODE_CLIENT.get(data[0]) if len(data) >= HEAD.size else None
    if frame is None or frame.many:
        return {}
    row: dict[str, Any] = {}
    with contextlib.suppress(struct.error, UnicodeError, ValueError, IndexError):
        layout_of(frame).decode(data, HEAD.size, row)
    return _right(row)


def parse_binary_edge(data: bytes) -> list[Frame]:
    """The edge's frames, for clients. Raises as `parse_binary`."""
    return _parse_binary(_BY_CODE_EDGE, data)
