"""The client's side of a login, over as many connections as it takes."""

import base64
import hmac
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.base.limits import (
    FARM_CHALLENGE_AGE_MS_MAX,
    FARM_RETRY_MS_MAX,
    FARM_RETRY_MS_MIN,
)
from appliance.cores.raft.digest import (
    ALGORITHMS,
    METHOD,
    Authorization,
    Challenge,
    DigestMalformed,
    accept_of,
    encode_authorization,
    parameters_of,
    response_of,
    secret_of,
    usable_challenges,
)
from appliance.cores.raft.hint import LeaderHint, decode_hint
from appliance.cores.raft.http_head import (
    AnswerHead,
    HeadBuffer,
    HeadMalformed,
    encode_head,
    parse_answer,
)
from appliance.cores.raft.login import FEATURES, path_of

KEY_SIZE, CNONCE_SIZE = 16, 12  # random bytes of a Sec-WebSocket-Key and of a cnonce
_COUNT_MAX = (1 << 32) - 1  # eight hex digits


@dataclass(slots=True)
class _Known:
    challenge: Challenge
    learned_ms: int
    count: int = 0  # the last one handed out


@dataclass(slots=True)
class Challenges:
    """What servers asked for, by (endpoint, farm), so that a later connection begins with a proof.

    Counts are handed out one by one, never twice, also when several connections start at once.
    """

    counts: Counter[str] = field(default_factory=Counter)
    _known: dict[tuple[str, str], _Known] = field(default_factory=dict)
    _refused: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def take(self, destination: tuple[str, str], now_ms: int) -> tuple[Challenge, int] | None:
        """A challenge and its next count, or None: ask for one."""
        known = self._known.get(destination)
        if known is None:
            return None
        if now_ms - known.learned_ms > FARM_CHALLENGE_AGE_MS_MAX or known.count >= _COUNT_MAX:
            del self._known[destination]
            return None
        known.count += 1
        return known.challenge, known.count

    def learn(self, destination: tuple[str, str], challenge: Challenge, now_ms: int) -> None:
        self._known[destination] = _Known(challenge, now_ms)

    def forget(self, destination: tuple[str, str]) -> None:
        self._known.pop(destination, None)

    def on_refused(self, destination: tuple[str, str], now_ms: int) -> int:
        """A login was refused for good: how long to wait before the next, doubled each time."""
        pause_ms = min(
            self._refused.get(destination, (0, 0))[1] * 2 or FARM_RETRY_MS_MIN, FARM_RETRY_MS_MAX
        )
        self._refused[destination] = (now_ms, pause_ms)
        return pause_ms

    def on_accepted(self, destination: tuple[str, str]) -> None:
        self._refused.pop(destination, None)

    def wait_ms(self, destination: tuple[str, str], now_ms: int) -> int:
        """How long a dialler has to stay away from there."""
        since_ms, pause_ms = self._refused.get(destination, (now_ms, 0))
        return max(0, since_ms + pause_ms - now_ms)


@dataclass(slots=True, frozen=True)
class Credentials:
    """Of one user of one farm. `algorithms`: what we are willing to hash with."""

    username: str
    password: str = field(repr=False)
    algorithms: tuple[str, ...] = tuple(reversed(ALGORITHMS))
    require_server_proof: bool = False


@dataclass(slots=True, frozen=True)
class Again:
    """Close this connection, open another one, and call `begin`."""


@dataclass(slots=True, frozen=True)
class Entered:
    """Raft may begin; `rest` are its first bytes, where some came already."""

    features: frozenset[str]
    hint: LeaderHint | None
    rest: bytes


@dataclass(slots=True, frozen=True)
class GaveUp:
    """Close. `reason` is a word for counters; `wait_ms`: before the next try."""

    reason: str
    wait_ms: int


