"""What a transport must offer for a client's connection: WebSocket on TCP does, others may."""

from typing import Protocol

from appliance.base.errors import InputError


class ClientConnection(Protocol):
    """The connection of one client. Its driver tells the role when it opens, when a whole frame
    came, when it is blocked or writable again, and when it is gone."""

    @property
    def address(self) -> str:
        """Where the client is, as text: what rates are counted against."""

    @property
    def transport_name(self) -> str:
        """What carries it, for figures."""

    def welcome(self) -> None:
        """The client has said who it is: larger frames may be taken from it."""

    def write(self, frames: list[bytes]) -> None:
        """Send framed bytes, in order; what cannot be sent any more is dropped."""

    def read_on(self, wanted: bool) -> None:
        """Go on reading from the client, or stop."""

    def end(self, error: InputError) -> None:
        """Close, with the code that this transport has for `error`."""
