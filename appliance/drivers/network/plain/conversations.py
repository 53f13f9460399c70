"""All conversations in plain HTTP of a process, each found by a secret that only its client has."""

import asyncio
import secrets
from enum import Enum

from appliance.drivers.network.plain.conversation import Conversation
from appliance.drivers.network.websocket import AGAIN_MS, WebSocketServer
from appliance.formats.client_errors import NodeFull, RateLimited

_SECRET_SIZE = 32  # bytes of chance: who guesses needs no limit of tries
_NUMBER_DIGITS = 2  # in front of them, of the process


class Absent(Enum):
    """Why there is none by a secret."""

    UNKNOWN = "it ended, or never was"
    ELSEWHERE = "it is another process's of this node"


class Conversations:
    """Of process `number`. As many as the entrance admits."""

    def __init__(self, server: WebSocketServer, number: int) -> None:
        self._server, self._prefix = server, f"{number:0{_NUMBER_DIGITS}x}"
        self._by_secret: dict[str, Conversation] = {}

    def open(self, address: str) -> tuple[str, Conversation]:
        """A new one and its secret. Raises NodeFull when there are too many, RateLimited when those
        of the address are, or come too fast."""
        conversation, entrance = Conversation(self._server, address), self._server.entrance
        if not entrance.admit(conversation, asyncio.get_running_loop().time()):
            if entrance.is_full:
                raise NodeFull("no more connections are served here: use another node, or wait")
            raise RateLimited(f"too many connections of {address}, or too fast", AGAIN_MS)
        secret = self._prefix + secrets.token_hex(_SECRET_SIZE)
        self._by_secret[secret] = conversation
        conversation.on_gone = lambda: self._forget(secret)
        conversation.begin()
        return secret, conversation

    def find(self, secret: str) -> Conversation | Absent:
        """The one that has it."""
        found = self._by_secret.get(secret)
        if found is not None:
            return found
        size = _NUMBER_DIGITS + 2 * _SECRET_SIZE
        is_other = len(secret) == size and not secret.startswith(self._prefix)
        return Absent.ELSEWHERE if is_other else Absent.UNKNOWN

    def _forget(self, secret: str) -> None:
        del self._by_secret[secret]
