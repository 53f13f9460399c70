"""The ways in which a client may speak with a node, by the names that commands have for them."""

from typing import NamedTuple

from appliance.drivers.chat import connection
from appliance.drivers.chat.carrier import Dial
from appliance.formats.client.address import EVENTS, LONG_POLL, WEBSOCKET, WEBTRANSPORT
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON


class Transport(NamedTuple):
    """How a connection is opened, and the encoding that goes on it."""

    dial: Dial
    subprotocol: str


def transport_named(name: str) -> Transport:
    """The one of that name, of the `TRANSPORTS` of the addresses."""
    if name == WEBSOCKET:
        return Transport(connection.dial, SUBPROTOCOL_BINARY)
    if name == WEBTRANSPORT:
        from appliance.drivers.chat import webtransport

        return Transport(webtransport.dial, SUBPROTOCOL_BINARY)
    from appliance.drivers.chat import plain

    dial = {EVENTS: plain.dial_events, LONG_POLL: plain.dial_poll}[name]
    return Transport(dial, SUBPROTOCOL_JSON)
