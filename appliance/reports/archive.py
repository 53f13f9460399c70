"""What was shipped, as far as manifests tell it: their own chain, judged on the driver.

    head.json  ──names──▶  manifest N  ──previous──▶  manifest N-1  ──▶ …

A manifest that fails is quarantined with all its records; the next good one goes on. The name of
a manifest's file is the start of its period, so a folder listing is in order of time; the number in
it must be dense.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from appliance.base.errors import ConfigurationError, FormatError
from appliance.formats import manifest as shipped
from appliance.formats.manifest import PeriodManifest, ShippedHead, TrustedKeys
from appliance.reports.file_store import FileStore, read_all

_SHARD_FOLDER = re.compile(r"shard=([0-9]{5})")


class Quarantined(NamedTuple):
    """Something of the archive that is not in the tables, and why."""

    shard: int
    number: int  # of its manifest; -1 unless known
    file: str  # path in the archive
    record: int  # index in the file of the first one that is wrong; -1 = the file
    offset: int  # of that record in the file, in bytes
    first_log_seq: int  # of what is left out; 0 unless known
    last_log_seq: int
    reason: str
    sentence: str

    def line(self) -> str:
        """For people."""
        where = f", record {self.record} at byte {self.offset}" if self.record >= 0 else ""
        lost = ""
        if self.first_log_seq and self.last_log_seq >= self.first_log_seq:
            lost = f" (leaves out records {self.first_log_seq} to {self.last_log_seq})"
        return f"{self.reason}: {self.file}{where}: {self.sentence}{lost}"


@dataclass(frozen=True, slots=True)
class Archive:
    """A cluster's folder and who is trusted to have written it."""

    store: FileStore
    trusted: TrustedKeys

    def shards(self) -> list[int]:
        """Those there are folders of; all must be those of the keys file."""
        cluster = f"cluster={self.trusted.cluster.hex()}"
        if not self.store.list(cluster):
            others = [e.name for e in self.store.list("") if e.name.startswith("cluster=")]
            found = f"there are {', '.join(others)}" if others else "there is no cluster at all"
            raise ConfigurationError(
                f"{self.store.url}: no folder {cluster}, of which the keys file speaks; {found}"
            )
        names = [e.name for e in self.store.list(cluster) if e.is_folder]
        matches = (_SHARD_FOLDER.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in matches if match is not None)

    def folder(self, shard: int) -> str:
        return shipped.shard_folder(self.trusted.cluster, shard)

    def manifests_after(self, shard: int, date: str, start_us: int) -> Iterator[tuple[int, str]]:
        """(period start, path) of the manifests of periods from `start_us` on, in order.

        `date` is that of the first folder to look into, or empty.
        """
        folder = self.folder(shard)
        for day in self.store.list(folder):
            if not day.name.startswith("date=") or day.name.removeprefix("date=") < date:
                continue
            found = []
            for hour in self.store.list(f"{folder}/{day.name}"):
                path = f"{folder}/{day.name}/{hour.name}"
                for entry in self.store.list(path):
                    start = shipped.parse_manifest_name(entry.name)
                    if start is not None and start >= start_us:
                        found.append((start, f"{path}/{entry.name}"))
            yield from sorted(found)

    def head(self, shard: int) -> tuple[ShippedHead | None, Quarantined | None]:
        """The verified head, or what is wrong with it."""
        path = f"{self.folder(shard)}/{shipped.HEAD_FILE}"
        try:
            raw = read_all(self.store, path)
            signed = shipped.parse_head(raw, self.trusted.public_keys)
        except FileNotFoundError:
            return None, wrong(
                shard,
                path,
                "missing_head",
                "is not there: whether the newest manifests are missing cannot be told",
            )
        except FormatError as error:
            reason = reason_of(error, raw, self.trusted.cluster)
            return None, wrong(shard, path, reason, str(error))
        head = signed.value
        if head.cluster != self.trusted.cluster or head.shard != shard:
            return None, wrong(shard, path, "foreign", "is of another cluster or shard")
        return head, None


def wrong(
    shard: int,
    path: str,
    reason: str,
    sentence: str,
    *,
    number: int = -1,
    first: int = 0,
    last: int = 0,
) -> Quarantined:
    """A quarantined file as a whole."""
    return Quarantined(shard, number, path, -1, 0, first, last, reason, sentence)


def reason_of(error: FormatError, raw: bytes = b"", cluster: bytes = b"") -> str:
    """The word for what a signed file is refused for; `raw` of a manifest or head, which may say
    itself that it is of another cluster than `cluster`."""
    text = str(error)
    if "not among the trusted" in text and shipped.claimed_cluster(raw) not in (None, cluster):
        return "foreign"
    words = {
        "not among the trusted": "wrong_key",
        "signature": "tampered",
        "truncated": "truncated",
        "format": "schema_version",
    }
    return next((word for part, word in words.items() if part in text), "tampered")


class Cursor(NamedTuple):
    """Up to where the manifests of a shard have been judged."""

    number: int = -1  # newest manifest that counts, in the tables or in quarantine
    hash: bytes = bytes(32)  # of its first line; empty unless it is known
    period_end_us: int = 0  # 0 = unknown
    last_log_seq: int = 0
    newest_start_us: int = -1  # of the newest manifest file that was looked at


