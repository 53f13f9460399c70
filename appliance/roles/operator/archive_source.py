"""Shipped files of one shard, as a source: each is signed by a node of the cluster that is gone.

What a manifest lists and what was put early lie side by side: a file stands for itself, by its
signature. Manifests and head tell what should be there.
"""

from bisect import bisect_right
from collections.abc import Iterator
from hashlib import sha256

from appliance.base.errors import FormatError, TargetError
from appliance.base.signature import CONTEXT_SNAPSHOT, SIGNATURE_SIZE, verify
from appliance.cores.shipping.audit import Found, audit_chain, audit_head
from appliance.drivers.hdfs.target import Target
from appliance.formats import manifest as mf
from appliance.formats.geometry import RECORD_SIZE
from appliance.formats.snapshot import HEAD_SIZE
from appliance.formats.webhdfs import Entry
from appliance.roles.operator.log_source import Range, Span, digests_of


class ArchiveSource:
    """Listed, its manifests verified with `trusted` keys; files are when they are read."""

    def __init__(
        self, target: Target, cluster: bytes, shard: int, trusted: frozenset[bytes]
    ) -> None:
        self._target, self._trusted = target, trusted
        self._folder = mf.shard_folder(cluster, shard)
        self.name = f"{target.describe()}/{self._folder}"
        self.findings: list[str] = []
        self._files: list[tuple[int, int, str]] = []  # first, last log_seq, path
        self._listed: dict[str, mf.ShippedFile] = {}  # by name
        self._list(cluster, shard)
        self.first_log_seq = min((first for first, _, _ in self._files), default=1)
        self.last_log_seq = max((last for _, last, _ in self._files), default=0)
        self._read: tuple[str, Span | None] = ("", None)  # the newest one

    def _list(self, cluster: bytes, shard: int) -> None:
        """What lies there, and what is wrong with its manifests."""
        found: Found = []
        for folder, entry in self._entries():
            path, part = f"{folder}/{entry.name}", mf.parse_snapshot_name(entry.name)
            if part is not None:
                self._files.append((*part, path))
            elif mf.parse_manifest_name(entry.name) is not None:
                try:
                    raw = b"".join(self._target.read(path))
                    found.append((path, mf.parse_manifest(raw, self._trusted)))
                except (FormatError, TargetError) as error:
                    self._say(path, str(error))
        self._files.sort(key=lambda file: (file[0], -file[1]))
        found.sort(key=lambda row: row[1].value.period_start_us)
        for path, problem in audit_chain(found, self._folder, cluster, shard):
            self._say(path, problem)
        for path, problem in audit_head(f"{self._folder}/{mf.HEAD_FILE}", self._head(), found):
            self._say(path, problem)
        there = {path.rpartition("/")[2] for _, _, path in self._files}
        for path, signed in found:
            for file in signed.value.files:
                self._listed[file.name] = file
                if file.name not in there:
                    self._say(f"{path.rpartition('/')[0]}/{file.name}", "is missing")

    def _entries(self) -> Iterator[tuple[str, Entry]]:
        """Files of all periods, each with its folder."""
        for date in self._target.list(self._folder):
            if not date.is_folder or not date.name.startswith("date="):
                continue
            for hour in self._target.list(f"{self._folder}/{date.name}"):
                folder = f"{self._folder}/{date.name}/{hour.name}"
                for entry in self._target.list(folder):
                    yield folder, entry

    def _head(self) -> mf.Signed[mf.ShippedHead] | None:
        path = f"{self._folder}/{mf.HEAD_FILE}"
        try:
            if self._target.status(path) is None:
                return None
            return mf.parse_head(b"".join(self._target.read(path)), self._trusted)
        except (FormatError, TargetError) as error:
            self._say(path, str(error))
            return None

    def _say(self, path: str, problem: str) -> None:
        finding = f"{path.removeprefix(self._folder + '/')}: {problem}"
        if finding not in self.findings:
            self.findings.append(finding)

    # --- records

    def next_from(self, log_seq: int) -> int | None:
        return min((max(first, log_seq) for first, last, _ in self._files if last >= log_seq),
                   default=None)  # fmt: skip

    def span(self, log_seq: int) -> Span | None:
        best: Span | None = None
        end = bisect_right(self._files, log_seq, key=lambda file: file[0])
        for first, last, path in reversed(self._files[:end]):
            if last < log_seq:
                continue
            found = self._file(path, first, last)
            if found is None or len(found.digests) <= log_seq - first:
                continue
            rest = found.tail(log_seq - first)
            if not rest.doubtful:
                return rest
            best = best or rest
        return best

    def _file(self, path: str, first: int, last: int) -> Span | None:
        """The records of a file; those are doubtful for which no signature stands."""
        if self._read[0] == path:
            return self._read[1]
        span: Span | None = None
        try:
            raw = b"".join(self._target.read(path))
        except TargetError as error:
            self._say(path, str(error))
        else:
            count = min(last - first + 1, max(0, len(raw) - HEAD_SIZE) // RECORD_SIZE)
            records = raw[HEAD_SIZE : HEAD_SIZE + count * RECORD_SIZE]
            span = Span(records, digests_of(records), [])
            if not self._is_signed(raw, last - first + 1):
                listed = self._listed.get(path.rpartition("/")[2])
                span.doubtful = _unlisted(span.digests, listed)
                self._say(path, "is damaged, or its signature is of no trusted key")
        self._read = (path, span)
        return span

    def _is_signed(self, raw: bytes, count: int) -> bool:
        if len(raw) != HEAD_SIZE + count * RECORD_SIZE + SIGNATURE_SIZE:
            return False
        digest = sha256(memoryview(raw)[:-SIGNATURE_SIZE]).digest()
        signature = raw[-SIGNATURE_SIZE:]
        return any(
            verify(key, CONTEXT_SNAPSHOT, digest, signature) for key in sorted(self._trusted)
        )


def _unlisted(digests: list[bytes], listed: mf.ShippedFile | None) -> list[Range]:
    """The chunks that a signed manifest does not have as they are."""
    found = []
    for number, first in enumerate(range(0, len(digests), mf.CHUNK_RECORDS)):
        end = min(first + mf.CHUNK_RECORDS, len(digests))
        known = listed.chunks[number] if listed and number < len(listed.chunks) else None
        if sha256(b"".join(digests[first:end])).digest() != known:
            found.append((first, end))
    return found
