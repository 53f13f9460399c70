"""One speaker, many listeners, one room: each message is delivered to each listener, in order.

The speaker is held back by the slowest listener, so that what is measured is delivery as it is live
and not how fast a backlog is read.
"""

from appliance.base.limits import BODY_SIZE_MAX


class Audience:
    """`listeners` follow one room; the speaker is at most `window` messages ahead of the last."""

    def __init__(
        self, *, listeners: int, messages: int, window: int, body_size: int, name: str = "bench"
    ) -> None:
        assert listeners >= 1 and 1 <= window <= messages
        assert 1 <= body_size <= BODY_SIZE_MAX
        self.listeners, self.messages, self.window = listeners, messages, window
        self.body_size, self.name = body_size, name

    def setup(self) -> list[str]:
        """The room's name."""
        return [f"{self.name}-audience"]

    def body(self) -> str:
        """What every message says: all are of one size."""
        words = "to whom it may concern: "
        return (words * (self.body_size // len(words) + 1))[: self.body_size]

    def allowed(self, delivered_min: int) -> int:
        """How many messages may have been sent when the slowest listener has so many."""
        return min(self.messages, delivered_min + self.window)

    def check(self, delivered: list[list[int]]) -> list[str]:
        """What is wrong with the ops that each listener got."""
        wrong = []
        for listener, ops in enumerate(delivered):
            if len(ops) != self.messages:
                wrong.append(f"listener {listener} got {len(ops)} of {self.messages} messages")
            elif ops != list(range(ops[0], ops[0] + len(ops))):
                wrong.append(f"listener {listener} got messages out of order or twice")
        return wrong
