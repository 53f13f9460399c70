"""What a message is called, and in what order messages stand.

An id of ours names channel, sender, lamport timestamp and content, so that equal contents have
different ids, and whoever reads the origin's log gets the same id. Received ids are opaque.
"""

import hashlib

_PREFIX = b"SDS1"


def message_id(*, channel: str, sender: str, lamport: int, content: bytes) -> str:
    """Lower-case hex SHA-256 over the four, sizes as u32 big-endian, lamport as u64 big-endian."""
    channel_raw, sender_raw = channel.encode(), sender.encode()
    digest = hashlib.sha256(_PREFIX)
    digest.update(len(channel_raw).to_bytes(4, "big") + channel_raw)
    digest.update(len(sender_raw).to_bytes(4, "big") + sender_raw)
    digest.update(lamport.to_bytes(8, "big") + content)
    return digest.hexdigest()
