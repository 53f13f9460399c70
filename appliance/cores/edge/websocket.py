"""WebSocket frames from server to client: not masked, so many connections share the bytes."""

import struct

from appliance.cores.edge.encoding import Encoding
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON

OPCODE_TEXT, OPCODE_BINARY = 1, 2

_MEDIUM = struct.Struct(">BBH")
_LARGE = struct.Struct(">BBQ")


def server_frame(payload: bytes, opcode: int) -> bytes:
    """One final frame with `payload`, as it goes over the wire (RFC 6455, section 5.2)."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 1 << 16:
        return _MEDIUM.pack(0x80 | opcode, 126, size) + payload
    return _LARGE.pack(0x80 | opcode, 127, size) + payload


# subprotocol -> how frames stand in it
ENCODINGS = {
    SUBPROTOCOL_JSON: Encoding(
        binary=False, framing=lambda payload: server_frame(payload, OPCODE_TEXT)
    ),
    SUBPROTOCOL_BINARY: Encoding(
        binary=True, framing=lambda payload: server_frame(payload, OPCODE_BINARY)
    ),
}
