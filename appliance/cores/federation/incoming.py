"""Messages received and not yet in the log: waiting for dependencies, or for the log to commit.

A dependency is met by the log, or by a message that stands before in the same append: never by one
that merely waits, or messages would be delivered before what they answer.

    arrived --dependencies missing--> waiting --the last is met--> ready --committed--> (the log)
       +------------ none missing ------------------------------------^
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from appliance.cores.federation.parameters import Parameters
from appliance.formats.causal.message import Message

_SHARE = 4  # one sender may hold a quarter of the buffer


@dataclass(slots=True)
class Waiting:
    """One message and what it still waits for; `gap` are dependencies given up as lost."""

    message: Message
    wire: bytes
    arrived: int
    missing: dict[str, None]
    gap: list[str]
    hint: bytes | None = None
    late: bool = False


def _lamport(waiting: Waiting) -> int:
    assert waiting.message.lamport is not None
    return waiting.message.lamport


class IncomingBuffer:
    """Invariants: `dependents` has a key for exactly each id that some waiting message misses, with
    exactly those messages; sizes and counts are those of `waiting` and `ready` together and stay
    within their caps.
    """

    __slots__ = (
        *("parameters", "waiting", "ready", "dependents", "size", "dirty"),
        *("_shares", "_heap", "_heaps"),
    )

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.waiting: dict[str, Waiting] = {}
        self.ready: dict[str, Waiting] = {}
        self.dependents: dict[str, dict[str, None]] = {}
        self.size = 0
        self.dirty: dict[str, None] = {}
        self._shares: dict[str, tuple[int, int]] = {}  # sender -> messages, bytes
        self._heap: list[tuple[int, str]] = []  # waiting ones, largest lamport first
        self._heaps: dict[str, list[tuple[int, str]]] = {}  # the same, by sender

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.waiting or message_id in self.ready

    def __len__(self) -> int:
        return len(self.waiting) + len(self.ready)

    def get(self, message_id: str) -> Waiting | None:
        return self.waiting.get(message_id) or self.ready.get(message_id)

    def make_room(self, message: Message, size: int) -> list[Waiting] | None:
        """Those that leave so that `message` fits; None: it does not fit."""
        assert message.lamport is not None
        evicted: list[Waiting] = []
        while not self._fits_share(message.sender_id, size):
            if not self._evict(self._heaps.get(message.sender_id, []), message.lamport, evicted):
                return None
        while not self._fits(size):
            if not self._evict(self._heap, message.lamport, evicted):
                return None
        return evicted

    def _evict(self, heap: list[tuple[int, str]], lamport: int, evicted: list[Waiting]) -> bool:
        """The waiting message with the largest lamport leaves, if it is larger than this one."""
        while heap and heap[0][1] not in self.waiting:
            heappop(heap)
        if not heap or -heap[0][0] <= lamport:
            return False
        largest = self.waiting[heap[0][1]]
        self._leave(largest)
        evicted.append(largest)
        return True

    def _fits_share(self, sender: str, size: int) -> bool:
        limits = self.parameters
        count, held = self._shares.get(sender, (0, 0))
        if count + 1 > max(1, limits.waiting_max // _SHARE):
            return False
        return held + size <= max(size, limits.waiting_size_max // _SHARE)

    def _fits(self, size: int) -> bool:
        limits = self.parameters
        return len(self) < limits.waiting_max and self.size + size <= limits.waiting_size_max

    def add(self, message: Message, wire: bytes, missing: Iterable[str], now_ms: int) -> Waiting:
        """A message that fits; with nothing missing it is ready at once."""
        made = Waiting(message, wire, now_ms, dict.fromkeys(missing), [])
        message_id = message.message_id
        assert message_id not in self
        count, held = self._shares.get(message.sender_id, (0, 0))
        self._shares[message.sender_id] = (count + 1, held + len(wire))
        self.size += len(wire)
        self.dirty[message_id] = None
        if made.missing:
            self.waiting[message_id] = made
            for missed in made.missing:
                self.dependents.setdefault(missed, {})[message_id] = None
            order_key = (-_lamport(made), message_id)
            heappush(self._heap, order_key)
            heappush(self._heaps.setdefault(message.sender_id, []), order_key)
            if len(self._heap) > 2 * len(self.waiting) + 64:  # stale ones pile up
                self._rebuild()
        else:
            self.ready[message_id] = made
        return made

    def met(self, dependency: str, *, lost: bool = False) -> list[Waiting]:
        """Messages that became ready now that this one is in the log, or is given up."""
        found = []
        for message_id in self.dependents.pop(dependency, ()):
            waiting = self.waiting[message_id]
            del waiting.missing[dependency]
            if lost:
                waiting.gap.append(dependency)
            if not waiting.missing:
                del self.waiting[message_id]
                self.ready[message_id] = waiting
                found.append(waiting)
        return found

    def remove_ready(self, message_id: str) -> Waiting | None:
        """A ready one that is in the log now."""
        found = self.ready.pop(message_id, None)
        if found is not None:
            self._forget(found)
        return found

    def forget(self, message_id: str) -> None:
        """One that the log has from elsewhere."""
        if self.remove_ready(message_id) is None and message_id in self.waiting:
            self._leave(self.waiting[message_id])

    def oldest(self) -> Waiting | None:
        """The waiting message that arrived first."""
        return next(iter(self.waiting.values()), None)

    def _rebuild(self) -> None:
        self._heap, self._heaps = [], {}
        for message_id, waiting in self.waiting.items():
            order_key = (-_lamport(waiting), message_id)
            self._heap.append(order_key)
            self._heaps.setdefault(waiting.message.sender_id, []).append(order_key)
        for heap in (self._heap, *self._heaps.values()):
            heapify(heap)

    def _leave(self, waiting: Waiting) -> None:
        message_id = waiting.message.message_id
        del self.waiting[message_id]
        for missed in waiting.missing:
            dependents = self.dependents[missed]
            del dependents[message_id]
            if not dependents:
                del self.dependents[missed]
        self._forget(waiting)

    def _forget(self, waiting: Waiting) -> None:
        sender = waiting.message.sender_id
        count, held = self._shares[sender]
        if count == 1:
            del self._shares[sender]
        else:
            self._shares[sender] = (count - 1, held - len(waiting.wire))
        self.size -= len(waiting.wire)
        self.dirty[waiting.message.message_id] = None

    def check(self) -> None:
        """Assert what the class promises."""
        everyone = [*self.waiting.values(), *self.ready.values()]
        assert self.size == sum(len(waiting.wire) for waiting in everyone)
        assert len(everyone) <= self.parameters.waiting_max
        assert sum(count for count, _ in self._shares.values()) == len(everyone)
        expected: dict[str, set[str]] = {}
        for message_id, waiting in self.waiting.items():
            assert waiting.missing
            for missed in waiting.missing:
                expected.setdefault(missed, set()).add(message_id)
        assert {missed: set(found) for missed, found in self.dependents.items()} == expected
        assert not any(waiting.missing for waiting in self.ready.values())
