"""When a log session asks next: soon after a reply, but with those who were just answered.

    reply to A ──▶ A's senders send again ──▶ one request of A + B        instead of A, B, A, B ...
                   B collected meanwhile

Senders that wait for their acknowledgement before they send again come back right after a reply.
A request that left at the reply would miss them, and they would make a second small one: the same
messages cost twice the requests, each with its flushes and signatures. So a log session waits until
as many records have collected as could come back, and never longer than a fraction of what its last
request took: with one message in flight it never waits, and an idle one sends at once.
"""

WAIT_FRACTION = 4  # a quarter of the last request's time, at most


class Pace:
    """Of one log session. `waiting` is always the number of records that have collected in it."""

    __slots__ = ("_records_max", "_asked_ns", "_asked", "_wanted", "until_ns")

    def __init__(self, records_max: int) -> None:
        assert records_max > 0
        self._records_max = records_max
        self._asked_ns = self._asked = 0  # when the last request left; its records
        self._wanted = 0  # records to wait for; 0: for none
        self.until_ns = 0  # from then on the next request may leave, however few wait

    def on_request(self, now_ns: int, count: int) -> None:
        """A request of `count` records has left."""
        assert count > 0
        self._asked_ns, self._asked = now_ns, count
        self._wanted = 0

    def on_reply(self, now_ns: int, waiting: int) -> int:
        """It is answered; the nanoseconds it took."""
        took_ns = now_ns - self._asked_ns
        assert took_ns >= 0
        assert waiting >= 0
        self._wanted = min(self._asked + waiting, self._records_max)
        self.until_ns = now_ns + took_ns // WAIT_FRACTION
        return took_ns

    def may_ask(self, now_ns: int, waiting: int) -> bool:
        """Whether the next request may leave now. Once it may, it may until it has left: what has
        collected stays, and time goes on."""
        return waiting >= self._wanted or now_ns >= self.until_ns
