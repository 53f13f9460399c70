"""The server's side of a login: from the first byte of a connection to the first Raft byte.

request without credentials   ->  401 with challenges, closed
request with a right proof    ->  101, then Raft
any near miss of the path     ->  404, closed: a scan learns nothing
"""

import hmac
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.base.limits import (
    FARM_ADDRESSES_MAX,
    FARM_FAILURE_DELAY_MS_MAX,
    FARM_FAILURES_PER_MINUTE_MAX,
)
from appliance.cores.raft.digest import (
    ALGORITHMS,
    METHOD,
    Authorization,
    Challenge,
    DigestMalformed,
    accept_of,
    decode_authorization,
    encode_challenge,
    hashed,
    quoted,
    response_of,
)
from appliance.cores.raft.hint import LeaderHint, encode_hint
from appliance.cores.raft.http_head import (
    HeadBuffer,
    HeadMalformed,
    RequestHead,
    encode_head,
    parse_request,
)
from appliance.cores.raft.invitation import Invited, path_of_login, validate_join
from appliance.cores.raft.nonces import ENTROPY_SIZE, Nonces
from appliance.cores.raft.users import FARM_NAME, User

VERSION = "1"  # of the protocol, in the path
FEATURE_PRE_VOTE, FEATURE_LEADER_HINT, FEATURE_REFUSAL = "pre-vote", "leader-hint", "refusal"
FEATURES = (FEATURE_PRE_VOTE, FEATURE_LEADER_HINT, FEATURE_REFUSAL)

