"""Who may look at the console: one-time secrets, and the sessions that they open.

A secret is made by chance, told once to whoever started the process, and kept as an argon2id hash
only. It opens one session and is used up by that; then the next one is made. One that nobody used
for half an hour opens nothing any more: whoever tries it has the next one told. A session is a
random token in the browser and its digest here, in memory: a restart ends all sessions.

Wrong secrets shut the door for the address they came from, never for another one, and never for the
machine itself: whoever works on it is not locked out by strangers. 80 bits of chance that live for
half an hour need no other protection from guessing.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import argon2

SECRET_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # 5 bits each, none like another
SECRET_LENGTH = 16  # 80 bits
SECRET_S = 30 * 60  # a secret that was not used by then opens nothing
SESSION_S = 12 * 3600  # then the operator signs in again
SESSIONS_MAX = 64  # the oldest leaves
FAILURES_MAX = 5  # wrong secrets in a row of one address, then it finds the door shut for a while
SHUT_S = 30.0
ADDRESSES_MAX = 4096  # whose failures are remembered; the longest unseen is forgotten
THIS_MACHINE = ("127.0.0.1", "::1")  # as addresses: never shut out
assert len(SECRET_LETTERS) == 32


class SecretExpired(Exception):
    """The secret had not been used for too long; a new one was told."""


@dataclass(slots=True)
class _Failures:
    """Wrong secrets of one address."""

    count: int = 0
    shut_until: float = 0.0


class OperatorSignIn:
    """`now` gives seconds of a clock that only goes forward; `tell` is given each new secret.

    Invariants: at most one secret is valid; at most SESSIONS_MAX sessions are, and at most
    ADDRESSES_MAX addresses are remembered.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        tell: Callable[[str], None],
        hasher: argon2.PasswordHasher,
    ) -> None:
        assert hasher.type is argon2.Type.ID
        self._now, self._tell, self._hasher = now, tell, hasher
        self._hash = ""
        self._expires = 0.0
        self._sessions: dict[bytes, float] = {}  # digest -> when it ends; oldest first
        self._failures: dict[str, _Failures] = {}  # longest unseen first

    def open(self) -> None:
        """Tell the first secret, when somebody listens who takes it."""
        self.renew()

    def renew(self) -> str:
        """Tell a new secret in the place of the last one, which opens nothing any more. Takes a
        moment."""
        letters = "".join(secrets.choice(SECRET_LETTERS) for _ in range(SECRET_LENGTH))
        self._hash = self._hasher.hash(letters)
        self._expires = self._now() + SECRET_S
        secret = "-".join(letters[at : at + 4] for at in range(0, SECRET_LENGTH, 4))
        self._tell(secret)
        return secret

    def shut_for(self, address: str) -> float:
        """Seconds until a secret of `address` is looked at again; 0 when it is now."""
        failures = self._failures.get(address)
        return max(0.0, failures.shut_until - self._now()) if failures else 0.0

    def enter(self, secret: str, address: str) -> str | None:
        """A new session for the right secret, else None. Takes a moment: call it in a thread, once
        at a time, and only while the door is not shut for `address`. Raises SecretExpired."""
        if self._now() >= self._expires:
            self.renew()
            raise SecretExpired
        letters = "".join(letter for letter in secret.upper() if letter in SECRET_LETTERS)
        try:
            self._hasher.verify(self._hash, letters)
        except argon2.exceptions.VerificationError:
            self._fail(address)
            return None
        self._failures.pop(address, None)
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = self._now() + SESSION_S
        while len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        self.renew()
        return token

    def _fail(self, address: str) -> None:
        if address in THIS_MACHINE:
            return
        failures = self._failures.pop(address, None) or _Failures()
        failures.count += 1
        if failures.count >= FAILURES_MAX:
            failures.count, failures.shut_until = 0, self._now() + SHUT_S
        self._failures[address] = failures
        while len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]

    def knows(self, token: str | None) -> bool:
        """Whether `token` is that of a session that goes on."""
        if not token:
            return False
        ends = self._sessions.get(_digest(token))
        if ends is not None and ends <= self._now():
            del self._sessions[_digest(token)]
            ends = None
        return ends is not None

    def name_of(self, token: str) -> str:
        """By which a session is told from others; it opens nothing."""
        return _digest(token).hex()[:6]

    def leave(self, token: str | None) -> None:
        if token:
            self._sessions.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
