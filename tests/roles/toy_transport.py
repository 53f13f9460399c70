"""A transport as somebody would add one: lines of JSON on bare TCP, into the session of all others.

What it must be is `ChatConnection` of `drivers/network/owner.py`, and a `Reader` by turns; what it
must call: the entrance, the server's list of conversations, and the owner.
"""

import asyncio
from typing import Any

from appliance.base.errors import InputError
from appliance.base.limits import CLIENT_FRAME_SIZE_MAX, STRANGER_FRAME_SIZE_MAX, TURN_COST_SIZE
from appliance.drivers.network.entrance import Visitor, address_of
from appliance.drivers.network.owner import LINES
from appliance.drivers.network.websocket import WebSocketServer
from appliance.formats.client.frame import SUBPROTOCOL_JSON


class ToyConnection(Visitor):
    """A frame is a line, both ways. The end is the end of the stream, behind the error."""

    framing, subprotocol, transport_name = LINES, SUBPROTOCOL_JSON, "toy"
    transport: asyncio.Transport
    admitted = user = None
    turn, is_waiting, wanted, is_welcome = 0, False, True, False

    def __init__(self, server: WebSocketServer) -> None:
        self.server, self.inbox = server, bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport, self.address = (
            transport,
            address_of(transport.get_extra_info("peername")[0]),
        )
        if self.server.entrance.admit(self, asyncio.get_running_loop().time()):
            self.server.on_open(self)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self.inbox += data
        self.server.turns.on_input(self)

    def advance(self, cost_max: int) -> tuple[int, bool]:
        cost, owner = 0, self.server.owner
        size_max = CLIENT_FRAME_SIZE_MAX if self.is_welcome else STRANGER_FRAME_SIZE_MAX
        while cost < cost_max and self.wanted and not self.transport.is_closing():
            line, found, rest = self.inbox.partition(b"\n")
            if len(line) > size_max:
                owner.on_oversize(self)
            if len(line) > size_max or not found:
                return cost, False
            self.inbox = rest
            cost += 1 + len(line) // TURN_COST_SIZE
            owner.on_client_message(self, bytes(line), True)
        return cost, self.wanted and b"\n" in self.inbox

    def on_turn(self) -> None:
        if not self.transport.is_closing():
            is_paused = self.is_waiting or not self.wanted
            (self.transport.pause_reading if is_paused else self.transport.resume_reading)()

    def read_on(self, wanted: bool) -> None:
        if wanted != self.wanted:
            self.wanted = wanted
            self.on_turn()
            if wanted and self.inbox:
                self.server.turns.on_input(self)

    @property
    def held(self) -> int:
        return len(self.inbox) + self.transport.get_write_buffer_size()

    def welcome(self) -> None:
        if not self.is_welcome:
            self.is_welcome = True
            self.server.entrance.welcome(self)

    def write(self, frames: list[bytes]) -> None:
        self.transport.writelines(frames)

    def end(self, error: InputError) -> None:
        self.transport.close()

    def probe(self) -> None:
        """A real one finds out whether the client is still there."""

    def pause_writing(self) -> None:
        self.server.heavy[self] = None
        self.server.owner.on_blocked(self)

    def resume_writing(self) -> None:
        self.server.owner.on_writable(self)

    def expel(self) -> None:
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self in self.server.conversations():
            self.server.forget(self)
            self.server.owner.on_closed(self)
