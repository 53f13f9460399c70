"""Frames in lines of text: for requests and answers of plain HTTP. JSON has no line break."""

from appliance.cores.edge.encoding import Encoding
from appliance.formats.client.frame import SUBPROTOCOL_JSON

# subprotocol -> how frames stand in it
ENCODINGS = {
    SUBPROTOCOL_JSON: Encoding(binary=False, framing=lambda payload: payload + b"\n"),
}
