"""Files as they are put: a snapshot of a part, with what its manifest says of it."""

from dataclasses import dataclass
from hashlib import sha256

from appliance.base.signature import (
    CONTEXT_SNAPSHOT,
    SIGNATURE_SIZE,
    SigningKey,
    verify,
)
from appliance.cores.shipping.plan import Part
from appliance.formats import snapshot
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.manifest import CHUNK_RECORDS, ShippedFile
from appliance.formats.record import record_hash


@dataclass(frozen=True, slots=True)
class Rendered:
    """A snapshot file and what its manifest will say."""

    data: bytes
    file: ShippedFile


def render(part: Part, records: bytes, key: SigningKey) -> Rendered:
    """The file of `part`; all but its signature follows from the records alone."""
    count = part.last_log_seq - part.first_log_seq + 1
    assert len(records) == count * RECORD_SIZE
    view = memoryview(records)
    chunks = []
    for start in range(0, count, CHUNK_RECORDS):
        digest = sha256()
        for i in range(start, min(count, start + CHUNK_RECORDS)):
            digest.update(record_hash(view[i * RECORD_SIZE : (i + 1) * RECORD_SIZE]))
        chunks.append(digest.digest())
    data = b"".join(
        snapshot.render(
            [view], room_id=snapshot.SEGMENT, op=part.last_log_seq, record_count=count, key=key
        )
    )
    body = sha256(memoryview(data)[:-SIGNATURE_SIZE]).digest()
    return Rendered(data, ShippedFile(*part, body, tuple(chunks)))


class Reading:
    """Digests a snapshot file that is read in blocks: all of it, and all before its signature."""

    def __init__(self) -> None:
        self.size = 0
        self._body = sha256()
        self._tail = b""

    def add(self, block: bytes) -> None:
        """The next bytes of the file."""
        self.size += len(block)
        joined = self._tail + block
        self._body.update(joined[:-SIGNATURE_SIZE])
        self._tail = joined[-SIGNATURE_SIZE:]

    def fits(self, file: ShippedFile, trusted: frozenset[bytes]) -> bool:
        """Whether the file is `file`, signed by one of the trusted keys."""
        digest = self._body.digest()
        if self.size != file.size or digest != file.sha256:
            return False
        return any(verify(key, CONTEXT_SNAPSHOT, digest, self._tail) for key in sorted(trusted))
