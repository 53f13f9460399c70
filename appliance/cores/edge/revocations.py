"""Tokens that operators took back, as shard 0 tells: what is said there from now on, and what was
said before, as long ago as a token may live whose issuer's clock was ahead."""

from collections.abc import Callable, Sequence

from appliance.base.limits import CLOCK_SKEW_US, REVOCATIONS_MAX
from appliance.cores.edge.token import Claims
from appliance.formats.revocation import decode_revocation

_SECOND_US = 1_000_000


class Revocations:
    """Bounded: the newest `REVOCATIONS_MAX`, and none that is older than every token."""

    def __init__(self, life_s_max: int) -> None:
        self.on_news: Callable[[], None] = lambda: None  # open sessions are to be judged anew
        self._life_us = life_s_max * _SECOND_US + CLOCK_SKEW_US  # of a token that was there
        self._said: dict[tuple[str, str], int] = {}  # (claim, value) -> when, us since the epoch
        self._newest_us = 0

    def __len__(self) -> int:
        return len(self._said)

    def is_revoked(self, claims: Claims) -> bool:
        """Of a user only tokens that may have been there: with a newer one he may come again. The
        issuer's clock may have been ahead, and who issued at an unknown time may have done so
        before."""
        if claims.jti and ("jti", claims.jti) in self._said:
            return True
        said_us = self._said.get(("sub", claims.author))
        return said_us is not None and claims.issued_us <= said_us + CLOCK_SKEW_US

    def learn(self, acts: Sequence[tuple[int, bytes]]) -> None:
        """As `shard_room.Listener`."""
        known = len(self._said), self._newest_us
        for said_us, body in acts:
            revocation = decode_revocation(body)
            if revocation is not None:
                self._note((revocation.claim, revocation.value), said_us)
        if (len(self._said), self._newest_us) != known:
            self.on_news()

    def since_us(self, now_us: int) -> int:
        """A token that is older than this has ended."""
        return now_us - self._life_us

    def _note(self, key: tuple[str, str], said_us: int) -> None:
        if self._said.get(key, 0) >= said_us:
            return
        self._said[key] = said_us
        self._newest_us = max(self._newest_us, said_us)
        if len(self._said) > REVOCATIONS_MAX:
            self._forget()

    def _forget(self) -> None:
        """What no token can have lived through; of the others the oldest."""
        left = sorted(self._said.items(), key=lambda row: -row[1])[: REVOCATIONS_MAX * 9 // 10]
        oldest_us = self._newest_us - self._life_us
        self._said = {key: us for key, us in left if us >= oldest_us}
