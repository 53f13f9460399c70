"""Ids that something depends on and that are not here: asked for until they come.

Two ways run beside each other. A store is asked soon and again, with growing pauses. The other
participants are asked by repair requests, late and again, for where no store answers.

    wanted --asked, asked again ...--> received (gone)
      +--lost_timeout or all stores lack it, and something waits for it--> lost: delivered around,
      |                                                                    and still asked for
      +--lost_timeout, and nothing waits for it--> forgotten, until it is named again
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from appliance.cores.federation.parameters import Parameters
from appliance.cores.federation.repair import request_delay
from appliance.formats.causal.message import HistoryEntry
from appliance.formats.causal.rows import NEVER, MissingRow

_ROUNDS_DOUBLED = 8  # after that the pause between two requests stays as it is


class Wanted:
    """Invariants: at most `wanted_max` ids; each has its next times in the heaps."""

    __slots__ = ("me", "parameters", "rows", "dirty", "_requests", "_asks", "_ends")

    def __init__(self, me: str, parameters: Parameters) -> None:
        self.me, self.parameters = me, parameters
        self.rows: dict[str, MissingRow] = {}
        self.dirty: dict[str, None] = {}
        self._requests: list[tuple[int, str]] = []
        self._asks: list[tuple[int, str]] = []
        self._ends: list[tuple[int, str]] = []

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.rows

    def add(self, entry: HistoryEntry, now_ms: int, *, at_once: bool) -> MissingRow:
        """Want a further id; the caller has made room. `at_once`: ask the store without delay."""
        limits = self.parameters
        row = MissingRow(
            first_seen=now_ms,
            request_at=now_ms + self._delay(entry.message_id),
            rounds=0,
            put_off=0,
            attempts=0,
            ask_at=now_ms if at_once else now_ms + limits.store_delay_ms,
            expires_at=now_ms + limits.lost_timeout_ms,
            hint=entry.retrieval_hint,
            sender=entry.sender_id,
        )
        self.restore(entry.message_id, row)
        self.dirty[entry.message_id] = None
        return row

    def restore(self, message_id: str, row: MissingRow) -> None:
        """A row of the store, as it is."""
        assert message_id not in self.rows
        self.rows[message_id] = row
        self._push(message_id, row)

    def learn(self, entry: HistoryEntry) -> None:
        """Hint and sender of an id that is wanted already."""
        row = self.rows[entry.message_id]
        if row.hint is None and entry.retrieval_hint is not None:
            row.hint = entry.retrieval_hint
            self.dirty[entry.message_id] = None
        if not row.sender and entry.sender_id:
            row.sender = entry.sender_id
            self.dirty[entry.message_id] = None

    def remove(self, message_id: str) -> MissingRow | None:
        row = self.rows.pop(message_id, None)
        if row is not None:
            self.dirty[message_id] = None
        return row

    def newest_without(self, needed: Callable[[str], bool]) -> str | None:
        """The newest id that nothing waits for: the first to leave a full table."""
        return next((found for found in reversed(self.rows) if not needed(found)), None)

    def entry(self, message_id: str) -> HistoryEntry:
        row = self.rows[message_id]
        return HistoryEntry(message_id, row.hint, row.sender)

    def take_requests(self, now_ms: int, count: int) -> list[HistoryEntry]:
        """At most `count` that are due to be asked of everybody, earliest first; armed again."""
        found: list[HistoryEntry] = []
        while len(found) < count and (due := self._next(self._requests, "request_at")):
            if due[0] > now_ms:
                break
            found.append(self.entry(due[1]))
            self._arm_again(due[1], now_ms)
        return found

    def _arm_again(self, message_id: str, now_ms: int) -> None:
        """We asked everybody: if it does not come, we ask again, later each time."""
        row = self.rows[message_id]
        pause = self.parameters.repair_ms_max << min(row.rounds, self._rounds() - 1)
        row.rounds = min(row.rounds + 1, 255)
        row.put_off = 0
        self._request_at(message_id, row, now_ms + pause + self._delay(message_id))

    def put_off(self, message_id: str, now_ms: int) -> None:
        """Another asked for it: the answer may come to us too. Once only: who can be reached by us
        may not have heard the other, and would never be asked.
        """
        row = self.rows[message_id]
        if row.put_off:
            return
        row.put_off = 1
        put_off = now_ms + self.parameters.repair_ms_max + self._delay(message_id)
        self._request_at(message_id, row, max(row.request_at, put_off))

    def _request_at(self, message_id: str, row: MissingRow, at_ms: int) -> None:
        row.request_at = at_ms
        self.dirty[message_id] = None
        heappush(self._requests, (at_ms, message_id))

    def take_asks(self, now_ms: int, count: int) -> list[HistoryEntry]:
        """At most `count` that are due to be asked of a store, earliest first."""
        found: list[HistoryEntry] = []
        limits = self.parameters
        if not limits.store:
            return found
        while len(found) < count and (due := self._next(self._asks, "ask_at")):
            if due[0] > now_ms:
                break
            row = self.rows[due[1]]
            pause = min(1_000 << min(row.attempts, 16), limits.store_backoff_ms_max)
            row.attempts = min(row.attempts + 1, 255)
            row.ask_at = now_ms + pause
            heappush(self._asks, (row.ask_at, due[1]))
            self.dirty[due[1]] = None
            found.append(self.entry(due[1]))
        return found

    def take_expired(self, now_ms: int) -> list[str]:
        """Ids that were looked for long enough; they stay until they are removed or `seek`."""
        found = []
        while (due := self._next(self._ends, "expires_at")) and due[0] <= now_ms:
            heappop(self._ends)
            found.append(due[1])
        return found

    def seek(self, message_id: str) -> None:
        """It is lost, and is asked for nevertheless as long as there is room."""
        self.rows[message_id].expires_at = NEVER
        self.dirty[message_id] = None

    def all_due(self, now_ms: int) -> None:
        """A link came up: whoever is there now can be asked at once."""
        for message_id, row in self.rows.items():
            row.ask_at, row.attempts = now_ms, 0
            row.request_at, row.rounds = now_ms + self._delay(message_id), 0
            self.dirty[message_id] = None
        self._requests = [(row.request_at, message_id) for message_id, row in self.rows.items()]
        heapify(self._requests)
        self._asks = [(row.ask_at, message_id) for message_id, row in self.rows.items()]
        heapify(self._asks)

    def deadline(self) -> int | None:
        heaps = [(self._requests, "request_at"), (self._ends, "expires_at")]
        if self.parameters.store:
            heaps.append((self._asks, "ask_at"))
        times = [due[0] for heap, name in heaps if (due := self._next(heap, name))]
        return min(times, default=None)

    def request_deadline(self) -> int | None:
        due = self._next(self._requests, "request_at")
        return due[0] if due else None

    def _rounds(self) -> int:
        return min(self.parameters.repair_rounds, _ROUNDS_DOUBLED)

    def _delay(self, message_id: str) -> int:
        limits = self.parameters
        return request_delay(
            self.me, message_id, low_ms=limits.repair_ms_min, high_ms=limits.repair_ms_max
        )

    def _next(self, heap: list[tuple[int, str]], name: str) -> tuple[int, str] | None:
        """The first of a heap that still holds; stale ones are thrown away."""
        while heap:
            at, message_id = heap[0]
            row = self.rows.get(message_id)
            if row is not None and getattr(row, name) == at and at != NEVER:
                return heap[0]
            heappop(heap)
        return None

    def _push(self, message_id: str, row: MissingRow) -> None:
        if len(self._ends) > 4 * len(self.rows) + 1024:  # stale ones pile up
            rows = self.rows.items()
            self._requests = [(row.request_at, found) for found, row in rows]
            self._asks = [(row.ask_at, found) for found, row in rows]
            self._ends = [(row.expires_at, found) for found, row in rows]
            for heap in (self._requests, self._asks, self._ends):
                heapify(heap)
            return
        heappush(self._requests, (row.request_at, message_id))
        heappush(self._asks, (row.ask_at, message_id))
        heappush(self._ends, (row.expires_at, message_id))

    def check(self) -> None:
        """Assert what the class promises."""
        assert len(self.rows) <= self.parameters.wanted_max
