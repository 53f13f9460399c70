"""Frames as they travel between nodes: signed by the sender, checked by the receiver's link.

The other stories leave this out, for a link of the simulator hands over parsed messages. Here what
a replica sends becomes bytes, perhaps spoilt on the way, and comes to the other one only if the
product's own checks let it pass.
"""

from collections import Counter

from appliance.base.signature import SigningKey
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.formats import envelope as env
from appliance.formats.command import COMMANDS_MEMBER
from appliance.formats.envelope import Message
from appliance.formats.geometry import HEADER_SIZE, Geometry

STRANGER = SigningKey(b"x" * 32)
OTHER_CLUSTER = b"another cluster."


class Frames:
    """All links between members. `spoilt` says what happens to frames of a link."""

    def __init__(self, *, geometry: Geometry, cluster: bytes, shard: int, count: int) -> None:
        self.keys = [SigningKey(bytes([i + 1]) * 32) for i in range(count)]
        self.nonces = [0] * count
        self.drops = {(s, t): Counter[str]() for s in range(count) for t in range(count)}
        self.spoilt: dict[tuple[int, int], str] = {}
        self.checks = {
            (source, target): Checks(
                cluster=cluster,
                shard=shard,
                message_size_max=geometry.message_size_max,
                senders={source: Sender(COMMANDS_MEMBER, NonceWindow())},
                public_key=self.keys[source].public,
                drops=drops,
            )
            for (source, target), drops in self.drops.items()
        }

    def carry(self, source: int, target: int, message: Message) -> list[Message]:
        """What the receiver's link makes of a message: itself, or nothing."""
        how = self.spoilt.get((source, target), "")
        self.nonces[source] += 1
        parts = env.frame(
            message.header,
            message.body,
            sender=source,
            route=message.route,
            nonce=self.nonces[source],
            key=STRANGER if how == "stranger" else self.keys[source],
        )
        frame = b"".join(parts)
        if how == "cluster":
            frame = frame[:48] + OTHER_CLUSTER + frame[64:]
        end = HEADER_SIZE + len(message.body)
        check = self.checks[source, target]
        times = 2 if how == "twice" else 1
        found = [
            check.check(frame[:HEADER_SIZE], frame[HEADER_SIZE:end], frame[end:])
            for _ in range(times)
        ]
        return [passed for passed in found if passed is not None]
