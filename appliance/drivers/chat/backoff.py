"""How long a device waits for a node, and before it tries the next one.

    nobody there, or silence ──▶ the next node at once, a short pause after each round of all
    asked to wait ─────────────▶ no less than that, after a round
    thrown out before a word ──▶ others came, too, and more than can be served: a pause at random
                                 that grows each time, so that a crowd spreads over seconds

Who has gone through all nodes waits for each longer than before: in a crowd it is its turn that is
waited for, and who leaves the line begins at its end.
"""

import random

from appliance.drivers.chat.errors import ConnectionLost, ThrownOut, TurnedAway

DIAL_TIMEOUT_S, DIAL_TIMEOUT_S_MAX = 3.0, 12.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.5
ASKED_PAUSE_S_MAX = 5.0  # that a node which lets nobody in may ask for
CROWD_S_MIN, CROWD_S_MAX = 1.0, 8.0  # over which those spread who were thrown out


class Backoff:
    """Of one device, since its newest welcome."""

    def __init__(self, nodes: int) -> None:
        assert nodes > 0
        self._nodes = nodes
        self._tried = self._thrown_out = 0

    def on_welcome(self) -> None:
        """It is where it wanted to be."""
        self._tried = self._thrown_out = 0

    @property
    def timeout_s(self) -> float:
        """For the node that is tried now, to be open, and for its welcome."""
        return min(DIAL_TIMEOUT_S * (1 << min(self._tried // self._nodes, 5)), DIAL_TIMEOUT_S_MAX)

    def pause_s(self, error: ConnectionLost) -> float:
        """A try has failed: seconds before the next one."""
        self._tried += 1
        if isinstance(error, ThrownOut):
            spread = min(CROWD_S_MIN * (1 << min(self._thrown_out, 5)), CROWD_S_MAX)
            self._thrown_out += 1
            return random.uniform(0.0, spread)
        pause = min(PAUSE_MIN_S * (1 << min(self._tried // self._nodes, 5)), PAUSE_MAX_S)
        asked_ms = (error.answer.retry_after or 0) if isinstance(error, TurnedAway) else 0
        if self._tried % self._nodes == 0:
            pause = max(pause, min(asked_ms / 1000, ASKED_PAUSE_S_MAX))
            return pause * random.uniform(1.0, 1.5)  # not all at once
        return pause * random.uniform(0.5, 1.0)
