"""The state machine of a farm: the newest document of each node, and its snapshots."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from appliance.cores.directory.document import date_of, parse_document, poster_of
from appliance.formats.raft_legacy.frame import APPLICATION, Entry

SNAPSHOT_VERSION = 1


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


@dataclass(slots=True)
class Held:
    """The newest document of a node, byte for byte as it was posted."""

    index: int
    date: int
    value: bytes


@dataclass(slots=True)
class Directory:
    """`index`: of the newest entry applied. `readable`: False under a foreign snapshot."""

    cluster: str
    index: int = 0
    term: int = 0
    documents: dict[int, Held] = field(default_factory=dict)  # by the poster's id
    skipped: int = 0  # values that are no document of this farm
    foreign: bytes = b""  # a snapshot that we cannot read, kept to be served on

    def take(self, index: int, entry: Entry) -> None:
        """One committed entry; every index is taken once, in order."""
        assert index > self.index
        self.index, self.term = index, entry.term
        if entry.type != APPLICATION:
            return
        document = parse_document(entry.value)
        if document is None or not self._take(index, entry.value, document):
            self.skipped += 1

    def _take(self, index: int, value: bytes, document: dict[str, Any]) -> bool:
        poster, date = poster_of(document), date_of(document)
        if document.get("cluster") != self.cluster or poster is None or date is None:
            return False
        held = self.documents.get(poster)
        if held is not None and date <= held.date:
            return False  # posted again, or late
        self.documents[poster] = Held(index, date, value)
        return True

    # --- snapshots --------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The whole state: a header line with the digest of the rest, the state, the documents."""
        if self.foreign and not self.documents:
            return self.foreign
        lines = [_line({"cluster": self.cluster, "skipped": self.skipped})]
        for poster in sorted(self.documents):
            held = self.documents[poster]
            head = {"id": poster, "index": held.index, "date": held.date}
            lines.append(_line({**head, "value": held.value.decode()}))
        rest = b"".join(line + b"\n" for line in lines)
        header = {
            "farm-snapshot": SNAPSHOT_VERSION,
            "index": self.index,
            "term": self.term,
            "sha256": hashlib.sha256(rest).hexdigest(),
        }
        return _line(header) + b"\n" + rest

    def restore(self, index: int, term: int, data: bytes) -> bool:
        """Begin anew from a snapshot. False: its content is not ours; the state starts empty."""
        self.index, self.term = index, term
        self.documents, self.skipped, self.foreign = {}, 0, b""
        lines = snapshot_lines(data)
        if lines is None:
            self.foreign = data
            return False
        self.skipped = lines[0]["skipped"]
        for line in lines[1:]:
            value = line["value"].encode()
            self.documents[line["id"]] = Held(line["index"], line["date"], value)
        return True


def snapshot_lines(data: bytes) -> list[dict[str, Any]] | None:
    """The lines behind the header of a snapshot of ours; None: it is of another make."""
    head, _, rest = data.partition(b"\n")
    try:
        header = json.loads(head)
    except ValueError:
        return None
    if not isinstance(header, dict) or header.get("farm-snapshot") != SNAPSHOT_VERSION:
        return None
    return [json.loads(line) for line in rest.splitlines()]


def snapshot_fits(data: bytes) -> bool:
    """Whether a snapshot may be installed: whole, if it is of our make; of another make, any."""
    head, _, rest = data.partition(b"\n")
    try:
        header = json.loads(head)
    except ValueError:
        return bool(data)
    if not isinstance(header, dict) or "farm-snapshot" not in header:
        return bool(data)
    return header.get("sha256") == hashlib.sha256(rest).hexdigest()
