"""Nonces a server gave out, and the counts that were used with them."""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

from appliance.base.limits import FARM_NONCE_AGE_MS_MAX, FARM_NONCE_COUNTS_MAX, FARM_NONCES_MAX

KEY_SIZE = 32  # bytes, random, made anew at each start: nonces from before are then stale
ENTROPY_SIZE = 16  # random bytes in each nonce
_STAMP_SIZE, _SEAL_SIZE = 8, 16
_WINDOW = (1 << FARM_NONCE_COUNTS_MAX) - 1


@dataclass(slots=True)
class _Counts:
    highest: int
    used: int  # bit i: count highest - i was used


class Nonces:
    """A nonce is a time, random bytes and a keyed hash over both, so an old one needs no table.

    Counts of each nonce in use are accepted once, in any order within the newest
    FARM_NONCE_COUNTS_MAX. When the table is full the oldest nonce is forgotten, and with it all
    that are as old: they are stale, and no count is ever accepted twice.
    """

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_SIZE
        self._key = key
        self._counts: dict[str, _Counts] = {}  # nonce -> what was used of it
        self._floor_ms = -1  # nonces of this time and before are stale

    def make(self, now_ms: int, entropy: bytes) -> str:
        """A new nonce. The time in it never runs backwards past a forgotten one."""
        assert len(entropy) == ENTROPY_SIZE
        head = max(now_ms, self._floor_ms + 1).to_bytes(_STAMP_SIZE, "big") + entropy
        return base64.b64encode(head + self._seal(head)).decode()

    def accept(self, nonce: str, count: int, now_ms: int) -> bool:
        """Use `count` of `nonce`; False: unknown, too old, or used. Only after the hash fits."""
        made_ms = self._time_of(nonce)
        if made_ms is None or made_ms <= self._floor_ms:
            return False
        if (
            not made_ms <= now_ms + FARM_NONCE_AGE_MS_MAX
            or now_ms - made_ms > FARM_NONCE_AGE_MS_MAX
        ):
            return False
        known = self._counts.get(nonce)
        if known is None:
            self._remember(nonce)
            known = self._counts.setdefault(nonce, _Counts(highest=0, used=1))  # zero is used
            if made_ms <= self._floor_ms:
                del self._counts[nonce]
                return False
        if count > known.highest:
            known.used = (known.used << min(count - known.highest, FARM_NONCE_COUNTS_MAX)) & _WINDOW
            known.used |= 1
            known.highest = count
            return True
        back = known.highest - count
        if back >= FARM_NONCE_COUNTS_MAX or known.used >> back & 1:
            return False
        known.used |= 1 << back
        return True

    def _remember(self, nonce: str) -> None:
        if len(self._counts) < FARM_NONCES_MAX:
            return
        times = {other: self._time_of(other) or 0 for other in self._counts}
        self._floor_ms = max(self._floor_ms, min(times.values()))
        for other, made_ms in times.items():
            if made_ms <= self._floor_ms:
                del self._counts[other]

    def _seal(self, head: bytes) -> bytes:
        return hashlib.blake2b(head, key=self._key, digest_size=_SEAL_SIZE).digest()

    def _time_of(self, nonce: str) -> int | None:
        try:
            raw = base64.b64decode(nonce, validate=True)
        except (binascii.Error, ValueError):
            return None
        head, seal = raw[:-_SEAL_SIZE], raw[-_SEAL_SIZE:]
        if len(head) != _STAMP_SIZE + ENTROPY_SIZE:
            return None
        if not hmac.compare_digest(seal, self._seal(head)):
            return None
        if base64.b64encode(raw).decode() != nonce:
            return None  # another spelling of the same bytes would have counts of its own
        return int.from_bytes(head[:_STAMP_SIZE], "big")
