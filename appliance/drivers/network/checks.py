"""The checks a frame passes before any core sees it, in a fixed order, each failure counted by
name."""

import struct
from collections import Counter
from dataclasses import dataclass

from appliance.base.body_digest import blake3_128
from appliance.base.limits import NONCE_WINDOW
from appliance.base.signature import CONTEXT_ENVELOPE, verify
from appliance.formats.envelope import (
    COMMAND_NAMES,
    MAGIC,
    VERSION,
    Message,
    body_digest_of,
    body_valid,
    checksum_of,
    decode,
)
from appliance.formats.geometry import HEADER_SIZE

# Failures that no honest peer and no noise on the wire can cause: TLS vouches for every byte.
SUSPICIOUS = frozenset(
    ("cluster", "sender", "signature", "nonce", "checksum", "body_digest", "header_digest")
)

# magic, version, command | checksum | nonce | cluster | sender, route | shard | body_size
_FIELDS = struct.Struct("<IHBxI4xQ24x16sBBHI")
assert _FIELDS.size == 72
_WINDOW_MASK = (1 << NONCE_WINDOW) - 1


class NonceWindow:
    """Lets each nonce of one sender through once; the newest `NONCE_WINDOW` in any order, older
    ones never."""

    __slots__ = ("_newest", "_seen")

    def __init__(self) -> None:
        self._newest = 0
        self._seen = 0  # bit i: nonce `_newest - i` was seen

    def pass_once(self, nonce: int) -> bool:
        ahead = nonce - self._newest
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & _WINDOW_MASK if ahead < NONCE_WINDOW else 1
            self._newest = nonce
            return True
        if ahead <= -NONCE_WINDOW:
            return False
        bit = 1 << -ahead
        if self._seen & bit:
            return False
        self._seen |= bit
        return True


@dataclass(frozen=True, slots=True)
class Sender:
    """Who may speak on a connection: its commands, and the window of its nonces."""

    commands: frozenset[int]
    window: NonceWindow


class Checks:
    """The checks for one connection. `public_key` of the node at its other end; None = a process of
    this node."""

    __slots__ = (
        "_cluster",
        "_shard",
        "_body_size_max",
        "_senders",
        "_commands",
        "_key",
        "drops",
        "suspicions",
    )

    def __init__(
        self,
        *,
        cluster: bytes,
        shard: int,
        message_size_max: int,
        senders: dict[int, Sender],
        public_key: bytes | None,
        drops: Counter[str],
        suspicions: Counter[str] | None = None,
    ) -> None:
        self._cluster, self._shard, self._senders, self._key = cluster, shard, senders, public_key
        self._body_size_max = message_size_max - HEADER_SIZE
        self._commands = frozenset().union(
            *(sender.commands for sender in senders.values())
        ) | frozenset(COMMAND_NAMES)
        self.drops = drops
        self.suspicions = suspicions  # of this peer; of `SUSPICIOUS` only

    def check(self, head: bytes, body: bytes, signature: bytes) -> Message | None:
        """The message in a frame, or None: dropped and counted."""
        magic, version, command, checksum, nonce, cluster, sender_id, route, shard, body_size = (
            _FIELDS.unpack_from(head)
        )
        sender = self._senders.get(sender_id)
        if magic != MAGIC or version != VERSION:
            return self._drop("magic" if magic != MAGIC else "version")
        if body_size != len(body) or body_size > self._body_size_max:
            return self._drop("length")
        if cluster != self._cluster:
            return self._drop("cluster")
        if shard != self._shard:
            return self._drop("shard")
        if command not in self._commands:
            return self._drop("command")
        if sender is None or command not in sender.commands:
            return self._drop("sender")
        if self._key is not None:
            if checksum_of(head, body) != checksum:
                return self._drop("checksum")
            if not verify(self._key, CONTEXT_ENVELOPE, head, signature):
                return self._drop("signature")
            if not sender.window.pass_once(nonce):
                return self._drop("nonce")
        header = decode(head)
        # The body's digest is judged before the header's: it is read from the header as sent.
        if header is None:
            return self._drop("header_digest" if _body_named(head, body) else "body_digest")
        if not body_valid(header, body):
            return self._drop("body_digest")
        return Message(header, body, sender_id, route)

    def _drop(self, name: str) -> Message | None:
        self.drops[name] += 1
        if self.suspicions is not None and name in SUSPICIOUS:
            self.suspicions[name] += 1
        return None


def _body_named(head: bytes, body: bytes) -> bool:
    """Whether the header, right or wrong, names this body."""
    return body_digest_of(head) == blake3_128(body)
