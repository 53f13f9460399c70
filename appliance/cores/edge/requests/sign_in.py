"""Who is there: hello, refresh_token; and ping."""

from appliance.base import limits
from appliance.cores.edge.requests.charges import Charges
from appliance.cores.edge.requests.clock import Clock
from appliance.cores.edge.requests.directory import Directories
from appliance.cores.edge.requests.handler import Handler
from appliance.cores.edge.session import Session
from appliance.cores.edge.subscription import Fanout
from appliance.cores.edge.token import Claims, Tokens
from appliance.formats.author import author_name
from appliance.formats.client.connection import NodeState, Ping, Pong
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.client.rights import READ
from appliance.formats.client.sign_in import ConnectionLimits, Hello, RefreshToken, Welcome
from appliance.formats.client_errors import (
    ConnectionsTooMany,
    FieldInvalid,
    Forbidden,
    HelloRepeated,
    RateLimited,
    TokenInvalid,
)

LIMITS = ConnectionLimits(
    frame_size_max=limits.CLIENT_FRAME_SIZE_MAX,
    body_size_max=limits.BODY_SIZE_MAX,
    room_name_size_max=limits.ROOM_NAME_SIZE_MAX,
    snapshot_limit_max=limits.SNAPSHOT_LIMIT_MAX,
    subscriptions_max=limits.SESSION_SUBSCRIPTIONS_MAX,
    sends_in_flight_max=limits.SESSION_SENDS_MAX,
)


class SignIn:
    """Knows which users are there, and tells each session of the state of this node."""

    def __init__(
        self,
        *,
        node: int,
        epoch: int,
        clock: Clock,
        charges: Charges,
        tokens: Tokens,
        fanout: Fanout,
    ) -> None:
        self.stale: dict[int, int] = {}  # shard -> since when its replica here hears no quorum, us
        self.users: dict[int, int] = {}  # author -> connections that are welcome
        self._node, self._epoch = node, epoch
        self._clock, self._charges, self._tokens, self._fanout = clock, charges, tokens, fanout
        self.directories = Directories(charges=charges)
        self.handlers: dict[type, Handler] = {
            Hello: self._hello,
            RefreshToken: self._refresh,
            Ping: self._ping,
        }

    def forget(self, session: Session) -> None:
        """A session that was welcome is gone."""
        assert session.claims is not None
        author_id = session.claims.author_id
        self.users[author_id] -= 1
        if not self.users[author_id]:
            del self.users[author_id]

    def admit(self, address: str, token: str) -> Claims:
        """What the token of a handshake says, while there is no connection yet. Raises RateLimited
        and as `Tokens.verify`."""
        wait_ms = self._charges.admit_address(address)
        if wait_ms:
            raise RateLimited("too many tokens from this address", wait_ms)
        return self._tokens.verify(token, self._clock.now_us)

    def _hello(self, session: Session, frame: Hello) -> bool:
        if session.state != "new":
            raise HelloRepeated("this connection has said hello already")
        admitted = session.claims  # by the handshake, and counted there
        wait_ms = 0 if admitted else self._charges.admit_address(session.address)
        if wait_ms:
            raise RateLimited("too many hellos from this address", wait_ms)
        client_id = id_bytes(frame.client_id)
        if not any(client_id):
            raise FieldInvalid("client_id is zero")
        claims = self._claims(frame.token, admitted)
        if self.directories.excluded:
            raise self.directories.go_elsewhere(session)
        author_id = claims.author_id
        wait_ms = self._charges.admit_user(author_id)
        if wait_ms:
            raise RateLimited("too many hellos of this user", wait_ms)
        if self.users.get(author_id, 0) >= limits.USER_CONNECTIONS_MAX:
            raise ConnectionsTooMany(f"at most {limits.USER_CONNECTIONS_MAX} of a user")
        self.users[author_id] = self.users.get(author_id, 0) + 1
        session.claims, session.client_id = claims, client_id
        session.device = client_id + author_id.to_bytes(8, "little")
        self._welcome(session, frame.request)
        return True

    def _claims(self, token: str | None, admitted: Claims | None) -> Claims:
        """Of the token in hello, else of the handshake's; both are one author's."""
        if token is None:
            if admitted is None:
                raise TokenInvalid("neither the handshake nor hello has brought a token")
            self._tokens.verify_still(admitted, self._clock.now_us)
            return admitted
        claims = self._tokens.verify(token, self._clock.now_us)
        if admitted is not None and claims.author != admitted.author:
            raise TokenInvalid("the token of hello is another author's than the handshake's")
        return claims

    def _refresh(self, session: Session, frame: RefreshToken) -> bool:
        assert session.claims is not None
        claims = self._tokens.verify(frame.token, self._clock.now_us)
        if claims.author != session.claims.author:
            raise TokenInvalid("the new token is another author's")
        session.claims = claims
        session.rights.clear()
        self._welcome(session, frame.request)
        for room_id, subscription in list(session.subscriptions.items()):
            if not claims.rights_in(subscription.room.name) & READ:
                self._fanout.drop(session, room_id)
                error = Forbidden("the new token does not allow to read this room")
                self._charges.count_error(error)
                session.refuse(error, room_id=id_of(room_id))
        return True

    def _welcome(self, session: Session, request: str | None) -> None:
        assert session.claims is not None
        session.on_event("welcome")
        session.send(
            Welcome(
                author_id=str(session.claims.author_id),
                author=author_name(session.claims.author_id),
                client_id=id_of(session.client_id),
                expires_at=session.claims.expires_us,
                node=self._node,
                epoch=self._epoch,
                limits=LIMITS,
                request=request,
            )
        )
        if self.stale:
            session.send(NodeState(stale_since=self.stale_since))

    @property
    def stale_since(self) -> int | None:
        """Since when this node may lack what a shard has committed, us; None: it lacks nothing."""
        return min(self.stale.values(), default=None)

    def _ping(self, session: Session, frame: Ping) -> bool:
        session.send(Pong(request=frame.request))
        return True
