"""Who reads beside all conversations: a session of no connection, with the claims of a token."""

from collections.abc import Callable

from appliance.cores.edge.catalogue import Room
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.session import ZERO16, Session
from appliance.cores.edge.token import Claims, Tokens
from appliance.formats.client_errors import Unavailable

_NO_FRAMES = Encoding(binary=True, framing=bytes)


class Reader:
    """One who reads one thing, step by step; `close` comes at last, once, and calls `on_close`.

    What looks rooms up and counts rates knows readers as sessions, all of a user as one device, so
    that what they read takes nothing from what his others may say; the claims are those that
    `claims` gives, at the beginning and at each `verify`.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        access: Access,
        tokens: Tokens,
        address: str,
        claims: Callable[[], Claims],
        on_close: Callable[[], None],
    ) -> None:
        self.clock, self.access = clock, access
        self._charges, self._tokens = charges, tokens
        self._newest_claims, self._on_close = claims, on_close
        self._claims = claims()
        self._session = Session(
            number=0, address=address, encoding=_NO_FRAMES, now_ns=clock.now_ns, dirty=[]
        )
        self._session.claims = self._claims
        self._session.device = ZERO16 + self._claims.author_id.to_bytes(8, "little")
        self._session.on_event("welcome")

    @property
    def is_held_up(self) -> bool:
        """Whether a look-up or what is being mended is waited for."""
        return self._session.awaits is not None or self._session.mended_by_ns > 0

    def verify(self) -> None:
        """Look anew at what the token allows. Raises as `Tokens.verify_still`."""
        claims = self._newest_claims()
        if claims is not self._claims:
            self._claims = self._session.claims = claims
            self._session.rights.clear()
        self._tokens.verify_still(claims, self.clock.now_us)

    def room(self, room_id: bytes) -> Room | None:
        """One that may be read; None: it is being looked up. Raises Forbidden, RoomUnknown."""
        self._session.rights.clear()  # the room may allow other things by now
        return self.access.readable(self._session, room_id)

    def admit(self) -> bool:
        """Whether one more message may be read now, by the rates; it is counted then."""
        return bool(self._charges.admit(self._session, 1)[0])

    def charge(self, work: int) -> None:
        """What was read cost so much more."""
        self._charges.charge_work(self._session, work)

    def wait_for_mending(self) -> None:
        """What is read is broken. Raises Unavailable when that was waited for long enough."""
        if not self.access.awaits_mending(self._session):
            raise Unavailable("a stored segment is broken; it is being repaired")

    def on_read(self) -> None:
        """Nothing that is broken stands in the way."""
        self._session.mended_by_ns = 0

    def close(self) -> None:
        """Nobody waits for what is read."""
        self.access.lookup.leave(self._session)
        self._session.on_event("close")
        self._on_close()
