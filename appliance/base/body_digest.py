"""The digest of a body on its way between nodes.

It stands alone because its library is needed by nodes only: whoever reads records, in Spark's
interpreter too, gets along with the other digests, in `base/checksum`.
"""

from blake3 import blake3

_BODY_CONTEXT = "tigerchat v1 body"


def blake3_128(data: bytes | bytearray | memoryview) -> bytes:
    """First 16 bytes of BLAKE3 of `data` in the body's key-derivation context."""
    return blake3(data, derive_key_context=_BODY_CONTEXT).digest(length=16)
