"""What is read step by step, beside all conversations: by whoever bears a token, or asks in one."""

from functools import partial
from typing import Any

from appliance.base import limits
from appliance.cores.edge.export import RoomExport
from appliance.cores.edge.message_search import MessageSearch
from appliance.cores.edge.reader import Reader
from appliance.cores.edge.requests.access import Access
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.session import Session
from appliance.cores.edge.token import Claims, Tokens
from appliance.cores.edge.user_shares import UserShares
from appliance.formats.client_errors import RateLimited


class Readers:
    """Makes what answers them, each driven by who asked for it and closed at last; so many of a
    user and of all at a time. `stale` is written by the edge."""

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        access: Access,
        tokens: Tokens,
        stale: dict[int, int],
        shard_count: int,
    ) -> None:
        self._clock, self._charges, self._tokens = clock, charges, tokens
        self._reader = partial(Reader, clock=clock, charges=charges, access=access, tokens=tokens)
        self._stale, self._shard_count = stale, shard_count
        self._exports = UserShares(
            "files of rooms are being made",
            user_max=limits.EXPORTS_OF_USER_MAX,
            all_max=limits.EXPORTS_MAX,
        )
        self._searches = UserShares(
            "searches are under way",
            user_max=limits.MESSAGE_SEARCHES_OF_USER_MAX,
            all_max=limits.MESSAGE_SEARCHES_MAX,
        )

    def export(self, address: str, token: str, room_id: bytes, until_op: int | None) -> RoomExport:
        """The records of a room up to an op; None: to the newest. Raises RateLimited, Busy, and as
        `Tokens.verify`."""
        return RoomExport(self._of_bearer(address, token, self._exports), room_id, until_op)

    def search(self, address: str, token: str, msg_id: bytes) -> MessageSearch:
        """Where a message lies. Raises as `export`."""
        return self._search(self._of_bearer(address, token, self._searches), msg_id)

    def search_in(self, session: Session, msg_id: bytes) -> MessageSearch:
        """The same for who has a conversation, with what its newest token allows; it goes on beside
        the session's other frames. Raises Busy."""

        def claims() -> Claims:
            assert session.claims is not None
            return session.claims

        reader = self._shared(
            self._searches,
            claims().author_id,
            address=session.address,
            claims=claims,
        )
        return self._search(reader, msg_id)

    def _search(self, reader: Reader, msg_id: bytes) -> MessageSearch:
        return MessageSearch(reader, msg_id, stale=self._stale, shard_count=self._shard_count)

    def _of_bearer(self, address: str, token: str, shares: UserShares) -> Reader:
        wait_ms = self._charges.admit_address(address)
        if wait_ms:
            raise RateLimited("too many requests from this address", wait_ms)
        claims = self._tokens.verify(token, self._clock.now_us)
        wait_ms = self._charges.admit_user(claims.author_id)
        if wait_ms:
            raise RateLimited("too many requests of this user", wait_ms)
        return self._shared(shares, claims.author_id, address=address, claims=lambda: claims)

    def _shared(self, shares: UserShares, author_id: int, **words: Any) -> Reader:
        shares.enter(author_id)
        return self._reader(on_close=partial(shares.leave, author_id), **words)
