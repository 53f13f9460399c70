"""All conversations in plain HTTP of a process, each found by a secret that only its client has."""

import asyncio
import secrets
from enum import Enum

from appliance.drivers.network.plain.conversation import Conversation
from appliance.drivers.network.websocket import WebSocketServer

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

    def open(self, address: str) -> tuple[str, Conversation] | None:
        """A new one and its secret; None when there are too many, or they come too fast."""
        conversation = Conversation(self._server, address)
        if not self._server.entrance.admit(conversation, asyncio.get_running_loop().time()):
            return None
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
