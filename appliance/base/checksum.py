"""The digests the product uses, each under one name.

crc32c       accidents on a link or in a record; never an identity.
blake2b_128  identity of a header (personalised), `docs/formats.md`.
blake3_128   identity of a body, in `base/body_digest`: 0.15 ms a MiB where SHA-256 takes 1.2 ms.
sha256       identity of what leaves the process group: records, leaves, segments, manifests.
"""

from hashlib import blake2b
from hashlib import sha256 as _sha256

import crc32c as _crc32c

_HEADER_PERSON = b"tc-header"

crc32c = _crc32c.crc32c


def blake2b_128(data: bytes) -> bytes:
    """16 bytes over `data`, personalised for headers."""
    return blake2b(data, digest_size=16, person=_HEADER_PERSON).digest()


def blake2b_256(data: bytes | memoryview) -> bytes:
    """32 bytes over `data`: the superblock's digest."""
    return blake2b(data, digest_size=32).digest()


def sha256(data: bytes | bytearray | memoryview) -> bytes:
    """32 bytes of SHA-256 over `data`."""
    return _sha256(data).digest()
