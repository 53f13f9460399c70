"""Rate limits per device, user, room and address: how many may pass now, and when to come again.

A bucket is one number: the time at which it would be empty again if nothing more came (GCRA).
Integers only; a rate of RATE_UNLIMITED or more is not looked at.
"""

from appliance.base.limits import BUCKETS_MAX, RATE_BURST_MS, RATE_UNLIMITED

_MS_NS = 1_000_000
_SECOND_NS = 1_000_000_000


class Buckets:
    """One kind of limit, for many keys. The keys longest unused are forgotten beyond a bound."""

    __slots__ = ("name", "_cost_ns", "_burst_ns", "_full_at", "_buckets_max")

    def __init__(self, name: str, rate: int, buckets_max: int = BUCKETS_MAX) -> None:
        assert rate > 0
        self.name = name
        self._cost_ns = 0 if rate >= RATE_UNLIMITED else max(1, _SECOND_NS // rate)
        self._burst_ns = max(RATE_BURST_MS * _MS_NS, self._cost_ns)
        self._full_at: dict[bytes | int | str, int] = {}
        self._buckets_max = buckets_max

    def room_for(self, key: bytes | int | str, now_ns: int, count: int) -> int:
        """How many of `count` may pass now."""
        cost = self._cost_ns
        if cost == 0:
            return count
        used_ns = max(self._full_at.get(key, 0) - now_ns, 0)
        return max(0, min(count, (self._burst_ns - used_ns) // cost))

    def take(self, key: bytes | int | str, now_ns: int, count: int) -> None:
        """Let `count` pass."""
        if self._cost_ns == 0 or count == 0:
            return
        full_at = max(self._full_at.pop(key, 0), now_ns) + count * self._cost_ns
        self._full_at[key] = full_at  # now the newest in order
        if len(self._full_at) > self._buckets_max:
            del self._full_at[next(iter(self._full_at))]

    def retry_after_ms(self, key: bytes | int | str, now_ns: int) -> int:
        """Milliseconds until one more may pass, at least 1."""
        used_ns = max(self._full_at.get(key, 0) - now_ns, 0)
        return max(1, -(-(used_ns + self._cost_ns - self._burst_ns) // _MS_NS))

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_ms(self, key: bytes | int | str, now_ns: int) -> int:
        """Take one: 0 if it may pass, else nothing is taken, and milliseconds to wait."""
        if self.room_for(key, now_ns, 1) < 1:
            return self.retry_after_ms(key, now_ns)
        self.take(key, now_ns, 1)
        return 0


class Admission:
    """The four limits together."""

    __slots__ = ("device", "user", "room", "address", "limited")

    def __init__(
        self, *, device_rate: int, user_rate: int, room_rate: int, address_rate: int
    ) -> None:
        self.device = Buckets("device", device_rate)
        self.user = Buckets("user", user_rate)
        self.room = Buckets("room", room_rate)
        self.address = Buckets("address", address_rate)
        self.limited = min(device_rate, user_rate, room_rate, address_rate) < RATE_UNLIMITED

    def admit(
        self,
        now_ns: int,
        count: int,
        *,
        device: bytes,
        user: int,
        address: str,
        room: bytes | None = None,
    ) -> tuple[int, str, int]:
        """(how many of `count` pass, which limit stopped the others, milliseconds to wait)."""
        if not self.limited:
            return count, "", 0
        keyed: list[tuple[Buckets, bytes | int | str]] = [
            (self.device, device),
            (self.user, user),
            (self.address, address),
        ]
        if room is not None:
            keyed.append((self.room, room))
        granted, tightest = count, 0
        for i, (buckets, key) in enumerate(keyed):
            passing = buckets.room_for(key, now_ns, count)
            if passing < granted:
                granted, tightest = passing, i
        for buckets, key in keyed:
            buckets.take(key, now_ns, granted)
        if granted == count:
            return count, "", 0
        buckets, key = keyed[tightest]
        return granted, buckets.name, buckets.retry_after_ms(key, now_ns)

    def charge(self, now_ns: int, count: int, *, device: bytes, user: int, address: str) -> None:
        """Count what was done already; what is too much is waited for by whatever comes next."""
        if self.limited:
            self.device.take(device, now_ns, count)
            self.user.take(user, now_ns, count)
            self.address.take(address, now_ns, count)

    def admit_refused(
        self, now_ns: int, count: int, *, device: bytes, user: int, address: str
    ) -> int:
        """Count what is refused anyway, as a whole if one may pass: 0, or milliseconds to wait."""
        granted, _, wait_ms = self.admit(now_ns, count, device=device, user=user, address=address)
        if 0 < granted < count:
            self.charge(now_ns, count - granted, device=device, user=user, address=address)
            wait_ms = self.admit(now_ns, 1, device=device, user=user, address=address)[2]
        return wait_ms

    def admit_address(self, now_ns: int, address: str) -> int:
        """0 if a client of which only the address is known may go on, else milliseconds to wait."""
        return self.address.wait_ms(address, now_ns)

    def admit_user(self, now_ns: int, user: int) -> int:
        """0 if this user may open one more connection, else milliseconds to wait."""
        return self.user.wait_ms(user, now_ns)
