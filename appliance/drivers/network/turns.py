"""Input by turns: how much of what was received is looked at in one turn of the loop, and whose.

    bytes received ──▶ within the budget of the turn: handled at once
                   └─▶ beyond: they wait, their connection is not read from; next turn, in order

Frames of six bytes cost what frames of a thousand do. So a connection gets a few frames in a turn,
and all together get not many more: between two turns everybody else is heard.
"""

import asyncio
from collections import deque
from typing import Protocol

from appliance.base.limits import TURN_COST_ALL_MAX, TURN_COST_MAX


class Reader(Protocol):
    """A connection with bytes that were received and not looked at."""

    turn: int  # the newest in which it was served
    is_waiting: bool  # stands in the queue

    def advance(self, cost_max: int) -> tuple[int, bool]:
        """Handle frames up to that cost, at least one: what they cost, and whether there are
        more."""

    def on_turn(self) -> None:
        """`is_waiting` has changed."""


class Turns:
    """Of all connections of a process."""

    def __init__(self) -> None:
        self._turn = 1
        self._cost = 0  # of what was handled in this turn
        self._queue: deque[Reader] = deque()
        self._due = False

    def on_input(self, reader: Reader) -> None:
        """Something came: it is handled now, or when its turn comes."""
        if reader.is_waiting:
            return
        self._next_soon()
        more = True
        if reader.turn != self._turn and self._cost < TURN_COST_ALL_MAX:
            more = self._serve(reader, TURN_COST_MAX)
        if more:
            reader.is_waiting = True
            self._queue.append(reader)
            reader.on_turn()

    def _serve(self, reader: Reader, cost_max: int) -> bool:
        reader.turn = self._turn
        cost, more = reader.advance(cost_max)
        self._cost += cost
        return more

    def _next_soon(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A new turn: first those who wait."""
        self._due = False
        self._turn += 1
        self._cost = 0
        for _ in range(len(self._queue)):
            if self._cost >= TURN_COST_ALL_MAX // 2:
                break  # the other half is for those who come now
            reader = self._queue.popleft()
            if self._serve(reader, TURN_COST_MAX):
                self._queue.append(reader)
            else:
                reader.is_waiting = False
                reader.on_turn()
        if self._queue:
            self._next_soon()
