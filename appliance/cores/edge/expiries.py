"""When the tokens of sessions expire: one entry for each session, by the second."""

_SECOND_US = 1_000_000


class Expiries:
    """Sessions by number. Invariant: each stands in at most one second's set."""

    def __init__(self) -> None:
        self._second_of: dict[int, int] = {}
        self._sessions_at: dict[int, dict[int, None]] = {}
        self._scanned_s = 0  # the newest second that was looked at

    def put(self, number: int, expires_us: int) -> None:
        """The session's token expires then, whatever was said before."""
        self.drop(number)
        second = -(-expires_us // _SECOND_US)
        self._second_of[number] = second
        self._sessions_at.setdefault(second, {})[number] = None
        self._scanned_s = min(self._scanned_s, second - 1)

    def drop(self, number: int) -> None:
        """The session is gone."""
        second = self._second_of.pop(number, None)
        if second is not None:
            sessions = self._sessions_at[second]
            del sessions[number]
            if not sessions:
                del self._sessions_at[second]

    def due(self, now_us: int) -> list[int]:
        """Sessions whose token has expired; each is told once."""
        now_s = now_us // _SECOND_US
        if now_s <= self._scanned_s:
            return []
        self._scanned_s = now_s
        numbers = [
            number
            for second in sorted(second for second in self._sessions_at if second <= now_s)
            for number in self._sessions_at[second]
        ]
        for number in numbers:
            self.drop(number)
        return numbers

    def __len__(self) -> int:
        """Entries that are kept."""
        return sum(map(len, self._sessions_at.values()))
