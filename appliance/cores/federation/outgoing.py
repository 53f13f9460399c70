"""Local messages that nobody else is known to have.

    unacknowledged --a filter contains it--> possibly acknowledged
          |                                          |
          +--a causal history names it, or enough filters contain it--> gone

Only presence counts: an id that a filter lacks says nothing, as filters forget the oldest.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from appliance.base.prng import Prng
from appliance.cores.federation.parameters import Parameters
from appliance.formats.causal import bloom

UNACKNOWLEDGED, POSSIBLY, BACKLOG = range(3)  # BACKLOG: in the store only, until there is room


@dataclass(slots=True)
class Outgoing:
    """One message; `senders` are those whose filters contained it, one for each hit."""

    lamport: int
    message_id: str
    size: int
    next_at: int
    positions: tuple[int, ...]
    state: int = UNACKNOWLEDGED
    attempts: int = 0
    senders: list[str] = field(default_factory=list)


class OutgoingBuffer:
    """Invariants: at most `outgoing_max` messages and `outgoing_size_max` bytes; the heap has the
    next time of each. `dirty` are ids whose row changed; `gone` has the lamport of removed ones.
    """

    __slots__ = (
        *("parameters", "prng", "entries", "size", "backlog", "backlog_from"),
        *("dirty", "gone", "_heap"),
    )

    def __init__(self, parameters: Parameters, prng: Prng) -> None:
        self.parameters, self.prng = parameters, prng
        self.entries: dict[str, Outgoing] = {}
        self.size = 0
        self.backlog = 0  # messages in the store that found no room
        self.backlog_from = b""  # key of the first of them
        self.dirty: dict[str, None] = {}
        self.gone: dict[str, int] = {}
        self._heap: list[tuple[int, int, str]] = []

    def has_room(self, size: int) -> bool:
        """Whether a message of this size fits."""
        limits = self.parameters
        if not self.entries:
            return True
        fits = self.size + size <= limits.outgoing_size_max
        return fits and len(self.entries) < limits.outgoing_max

    def add(self, lamport: int, message_id: str, size: int, next_at: int) -> Outgoing:
        assert message_id not in self.entries
        bits = bloom.positions(message_id, self.parameters.geometry)
        made = Outgoing(lamport, message_id, size, next_at, bits)
        self.entries[message_id] = made
        self.size += size
        self.dirty[message_id] = None
        heappush(self._heap, (next_at, lamport, message_id))
        return made

    def remove(self, message_id: str) -> Outgoing | None:
        """The message, if it was here: it is acknowledged, or given up."""
        found = self.entries.pop(message_id, None)
        if found is not None:
            self.size -= found.size
            self.gone[message_id] = found.lamport
            self.dirty.pop(message_id, None)
        return found

    def review_filter(self, data: bytes, sender: str, others: int) -> list[tuple[Outgoing, bool]]:
        """Messages that the filter contains, and whether that is enough. `others`: participants
        heard of: from two on, hits must be of two of them, as one's false positives persist.
        """
        found = []
        needed = self.parameters.hits_needed
        for entry in self.entries.values():
            if not bloom.contains(data, entry.positions):
                continue
            if others < 2 or sender not in entry.senders:
                entry.senders.append(sender)
            found.append((entry, len(entry.senders) >= needed))
        for entry, enough in found:
            if enough:
                self.remove(entry.message_id)
            else:
                entry.state = POSSIBLY
                self.dirty[entry.message_id] = None
        return found

    def pause(self, entry: Outgoing) -> int:
        """Time until the next attempt, in ms: doubled with each, and spread by a fifth."""
        limits = self.parameters
        doubled = limits.resend_ms_min << min(entry.attempts, 16)
        pause = min(doubled, limits.resend_ms_max)
        if entry.state == POSSIBLY:
            pause *= limits.possible_factor
        return max(1, pause * self.prng.between(80, 120) // 100)

    def pop_due(self, now_ms: int) -> tuple[list[Outgoing], list[Outgoing]]:
        """(to be sent again, given up), oldest first, at most a batch of them."""
        due: list[Outgoing] = []
        limit = self.parameters.resend_attempts_max
        while self._heap and self._heap[0][0] <= now_ms:
            if len(due) >= self.parameters.resend_batch:
                break
            next_at, _, message_id = heappop(self._heap)
            entry = self.entries.get(message_id)
            if entry is not None and entry.next_at == next_at:
                entry.next_at = -1  # not in the heap any more
                due.append(entry)
        due.sort(key=lambda entry: (entry.lamport, entry.message_id))
        given_up = [entry for entry in due if limit and entry.attempts >= limit]
        for entry in given_up:
            self.remove(entry.message_id)
        again = [entry for entry in due if entry.message_id in self.entries]
        for entry in again:
            entry.attempts += 1
            self.schedule(entry, now_ms + self.pause(entry))
        return again, given_up

    def schedule(self, entry: Outgoing, next_at: int) -> None:
        entry.next_at = next_at
        self.dirty[entry.message_id] = None
        heappush(self._heap, (next_at, entry.lamport, entry.message_id))

    def all_due(self, now_ms: int) -> None:
        """A link came up: what waits is sent now."""
        for entry in self.entries.values():
            entry.next_at = now_ms
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(e.next_at, e.lamport, e.message_id) for e in self.entries.values()]
        heapify(self._heap)

    def deadline(self) -> int | None:
        while self._heap:
            next_at, _, message_id = self._heap[0]
            entry = self.entries.get(message_id)
            if entry is not None and entry.next_at == next_at:
                break
            heappop(self._heap)
        if len(self._heap) > 2 * len(self.entries) + 64:
            self._rebuild()
        return self._heap[0][0] if self._heap else None

    def check(self) -> None:
        """Assert what the class promises."""
        assert self.size == sum(entry.size for entry in self.entries.values())
        assert len(self.entries) <= max(1, self.parameters.outgoing_max)
        heap = set(self._heap)
        for entry in self.entries.values():
            assert (entry.next_at, entry.lamport, entry.message_id) in heap
            assert entry.state in (UNACKNOWLEDGED, POSSIBLY)
