"""Input by turns: how much of what was received is looked at in one turn of the loop, and whose.

    bytes received ──▶ within the budget of the turn: handled at once
                   └─▶ beyond: they wait, their connection is not read from; next turn, in order:
                       first who was not heard at all, then, for a part of it, who had more to say

Frames of six bytes cost what frames of a thousand do. So a connection gets a few frames in a turn,
and all together get not many more: between two turns everybody else is heard.
"""

import asyncio
from collections import deque
from typing import Protocol

from appliance.base.limits import TURN_COST_ALL_MAX, TURN_COST_GREEDY_MAX, TURN_COST_MAX


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
    """Of all connections of a process. Those who had more than a turn takes come behind those who
    have not been heard at all."""

    def __init__(self) -> None:
        self._turn = 1
        self._cost = 0  # of what was handled in this turn
        self._unheard: deque[Reader] = deque()  # came when the turn was over
        self._greedy: deque[Reader] = deque()  # had more to say
        self._due = False

    def on_input(self, reader: Reader) -> None:
        """Something came: it is handled now, or when its turn comes."""
        if reader.is_waiting:
            return
        self._next_soon()
        queue = self._unheard
        if reader.turn == self._turn:
            queue = self._greedy
        elif self._cost < TURN_COST_ALL_MAX:
            if not self._serve(reader):
                return
            queue = self._greedy
        reader.is_waiting = True
        queue.append(reader)
        reader.on_turn()

    @property
    def waiting(self) -> int:
        """Connections with more to say than the turn takes."""
        return len(self._unheard) + len(self._greedy)

    def _serve(self, reader: Reader) -> bool:
        reader.turn = self._turn
        cost, more = reader.advance(TURN_COST_MAX)
        self._cost += cost
        return more

    def _next_soon(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A new turn: first those who wait; half of it is for those who come now."""
        self._due = False
        self._turn += 1
        self._cost = 0
        self._hear(self._unheard, TURN_COST_ALL_MAX // 2)
        self._hear(self._greedy, self._cost + TURN_COST_GREEDY_MAX)
        if self.waiting:
            self._next_soon()

    def _hear(self, queue: deque[Reader], cost_max: int) -> None:
        """Serve those who wait in `queue` now, until the turn has cost so much."""
        for _ in range(len(queue)):
            if self._cost >= cost_max:
                break
            reader = queue.popleft()
            if reader.turn == self._turn:
                queue.append(reader)  # was heard in this turn
            elif self._serve(reader):
                self._greedy.append(reader)
            else:
                reader.is_waiting = False
                reader.on_turn()
