"""Clients that post values until they get a yes, and an administrator."""

from collections.abc import Callable

from appliance.base.prng import Prng
from appliance.formats.raft_legacy.configuration import (
    Server,
    encode_server,
    encode_server_id,
)
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    APPLICATION,
    CLIENT_REQUEST,
    CLUSTER_SERVER,
    REMOVE_SERVER,
    Entry,
    Request,
    Response,
)
from appliance.simulation.farm.fabric import Connection, Fabric
from appliance.simulation.schedule import TICK_US

PATIENCE_TICKS = 40  # for one answer, then another member is asked


class Poster:
    """Asks one member after the other with one request at a time."""

    pre_vote = False
    life, up = 1, True

    def __init__(
        self,
        *,
        id: int,
        fabric: Fabric,
        prng: Prng,
        members: Callable[[], list[int]],
        on_yes: Callable[[int, bytes], None],
    ) -> None:
        """`members`: whom to ask. `on_yes`: who answered, and which value."""
        self.id, self.fabric, self.prng = id, fabric, prng
        self.members, self.on_yes = members, on_yes
        self.links: dict[int, Connection] = {}
        self.request: Request | None = None
        self.done: Callable[[bool], None] | None = None
        self.target = 0
        self.round = 0  # a number for each try: what belongs to an older one is late
        self.posted = 0

    def on_request(self, connection: Connection, request: Request) -> None:
        raise AssertionError("nobody asks a poster")

    # --- one request ------------------------------------------------------------------------------

    def post(self, value: bytes) -> None:
        """Ask until somebody says yes; the same value again each time."""
        entry = Entry(0, APPLICATION, value)
        self.ask(Request(CLIENT_REQUEST, entries=(entry,)))

    def ask(self, request: Request) -> None:
        assert self.request is None
        self.request = request
        self._try(self.target)

    def _try(self, target: int) -> None:
        members = self.members()
        if target not in members:
            target = self.prng.choice(members)
        self.target = target
        self.round += 1
        number = self.round
        self.fabric.schedule.after(PATIENCE_TICKS * TICK_US, self._late, number)
        link = self.links.get(target)
        if link is not None and link.up:
            self._send(link, number)
        else:
            self.fabric.dial(self.id, target, lambda found: self._dialled(found, number))

    def _dialled(self, found: Connection | None, number: int) -> None:
        if number != self.round:
            return
        if found is None:
            self._next(number)
            return
        self.links[found.server] = found
        self._send(found, number)

    def _send(self, link: Connection, number: int) -> None:
        assert self.request is not None
        if number == self.round:
            self.fabric.send(link, self.request)

    def _late(self, number: int) -> None:
        if number == self.round and self.request is not None:
            link = self.links.pop(self.target, None)
            if link is not None:
                self.fabric.break_up(link)
            if number == self.round:
                self._next(number)

    def _next(self, number: int) -> None:
        delay_us = self.prng.between(1, 10) * TICK_US
        self.fabric.schedule.after(delay_us, self._again, number)

    def _again(self, number: int) -> None:
        if number == self.round and self.request is not None:
            self._try(self.prng.choice(self.members()))

    def on_broken(self, connection: Connection) -> None:
        if self.links.get(connection.server) is connection:
            del self.links[connection.server]
            if self.request is not None and connection.server == self.target:
                self._next(self.round)

    def on_response(self, connection: Connection, response: Response) -> None:
        if self.request is None or self.links.get(connection.server) is not connection:
            return
        if response.accepted:
            request, self.request = self.request, None
            self.round += 1
            self.posted += 1
            value = request.entries[0].value if request.entries else b""
            self.on_yes(connection.server, value)
        elif response.destination in self.members() and response.destination != self.target:
            self._try(response.destination)
        else:
            self._next(self.round)


def adding(member: int, endpoint: str) -> Request:
    entry = Entry(0, CLUSTER_SERVER, encode_server(Server(member, endpoint)))
    return Request(ADD_SERVER, entries=(entry,))


def removing(member: int) -> Request:
    entry = Entry(0, CLUSTER_SERVER, encode_server_id(member))
    return Request(REMOVE_SERVER, entries=(entry,))