_MINUTE_MS = 60_000
_DELAY_STEP_MS = 500
_REASONS = {400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


def path_of(farm: str, version: str = VERSION) -> str:
    """The request target of a farm's login."""
    return f"/GarlicFarm/{farm}/{version}/websocket"


@dataclass(slots=True, frozen=True)
class Login:
    """Somebody is in. `rest`: bytes that came behind the request, the first of Raft."""

    farm: str
    user: User
    features: frozenset[str]
    rest: bytes


@dataclass(slots=True, frozen=True)
class LoginResult:
    """What to send, after a delay; then the connection is closed, or belongs to `login`."""

    reply: bytes
    reason: str  # for the counters
    delay_ms: int = 0
    login: Login | None = None
    invited: Invited | None = None  # then `reply` is for the case that it cannot be taken in


@dataclass(slots=True)
class Gate:
    """What a farm knows about logins. `hint` is what a client with that feature is told."""

    farm: str
    realm: str
    users: dict[str, User]
    nonces: Nonces
    decoy: dict[str, str]  # H(A1) by algorithm that no password gives: for users nobody knows
    opaque: str
    algorithms: tuple[str, ...] = tuple(reversed(ALGORITHMS))  # the stronger one first
    features: tuple[str, ...] = FEATURES
    hint: LeaderHint | None = None
    invitations: dict[str, int] = field(default_factory=dict)  # as `validate_join` wants them

    def __post_init__(self) -> None:
        assert FARM_NAME.fullmatch(self.farm)
        assert self.algorithms and set(self.algorithms) <= set(ALGORITHMS)
        assert set(self.decoy) == set(ALGORITHMS)


@dataclass(slots=True)
class Doorway:
    """All farms behind one listener, and what is counted across their logins."""

    gates: dict[str, Gate]  # by the path of the farm
    counts: Counter[str] = field(default_factory=Counter)
    _failures: dict[str, list[int]] = field(default_factory=dict)  # address -> when, newest last

    def failure_delay_ms(self, address: str, now_ms: int) -> int:
        """Note a failed login of `address`; how long its answer is to wait."""
        times = [t for t in self._failures.pop(address, []) if now_ms - t < _MINUTE_MS]
        times = [*times[-2 * FARM_FAILURES_PER_MINUTE_MAX :], now_ms]
        if len(self._failures) >= FARM_ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[address] = times
        excess = len(times) - FARM_FAILURES_PER_MINUTE_MAX
        return min(max(0, excess) * _DELAY_STEP_MS, FARM_FAILURE_DELAY_MS_MAX)


class ServerLogin:
    """One accepted connection until its result."""

    def __init__(self, doorway: Doorway, address: str, draw: Callable[[int], bytes]) -> None:
        """`draw`: so many random bytes, for nonces."""
        self._doorway, self._address, self._draw = doorway, address, draw
        self._head = HeadBuffer()

    def on_bytes(self, data: bytes, now_ms: int) -> LoginResult | None:
        """None: more is needed. The result is counted and final."""
        try:
            head = self._head.feed(data)
            result = None if head is None else self._validate(parse_request(head), now_ms)
        except (HeadMalformed, DigestMalformed) as error:
            reason = error.reason if isinstance(error, HeadMalformed) else "digest_malformed"
            result = LoginResult(_refusal(400), reason)
        if result is not None:
            self._doorway.counts[result.reason] += 1
        return result

    def _validate(self, request: RequestHead, now_ms: int) -> LoginResult:
        target = without_origin(request.target)
        gate = self._doorway.gates.get(target)
        if gate is None and target.endswith("/join"):
            gate = self._doorway.gates.get(path_of_login(target))
            if gate is not None and gate.invitations and request.method == METHOD:
                return self._invitation(gate, request, now_ms)
            gate = None
        if gate is None or request.method != METHOD:
            other = gate is None and self._is_of_another_version(target)
            return LoginResult(_refusal(404), "version_unknown" if other else "path_unknown")
        value = request.fields.one("authorization")
        if value is None:
            return LoginResult(self._challenge(gate, now_ms, stale=False), "challenged")
        authorization = decode_authorization(value)
        if isinstance(authorization, str):
            return self._refused(gate, authorization, now_ms)
        return self._proof(gate, request, target, authorization, now_ms)

    def _is_of_another_version(self, target: str) -> bool:
        """Whether a farm of ours is meant, by a program that speaks another version: it is told no
        more than a scan, and is counted under a name of its own."""
        empty, *parts = target.split("/")
        if empty or len(parts) != 4:
            return False
        _, farm, version, _ = parts
        is_number = version.isascii() and version.isdigit() and not version.startswith("0")
        return (
            is_number and path_of(farm) in self._doorway.gates and target == path_of(farm, version)
        )

    def _invitation(self, gate: Gate, request: RequestHead, now_ms: int) -> LoginResult:
        validated = validate_join(gate.farm, gate.invitations, request, now_ms)
        if isinstance(validated, Invited):
            return LoginResult(_refusal(404), "invited", invited=validated)
        delay_ms = self._doorway.failure_delay_ms(self._address, now_ms)
        return LoginResult(_refusal(404), validated, delay_ms)

    def _proof(
        self, gate: Gate, request: RequestHead, target: str, given: Authorization, now_ms: int
    ) -> LoginResult:
        if given.algorithm not in gate.algorithms:
            return self._refused(gate, "algorithm_refused", now_ms)
        user = gate.users.get(given.username)
        secret = user.secrets.get(given.algorithm) if user is not None else None
        wanted = response_of(
            given.algorithm,
            secret or gate.decoy[given.algorithm],
            nonce=given.nonce,
            nc=given.nc,
            cnonce=given.cnonce,
            uri=given.uri,
        )
        fits = hmac.compare_digest(wanted.encode(), given.response.encode())
        if user is None or secret is None:
            return self._refused(gate, "user_unknown", now_ms)
        if given.realm != gate.realm:
            return self._refused(gate, "realm_wrong", now_ms)
        if without_origin(given.uri) != target:
            return self._refused(gate, "uri_wrong", now_ms)
        if not fits:
            return self._refused(gate, "password_wrong", now_ms)
        upgrade = "upgrade" in request.fields.words("connection")
        if not upgrade or "websocket" not in request.fields.words("upgrade"):
            return LoginResult(_refusal(400), "upgrade_missing")
        if not gate.nonces.accept(given.nonce, int(given.nc, 16), now_ms):
            return LoginResult(self._challenge(gate, now_ms, stale=True), "stale")
        return self._welcome(gate, request, user, secret, given)

    def _welcome(
        self, gate: Gate, request: RequestHead, user: User, secret: str, given: Authorization
    ) -> LoginResult:
        fields = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
        key = request.fields.one("sec-websocket-key")
        if key is not None:
            fields.append(("Sec-WebSocket-Accept", accept_of(key)))
        proof = response_of(
            given.algorithm,
            secret,
            nonce=given.nonce,
            nc=given.nc,
            cnonce=given.cnonce,
            uri=given.uri,
            method="",
        )
        fields.append(
            (
                "Authentication-Info",
                f'qop=auth, nc={given.nc}, cnonce={quoted(given.cnonce)}, rspauth="{proof}"',
            )
        )
        asked = request.fields.words("farm-features")
        features = [word for word in gate.features if word in asked]
        if features:
            fields.append(("Farm-Features", ", ".join(features)))
        if FEATURE_LEADER_HINT in features and gate.hint is not None:
            fields += encode_hint(gate.hint)
        login = Login(gate.farm, user, frozenset(features), self._head.rest)
        reply = encode_head("HTTP/1.1 101 Switching Protocols", fields)
        return LoginResult(reply, "logged_in", login=login)

    def _refused(self, gate: Gate, reason: str, now_ms: int) -> LoginResult:
        delay_ms = self._doorway.failure_delay_ms(self._address, now_ms)
        return LoginResult(self._challenge(gate, now_ms, stale=False), reason, delay_ms)

    def _challenge(self, gate: Gate, now_ms: int, *, stale: bool) -> bytes:
        nonce = gate.nonces.make(now_ms, self._draw(ENTROPY_SIZE))
        challenges = [
            Challenge(gate.realm, nonce, gate.opaque, algorithm, stale)
            for algorithm in gate.algorithms
        ]
        return _refusal(401, [("WWW-Authenticate", encode_challenge(c)) for c in challenges])


def _refusal(status: int, fields: list[tuple[str, str]] | None = None) -> bytes:
    ending = [("Content-Length", "0"), ("Connection", "close")]
    return encode_head(f"HTTP/1.1 {status} {_REASONS[status]}", [*(fields or []), *ending])


def encode_welcome(body: bytes) -> bytes:
    """The answer to an invitation that counts."""
    fields = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    return encode_head("HTTP/1.1 200 OK", fields) + body


def without_origin(target: str) -> str:
    """The path of a request target in absolute form; others as they are."""
    if not target.startswith("http://"):
        return target
    _, slash, path = target.removeprefix("http://").partition("/")
    return slash + path


def decoy_of(random_bytes: bytes) -> dict[str, str]:
    """H(A1) of nobody, for each algorithm."""
    return {name: hashed(name, random_bytes.hex()) for name in ALGORITHMS}
