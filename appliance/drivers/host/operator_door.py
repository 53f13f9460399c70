"""Who may look at the console: one-time secrets, and the sessions that they open.

A secret is made by chance, told once to whoever started the process, and kept as an argon2id hash
only. It opens one session and is used up by that; then the next one is made. A session is a random
token in the browser and its digest here, in memory: a restart ends all sessions.
"""

import hashlib
import secrets
from collections.abc import Callable

import argon2

SECRET_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # 5 bits each, none like another
SECRET_LENGTH = 16  # 80 bits
SESSION_S = 12 * 3600  # then the operator signs in again
SESSIONS_MAX = 64  # the oldest leaves
FAILURES_MAX = 5  # wrong secrets in a row, then the door stays shut for a while
SHUT_S = 30.0
assert len(SECRET_LETTERS) == 32


class Door:
    """`now` gives seconds of a clock that only goes forward; `tell` is given each new secret.

    Invariants: at most one secret is valid; at most SESSIONS_MAX sessions are.
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
        self._sessions: dict[bytes, float] = {}  # digest -> when it ends; oldest first
        self._failures = 0
        self._shut_until = 0.0
        self._renew()

    def _renew(self) -> None:
        letters = "".join(secrets.choice(SECRET_LETTERS) for _ in range(SECRET_LENGTH))
        self._hash = self._hasher.hash(letters)
        self._tell("-".join(letters[at : at + 4] for at in range(0, SECRET_LENGTH, 4)))

    def shut_for(self) -> float:
        """Seconds until a secret is looked at again; 0 when it is now."""
        return max(0.0, self._shut_until - self._now())

    def enter(self, secret: str) -> str | None:
        """A new session for the right secret, else None. Takes a moment: call it in a thread, once
        at a time, and only while the door is not shut."""
        letters = "".join(letter for letter in secret.upper() if letter in SECRET_LETTERS)
        try:
            self._hasher.verify(self._hash, letters)
        except argon2.exceptions.VerificationError:
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                self._failures, self._shut_until = 0, self._now() + SHUT_S
            return None
        self._failures = 0
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = self._now() + SESSION_S
        while len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        self._renew()
        return token

    def knows(self, token: str | None) -> bool:
        """Whether `token` is that of a session that goes on."""
        if not token:
            return False
        ends = self._sessions.get(_digest(token))
        if ends is not None and ends <= self._now():
            del self._sessions[_digest(token)]
            ends = None
        return ends is not None

    def leave(self, token: str | None) -> None:
        if token:
            self._sessions.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
