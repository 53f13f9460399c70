"""All connections of the edge: how they come, what is written to them, and why they must go."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from appliance.base import limits
from appliance.base.errors import InputError
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.expiries import Expiries
from appliance.cores.edge.lookup import Lookup
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.requests.directory import Directories
from appliance.cores.edge.requests.sign_in import SignIn
from appliance.cores.edge.session import Session
from appliance.cores.edge.subscription import Fanout
from appliance.cores.edge.token import Claims, Tokens
from appliance.formats.client.connection import NextNode
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import Frame
from appliance.formats.client.rights import READ
from appliance.formats.client_errors import (
    Closing,
    Forbidden,
    FrameTooLarge,
    HeldTooMuch,
    HelloLate,
    SubscriptionTooSlow,
    TokenExpired,
)

CLOSE = "close"  # effect: (CLOSE, session, error), after its output was written
_MS_NS = 1_000_000


class Connections:
    """The sessions, by number. Whoever closes one does it here."""

    def __init__(
        self,
        *,
        clock: Clock,
        charges: Charges,
        tokens: Tokens,
        lookup: Lookup,
        fanout: Fanout,
        sign_in: SignIn,
    ) -> None:
        self.sessions: dict[int, Session] = {}
        self.on_left: Callable[[Session], None] = lambda session: None
        self._clock, self._charges, self._tokens = clock, charges, tokens
        self._lookup, self._fanout, self._sign_in = lookup, fanout, sign_in
        self._dirty: list[Session] = []
        self._new: deque[Session] = deque()  # have not said hello, oldest first
        self._expiries = Expiries()
        self._closings: list[tuple[str, Session, InputError]] = []
        self._numbers = 0

    # --- coming

    def open(self, address: str, encoding: Encoding, claims: Claims | None) -> Session:
        """A connection is there; its session, in state "new". `claims`: of its handshake."""
        self._numbers += 1
        session = Session(
            number=self._numbers,
            address=address,
            encoding=encoding,
            now_ns=self._clock.now_ns,
            dirty=self._dirty,
        )
        session.claims = claims
        self.sessions[session.number] = session
        self._new.append(session)
        return session

    def on_claims(self, session: Session) -> None:
        """The session has brought a token: it ends when the token does."""
        assert session.claims is not None
        self._expiries.put(session.number, session.claims.expires_us)
        self.end_unread(session, list(session.subscriptions))

    def end_unread(self, session: Session, room_ids: Iterable[bytes]) -> None:
        """Subscriptions to these rooms end where token and room do not both allow to read."""
        for room_id in room_ids:
            subscription = session.subscriptions.get(room_id)
            if subscription is None or session.claims is None:
                continue
            if not self._lookup.rights.bits(session.claims, subscription.room.name) & READ:
                self._fanout.drop(session, room_id)
                why = "token and room do not both allow to read it"
                self.refuse(session, Forbidden(why), room_id=id_of(room_id))

    def tell(self, frame: Frame) -> None:
        """Send a frame to every session that has said hello."""
        for session in self.sessions.values():
            if session.state == "ready":
                session.send(frame)

    # --- going

    def forget(self, session: Session) -> None:
        """The connection is gone."""
        self._leave(session)
        self.sessions.pop(session.number, None)

    def on_oversize(self, session: Session) -> None:
        """A frame was too large to be received at all."""
        if session.state != "closed":
            self.refuse(
                session, FrameTooLarge(f"a frame has at most {session.frame_size_max} bytes now")
            )

    def refuse(self, session: Session, error: InputError, **named: Any) -> None:
        """Answer with an error, and close the connection if that error ends it."""
        self._charges.count_error(error)
        session.refuse(error, **named)
        if error.ends_connection or (error.ends_stranger and session.state == "new"):
            self._close(session, error)

    def _close(self, session: Session, error: InputError) -> None:
        self._leave(session)
        self._closings.append((CLOSE, session, error))

    def _leave(self, session: Session) -> None:
        if session.state == "closed":
            return
        self._lookup.leave(session)
        self._expiries.drop(session.number)
        if session.state == "ready":
            self._sign_in.forget(session)
            self.on_left(session)
        for room_id in list(session.subscriptions):
            self._fanout.drop(session, room_id)
        session.waiting.clear()
        session.on_event("close")

    def on_keys(self) -> None:
        """Keys of the issuer or single tokens are not trusted any more: who came with one must
        leave."""
        for session in list(self.sessions.values()):
            if session.state != "ready":
                continue
            assert session.claims is not None
            error = self._tokens.distrust(session.claims)
            if error is not None:
                self._charges.count_error(error)
                session.refuse(error)
                self._close(session, error)

    def on_held(self, held: list[tuple[Session, int]]) -> None:
        """What the edge holds for connections that hold much, in bytes: the largest of a user or of
        all are closed until the others are within bounds."""
        total = sum(size for _, size in held)
        of_user: dict[int, int] = {}
        for session, size in held:
            user = -1 if session.claims is None else session.claims.author_id
            of_user[user] = of_user.get(user, 0) + size
        for session, size in sorted(held, key=lambda row: -row[1]):
            user = -1 if session.claims is None else session.claims.author_id
            if (
                size > limits.CONNECTION_HELD_MAX
                or total > limits.EDGE_HELD_MAX
                or of_user[user] > limits.USER_HELD_MAX
            ):
                total -= size
                of_user[user] -= size
                self._discard(session)

    def _discard(self, session: Session) -> None:
        """Close a connection that takes nothing, and drop what is held for it."""
        if session.state != "closed":
            session.out.clear()
            session.out_size = 0
            self.refuse(session, HeldTooMuch("too much waits for this connection"))

    def shut_down(self, elsewhere: Sequence[str]) -> None:
        """The node stops: every client is told to go to one of these addresses, in turn."""
        spread_ms = self._spread_ms()
        for number, session in enumerate(list(self.sessions.values())):
            if session.state != "closed":
                words = "this node is stopping"
                if elsewhere:
                    url = elsewhere[number % len(elsewhere)]
                    session.send(NextNode(url=url, spread=spread_ms))
                    words += f"; go to {url}"
                self.refuse(session, Closing(words))

    def send_away(self, directories: Directories) -> None:
        """This node is kept out of the directory: every client is told where to go instead."""
        spread_ms = self._spread_ms()
        for session in list(self.sessions.values()):
            if session.state == "ready":
                self.refuse(session, directories.go_elsewhere(session, spread_ms))

    def _spread_ms(self) -> int:
        """Over how long all who are here are to come to other nodes."""
        count = sum(session.state == "ready" for session in self.sessions.values())
        return min(limits.SPREAD_MS_OF_CLIENT * count, limits.SPREAD_MS_MAX)

    def close_late(self) -> None:
        """Close connections that have not said hello in time."""
        now_ns = self._clock.now_ns
        while self._new:
            session = self._new[0]
            if session.state == "new":
                if now_ns - session.opened_ns < limits.HELLO_MS_MAX * _MS_NS:
                    break
                self.refuse(session, HelloLate("no valid hello came in time"))
            self._new.popleft()

    def close_expired(self) -> None:
        """Close connections whose token is not valid any more."""
        for number in self._expiries.due(self._clock.now_us):
            session = self.sessions[number]
            error = TokenExpired("the session's token has expired")
            self._charges.count_error(error)
            session.refuse(error)
            self._close(session, error)

    def close_stuck(self) -> None:
        """Close connections that took nothing for very long; called every few seconds."""
        now_ns = self._clock.now_ns
        for session in list(self.sessions.values()):
            if (
                session.blocked
                and session.state == "ready"
                and now_ns - session.blocked_ns > limits.LAG_MS_MAX * _MS_NS
            ):
                self._close_too_slow(session)

    def _close_too_slow(self, session: Session) -> None:
        error = SubscriptionTooSlow("nothing was read for minutes", 0)
        for room_id, subscription in session.subscriptions.items():
            is_lagging = subscription.state == "lagging"
            next_op = subscription.next_op if is_lagging else subscription.room.head + 1
            error = SubscriptionTooSlow(str(error), next_op - 1)
            session.refuse(error, room_id=id_of(room_id))
        self._charges.count_error(error)
        self._close(session, error)

    # --- output

    def take_closings(self) -> list[tuple[str, Session, InputError]]:
        """Connections to close, in order."""
        closings, self._closings = self._closings, []
        return closings

    def take_output(self) -> list[tuple[Session, list[bytes]]]:
        """What is to be written, by session."""
        output = []
        for session in self._dirty:
            output.append((session, session.out))
            session.out, session.out_size, session.is_dirty = [], 0, False
        self._dirty.clear()
        return output
