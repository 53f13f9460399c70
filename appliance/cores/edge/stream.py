"""Frames on a stream of bytes: each behind its size. For WebTransport."""

from appliance.cores.edge.encoding import Encoding
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON
from appliance.formats.client.stream import framed

# subprotocol -> how frames stand in it
ENCODINGS = {
    SUBPROTOCOL_JSON: Encoding(binary=False, framing=framed),
    SUBPROTOCOL_BINARY: Encoding(binary=True, framing=framed),
}