class Checked(NamedTuple):
    """A manifest file and what is to be done about it."""

    cursor: Cursor  # after it
    path: str
    manifest: PeriodManifest | None  # None: nothing of it may be used
    signer: bytes
    lost: tuple[int, int]  # log_seq missing before its records; none if first > last
    quarantined: tuple[Quarantined, ...]


def check(archive: Archive, shard: int, cursor: Cursor, start_us: int, path: str) -> Checked:
    """Read one manifest, the next one by its name, and judge it against what is known so far."""
    after = cursor._replace(newest_start_us=start_us)
    try:
        raw = read_all(archive.store, path)
        signed = shipped.parse_manifest(raw, archive.trusted.public_keys)
    except (FormatError, FileNotFoundError) as error:
        reason = "missing_file"
        if isinstance(error, FormatError):
            reason = reason_of(error, raw, archive.trusted.cluster)
        bad = wrong(shard, path, reason, str(error), number=cursor.number + 1)
        return Checked(after._replace(hash=b""), path, None, b"", (1, 0), (bad,))
    found = signed.value
    problem = _misplaced(archive, shard, cursor, found, start_us, path)
    if problem is not None:
        bad = wrong(shard, path, *problem, number=found.number)
        return Checked(after, path, None, signed.signer, (1, 0), (bad,))
    lost, bad_rows = _link(shard, cursor, found, signed.hash, path)
    after = Cursor(found.number, signed.hash, found.period_end_us, found.last_log_seq, start_us)
    return Checked(after, path, found, signed.signer, lost, bad_rows)


def _misplaced(
    archive: Archive, shard: int, cursor: Cursor, found: PeriodManifest, start_us: int, path: str
) -> tuple[str, str] | None:
    """Why a manifest that is well signed does not belong here."""
    folder = f"{archive.folder(shard)}/{shipped.period_folder(found.period_start_us)}"
    if found.cluster != archive.trusted.cluster:
        return "foreign", f"is of cluster {found.cluster.hex()}"
    if found.shard != shard:
        return "foreign", f"is of shard {found.shard}"
    if found.period_start_us != start_us or path.rpartition("/")[0] != folder:
        return "replayed", "is the manifest of another period than its name says"
    if found.number <= cursor.number:
        return "replayed", f"has number {found.number} after number {cursor.number}"
    if found.first_log_seq <= cursor.last_log_seq:
        return "replayed", f"begins with record {found.first_log_seq}, which an earlier one has"
    if found.period_start_us < cursor.period_end_us:
        return "replayed", "begins before the period before it ends"
    return None


def _link(
    shard: int, cursor: Cursor, found: PeriodManifest, digest: bytes, path: str
) -> tuple[tuple[int, int], tuple[Quarantined, ...]]:
    """The records missing before a manifest, and how that is told."""
    lost = (cursor.last_log_seq + 1, found.first_log_seq - 1)
    follows = found.number == cursor.number + 1
    if not follows:
        absent = (
            f"{cursor.number + 1}"
            if found.number == cursor.number + 2
            else f"{cursor.number + 1} to {found.number - 1}"
        )
        row = wrong(
            shard,
            path,
            "missing_manifest",
            f"is number {found.number}; number {absent} is missing or in quarantine before it",
            number=cursor.number + 1,
            first=lost[0],
            last=lost[1],
        )
        return lost, (row,)
    if cursor.hash and found.previous != cursor.hash:
        row = wrong(
            shard,
            path,
            "tampered",
            "names another manifest before it than the one that "
            f"lies there as number {cursor.number}",
            number=found.number,
        )
        return lost, (row,)
    if lost[0] <= lost[1]:
        return lost, (
            wrong(
                shard,
                path,
                "gap",
                f"begins with record {found.first_log_seq} after {cursor.last_log_seq}",
                number=found.number,
                first=lost[0],
                last=lost[1],
            ),
        )
    if cursor.period_end_us and found.period_start_us != cursor.period_end_us:
        return lost, (
            wrong(
                shard,
                path,
                "missing_manifest",
                "does not begin where the period before it ends",
                number=found.number,
            ),
        )
    return lost, ()


def missing_newest(
    shard: int, cursor: Cursor, head: ShippedHead | None, folder: str
) -> Quarantined | None:
    """What the head says against the newest manifest, if anything."""
    path = f"{folder}/{shipped.HEAD_FILE}"
    if head is None:
        return None
    if head.number > cursor.number:
        first = cursor.last_log_seq + 1
        return wrong(
            shard,
            path,
            "missing_manifest",
            f"names manifest {head.number} as the "
            f"newest; those from number {cursor.number + 1} on are missing or bad",
            number=cursor.number + 1,
            first=first,
            last=head.last_log_seq,
        )
    if head.number == cursor.number and cursor.hash and head.manifest != cursor.hash:
        return wrong(
            shard,
            path,
            "replayed",
            f"names another manifest {head.number} than the one that is there",
            number=head.number,
        )
    if head.number < cursor.number - 1:
        return wrong(
            shard,
            path,
            "replayed",
            f"names manifest {head.number} as the newest, but number {cursor.number} is known",
            number=head.number,
        )
    return None
