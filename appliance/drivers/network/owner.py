"""Who uses the connections of clients, and what both sides are to each other."""

from typing import Any, Protocol

from appliance.base.errors import InputError

# How frames stand on a connection: the role has an encoding for each and each subprotocol.
WEBSOCKET, STREAM, LINES = "websocket", "stream", "lines"


class ChatConnection(Protocol):
    """A client's conversation, whatever carries it."""

    address: str
    framing: str
    subprotocol: str
    transport_name: str  # what carries it, for figures
    user: Any  # for the owner
    admitted: Any  # as whom: what the owner made of the handshake's token; None: it had none

    @property
    def held(self) -> int:
        """Bytes in memory for this connection, in both directions."""

    def welcome(self) -> None:
        """The client has said who it is: it is no stranger, and may send larger frames."""

    def write(self, frames: list[bytes]) -> None:
        """Send whole frames, joined; dropped when the connection is ending."""

    def read_on(self, wanted: bool) -> None:
        """Stop or go on handling and reading what the client sends."""

    def end(self, error: InputError) -> None:
        """Close after `error` was answered."""

    def probe(self) -> None:
        """Have the client show that it is there, if nothing below does."""


class Owner(Protocol):
    """Who uses the connections. All are called in the loop, one connection at a time."""

    def admit(self, address: str, token: str) -> Any:
        """As whom a client comes who brings `token` with its handshake. Raises InputError: it is
        refused, before there is a connection."""

    def on_open(self, connection: "ChatConnection") -> None:
        """The handshake is done; `connection.subprotocol` says which encoding."""

    def on_client_message(self, connection: "ChatConnection", data: bytes, is_text: bool) -> None:
        """A whole message; text is UTF-8."""

    def on_fragment(self, connection: "ChatConnection") -> None:
        """A part of a message, not the last."""

    def on_control(self, connection: "ChatConnection") -> None:
        """A ping, which is answered, or a pong."""

    def on_oversize(self, connection: "ChatConnection") -> None:
        """A message is too large; what is written now goes out before the connection ends."""

    def on_blocked(self, connection: "ChatConnection") -> None:
        """More is waiting to be sent than is good; write no more than needed."""

    def on_writable(self, connection: "ChatConnection") -> None:
        """What was waiting has been sent."""

    def on_closed(self, connection: "ChatConnection") -> None:
        """The connection, which was open, is gone."""
