"""When a sync message is due: what tells the others what this participant has.

Random within the interval, so that few of many speak; anew with each message of the channel that is
seen or sent. Who received something says so within half of the interval, or within `reply_ms`.
"""

from appliance.base.prng import Prng

SEEN, RECEIVED, SENT = (1, 1), (1, 2), (2, 1)  # of the interval: any message, content, own sync


class SyncSchedule:
    """`due_at` is the next time; `reply_at`, if set, is not put off by what others say."""

    __slots__ = ("interval_ms", "reply_ms", "prng", "due_at", "reply_at")

    def __init__(self, interval_ms: int, reply_ms: int, prng: Prng, now_ms: int) -> None:
        assert interval_ms > 0 and reply_ms >= 0
        self.interval_ms, self.reply_ms, self.prng = interval_ms, reply_ms, prng
        self.due_at = now_ms + prng.between(0, interval_ms)
        self.reply_at: int | None = None

    def restart(self, now_ms: int, share: tuple[int, int]) -> None:
        """Draw a new time within this share of the interval."""
        numerator, denominator = share
        span = max(1, self.interval_ms * numerator // denominator)
        self.due_at = now_ms + self.prng.between(0, span)

    def owe_reply(self, now_ms: int) -> None:
        """Content came in: its sender waits for word of it."""
        if self.reply_ms and self.reply_at is None:
            self.reply_at = now_ms + self.prng.between(self.reply_ms // 4, self.reply_ms)

    def spoke(self) -> None:
        """A message that names what we have went out."""
        self.reply_at = None

    def deadline(self) -> int:
        return self.due_at if self.reply_at is None else min(self.due_at, self.reply_at)
