"""Connections between processes: each carries requests one way and answers the other, in order.

What is sent into a partition is held and arrives when it ends, as TCP would have it, unless the
connection breaks first. A connection to a process that has crashed ends when somebody uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from appliance.base.prng import Prng
from appliance.formats.raft_legacy.frame import Request, Response
from appliance.simulation.farm.options import FarmOptions
from appliance.simulation.schedule import Schedule

SLOW_FACTOR = 15
POSTER = 1000  # ids from here on are no members


class Process(Protocol):
    """What a connection needs of its two ends."""

    life: int  # a new number with each start
    up: bool
    pre_vote: bool  # whether it names that feature

    def on_request(self, connection: Connection, request: Request) -> None: ...
    def on_response(self, connection: Connection, response: Response) -> None: ...
    def on_broken(self, connection: Connection) -> None: ...


@dataclass(slots=True, eq=False)
class Connection:
    """`client` asks, `server` answers; `horizon_us`: when the last thing each way arrives."""

    number: int
    client: int
    server: int
    client_life: int
    server_life: int
    factor: int
    up: bool = True
    horizon_us: list[int] = field(default_factory=lambda: [0, 0])


class Fabric:
    """All connections of a world."""

    def __init__(self, options: FarmOptions, schedule: Schedule, prng: Prng) -> None:
        self.options, self.schedule, self.prng = options, schedule, prng
        self.processes: dict[int, Process] = {}
        self.cut: dict[tuple[int, int], bool] = {}  # (from, to) that nothing passes
        self.held: list[tuple[Connection, bool, Request | Response]] = []
        self.connections: list[Connection] = []
        self.calm = False
        self.count = 0
        self.chain = blake2b(digest_size=16)  # over everything that happened, in order

    def trace(self, kind: str, *numbers: int) -> None:
        self.count += 1
        self.chain.update(f"{self.schedule.now_us} {kind} {numbers}\n".encode())

    def delay_us(self) -> int:
        return self.prng.between(self.options.delay_us_min, self.options.delay_us_max)

    # --- connections ------------------------------------------------------------------------------

    def dial(self, client: int, server: int, done: Callable[[Connection | None], None]) -> None:
        """Try to open a connection; `done` hears of it, if the client still lives."""
        life = self.processes[client].life
        self.schedule.after(self.delay_us(), self._dialled, client, life, server, done)

    def _dialled(
        self, client: int, life: int, server: int, done: Callable[[Connection | None], None]
    ) -> None:
        caller, called = self.processes[client], self.processes.get(server)
        if not caller.up or caller.life != life:
            return
        reachable = not self.cut.get((client, server)) and not self.cut.get((server, client))
        if called is None or not called.up or not reachable:
            done(None)
            return
        slow = self.options.slow_in and not self.calm and self.prng.chance(1, self.options.slow_in)
        connection = Connection(
            len(self.connections),
            client,
            server,
            life,
            called.life,
            SLOW_FACTOR if slow else 1,
        )
        self.connections.append(connection)
        self.trace("open", client, server)
        done(connection)

    def send(self, connection: Connection, message: Request | Response) -> None:
        """Put a message on its way."""
        answers = isinstance(message, Response)
        if not connection.up:
            return
        due_us = self.schedule.now_us + self.delay_us() * connection.factor
        due_us = max(due_us, connection.horizon_us[answers])
        connection.horizon_us[answers] = due_us
        self.schedule.at(due_us, self._deliver, connection, answers, message)

    def _deliver(self, connection: Connection, answers: bool, message: Request | Response) -> None:
        if not connection.up:
            return
        source, target = connection.client, connection.server
        if answers:
            source, target = target, source
        if self.cut.get((source, target)):
            self.held.append((connection, answers, message))
            return
        if not self._alive(connection):
            self.break_up(connection)
            return
        breaks = self.options.break_in and not self.calm
        if breaks and self.prng.chance(1, self.options.break_in):
            self.break_up(connection)
            return
        self.trace("deliver", source, target, message.type, message.term)
        if isinstance(message, Response):
            self.processes[target].on_response(connection, message)
        else:
            self.processes[target].on_request(connection, message)

    def _alive(self, connection: Connection) -> bool:
        client = self.processes[connection.client]
        server = self.processes[connection.server]
        return (client.up, client.life) == (True, connection.client_life) and (
            server.up,
            server.life,
        ) == (True, connection.server_life)

    def break_up(self, connection: Connection) -> None:
        """Close it; its client hears of it at once, if it is still the same process."""
        if not connection.up:
            return
        connection.up = False
        self.trace("break", connection.client, connection.server)
        client = self.processes[connection.client]
        if client.up and client.life == connection.client_life:
            client.on_broken(connection)

    # --- faults -----------------------------------------------------------------------------------

    def part(self, pairs: list[tuple[int, int]]) -> None:
        self.trace("part", len(pairs))
        for pair in pairs:
            self.cut[pair] = True

    def heal(self) -> None:
        """Nothing is cut any more; what was held arrives now, in order."""
        self.trace("heal", len(self.cut))
        self.cut.clear()
        held, self.held = self.held, []
        for connection, answers, message in held:
            due_us = max(self.schedule.now_us, connection.horizon_us[answers])
            connection.horizon_us[answers] = due_us
            self.schedule.at(due_us, self._deliver, connection, answers, message)
