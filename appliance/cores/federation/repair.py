"""When a participant asks the others for a missing message, and when it answers them.

Times follow from names and ids, so that few ask and few answer at once; they are never sent.
Source: the SDS-R draft; H is the first 8 bytes of SHA-256, big-endian.
"""

import hashlib
from heapq import heappop, heappush

_U64 = 8  # bytes


def digest64(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:_U64], "big")


def request_delay(me: str, message_id: str, *, low_ms: int, high_ms: int) -> int:
    """T_req - now: in [low, high)."""
    assert 0 <= low_ms < high_ms
    return low_ms + digest64(me + message_id) % (high_ms - low_ms)


def response_delay(me: str, sender: str, message_id: str, *, high_ms: int) -> int:
    """T_resp - now: in [0, high); the sender itself answers at once."""
    return (digest64(me) ^ digest64(sender)) * digest64(message_id) % high_ms


def in_response_group(me: str, sender: str, message_id: str, groups: int) -> bool:
    """Whether `me` may answer; the sender always may."""
    if groups == 1:
        return True
    return digest64(me + message_id) % groups == digest64(sender + message_id) % groups


class Responses:
    """Messages that we will repeat, each at its time.

    Invariant: at most `limit`; over it, the one that is furthest away is forgotten.
    """

    __slots__ = ("limit", "times", "dirty", "_heap")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.times: dict[str, int] = {}
        self.dirty: dict[str, None] = {}
        self._heap: list[tuple[int, str]] = []

    def schedule(self, message_id: str, at_ms: int) -> bool:
        """Whether it was taken; one that is scheduled already keeps its time."""
        if message_id in self.times:
            return False
        if len(self.times) >= self.limit:
            latest = max(self.times, key=lambda other: (self.times[other], other))
            if (self.times[latest], latest) <= (at_ms, message_id):
                return False
            self.cancel(latest)
        self.times[message_id] = at_ms
        self.dirty[message_id] = None
        heappush(self._heap, (at_ms, message_id))
        return True

    def cancel(self, message_id: str) -> None:
        if self.times.pop(message_id, None) is not None:
            self.dirty[message_id] = None

    def pop_due(self, now_ms: int) -> list[str]:
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, message_id = heappop(self._heap)
            if self.times.get(message_id) == at_ms:
                self.cancel(message_id)
                found.append(message_id)
        return found

    def deadline(self) -> int | None:
        while self._heap and self.times.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        if len(self._heap) > 2 * len(self.times) + 64:  # cancelled ones pile up
            self._heap = sorted((at, message_id) for message_id, at in self.times.items())
        return self._heap[0][0] if self._heap else None