class ClientLogin:
    """One login to one endpoint. At most four connections: each way to go on is taken once."""

    def __init__(
        self,
        *,
        challenges: Challenges,
        credentials: Credentials,
        endpoint: str,
        host: str,
        farm: str,
        features: tuple[str, ...] = FEATURES,
        absolute: bool = False,
        proxy_authorization: str | None = None,
    ) -> None:
        """`host`: host:port for the Host field. `absolute`: through a proxy without CONNECT."""
        self._challenges, self._credentials = challenges, credentials
        self._destination = (endpoint, farm)
        self._host, self._features = host, features
        self._uri = path_of(farm)
        self._target = f"http://{host}{self._uri}" if absolute else self._uri
        self._proxy_authorization = proxy_authorization
        self._head = HeadBuffer()
        self._sent: Authorization | None = None  # the proof on this connection
        self._secret = ""
        self._key = ""
        self._renewed = self._dropped = False

    def begin(self, now_ms: int, draw: Callable[[int], bytes]) -> bytes:
        """What to send first on a new connection; `draw`: so many random bytes."""
        self._head = HeadBuffer()
        self._sent = None
        taken = self._challenges.take(self._destination, now_ms)
        fields = [("Host", self._host), ("Cache-Control", "no-cache")]
        if self._proxy_authorization is not None:
            fields.append(("Proxy-Authorization", self._proxy_authorization))
        if taken is None:
            fields.append(("Connection", "close"))
            self._challenges.counts["request_1"] += 1
            return encode_head(f"{METHOD} {self._target} HTTP/1.1", fields)
        self._challenges.counts["request_2"] += 1
        self._key = base64.b64encode(draw(KEY_SIZE)).decode()
        self._sent = self._proof(*taken, draw(CNONCE_SIZE).hex())
        fields += [
            ("Connection", "keep-alive, Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", self._key),
            ("Authorization", encode_authorization(self._sent)),
        ]
        if self._features:
            fields.append(("Farm-Features", ", ".join(self._features)))
        return encode_head(f"{METHOD} {self._target} HTTP/1.1", fields)

    def _proof(self, challenge: Challenge, count: int, cnonce: str) -> Authorization:
        self._secret = secret_of(
            challenge.algorithm,
            username=self._credentials.username,
            realm=challenge.realm,
            password=self._credentials.password,
        )
        nc = f"{count:08x}"
        response = response_of(
            challenge.algorithm,
            self._secret,
            nonce=challenge.nonce,
            nc=nc,
            cnonce=cnonce,
            uri=self._uri,
        )
        return Authorization(
            username=self._credentials.username,
            realm=challenge.realm,
            nonce=challenge.nonce,
            uri=self._uri,
            response=response,
            algorithm=challenge.algorithm,
            nc=nc,
            cnonce=cnonce,
            opaque=challenge.opaque,
        )

    def on_bytes(self, data: bytes, now_ms: int) -> Again | Entered | GaveUp | None:
        """None: more is needed."""
        try:
            head = self._head.feed(data)
            return None if head is None else self._validate(parse_answer(head), now_ms)
        except HeadMalformed as error:
            return self._give_up(error.reason, now_ms)
        except DigestMalformed:
            return self._give_up("digest_malformed", now_ms)

    def _validate(self, answer: AnswerHead, now_ms: int) -> Again | Entered | GaveUp:
        if answer.status == 101 and self._sent is not None:
            return self._welcomed(answer, self._sent, now_ms)
        if answer.status != 401:
            return self._give_up(f"status_{answer.status}", now_ms)
        challenge = self._chosen(usable_challenges(answer.fields.all("www-authenticate")))
        if challenge is None:
            return self._give_up("algorithm_refused", now_ms)
        if self._sent is None:
            self._challenges.learn(self._destination, challenge, now_ms)
            return Again()
        if challenge.stale and not self._renewed:
            self._renewed = True
            self._challenges.counts["stale"] += 1
            self._challenges.learn(self._destination, challenge, now_ms)
            return Again()
        self._challenges.forget(self._destination)
        if self._dropped or self._renewed:
            return self._give_up("credentials_refused", now_ms)
        self._dropped = True
        return Again()

    def _chosen(self, offered: list[Challenge]) -> Challenge | None:
        for algorithm in self._credentials.algorithms:
            for challenge in offered:
                if challenge.algorithm == algorithm:
                    return challenge
        return None

    def _welcomed(self, answer: AnswerHead, sent: Authorization, now_ms: int) -> Entered | GaveUp:
        accept = answer.fields.one("sec-websocket-accept")
        if accept is None:
            self._challenges.counts["accept_missing"] += 1
        elif accept != accept_of(self._key):
            return self._give_up("accept_wrong", now_ms)
        info = answer.fields.one("authentication-info")
        if info is None and self._credentials.require_server_proof:
            return self._give_up("server_proof_missing", now_ms)
        if info is not None and not self._proves(parameters_of(info), sent):
            return self._give_up("server_proof_wrong", now_ms)
        self._challenges.on_accepted(self._destination)
        agreed = answer.fields.words("farm-features")
        features = frozenset(word for word in self._features if word in agreed)
        return Entered(features, decode_hint(answer.fields), self._head.rest)

    def _proves(self, info: dict[str, str], sent: Authorization) -> bool:
        """Whether the server knows the password too."""
        wanted = response_of(
            sent.algorithm,
            self._secret,
            nonce=sent.nonce,
            nc=sent.nc,
            cnonce=sent.cnonce,
            uri=sent.uri,
            method="",
        )
        same = info.get("cnonce") == sent.cnonce and info.get("nc") == sent.nc
        proof = info.get("rspauth", "")
        return same and hmac.compare_digest(wanted.encode(), proof.encode())

    def _give_up(self, reason: str, now_ms: int) -> GaveUp:
        self._challenges.counts[reason] += 1
        return GaveUp(reason, self._challenges.on_refused(self._destination, now_ms))
