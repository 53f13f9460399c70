"""What goes on in the streams of a connection: who uses one, and what it may use."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.drivers.network.entrance import Entrance
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.websocket import WebSocketServer
from appliance.drivers.quic.library import BoundedConnection


class StreamUser(Protocol):
    """What a request has become: a request of HTTP, a WebSocket, a session of WebTransport."""

    def on_data(self, data: bytes, ended: bool) -> None:
        """The client has sent this; `ended`: it sends no more."""

    def on_progress(self) -> None:
        """Something may have left: look whether there is room again."""

    def on_gone(self) -> None:
        """The client has given up this stream, or the connection is gone. Called once, last."""


@dataclass(slots=True)
class Services:
    """What clients are served with."""

    app: Callable[..., Any]  # ASGI: the one that serves TCP
    hosts: Hosts
    server: WebSocketServer  # of conversations


class Carrier(Protocol):
    """A connection, as users of its streams see it."""

    quic: BoundedConnection
    address: str
    users: dict[int, StreamUser]

    @property
    def is_full(self) -> bool:
        """Whether too much waits on this connection to write more."""

    def send_headers(
        self, stream_id: int, headers: list[tuple[bytes, bytes]], *, ended: bool = False
    ) -> None:
        """Begin an answer; nothing happens on a stream that is given up."""

    def send_data(self, stream_id: int, data: bytes, *, ended: bool = False) -> None:
        """Go on with it."""

    def send_raw(self, stream_id: int, data: bytes, *, ended: bool = False) -> None:
        """Send on a stream that has no frames of HTTP/3."""

    def send_capsule(self, stream_id: int, kind: int, value: bytes) -> None:
        """Send a capsule (RFC 9297), the last one, and end the stream."""

    def refuse(
        self,
        stream_id: int,
        status: int,
        text: str = "",
        fields: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Answer a request with a status, fields and a text, and be done with it."""

    def welcome(self) -> None:
        """A conversation on it has said who it is."""

    def leave(self) -> None:
        """Such a one has ended."""

    def finish(self, stream_id: int) -> None:
        """The answer is complete: what the client still sends on this stream is not read."""

    def reset(self, stream_id: int, code: int) -> None:
        """Break a stream off, in both directions."""

    def wake(self) -> None:
        """Something is to be sent, or to be read."""


class ClientPort(Protocol):
    """The port, as its connections see it."""

    entrance: Entrance
    services: Services
    counters: Counter[str]

    def is_known(self, client: Any) -> bool:
        """Whether the connection is not forgotten."""

    def learn(self, client: Any, identifier: bytes) -> None:
        """The client may use this identifier from now on."""

    def unlearn(self, identifier: bytes) -> None:
        """It may use it no more."""

    def wake(self, client: Any) -> None:
        """Call its `flush` in the loop's next turn."""

    def forget(self, client: Any) -> None:
        """It is gone."""
