"""What lies in an archive and belongs to nobody: files that no manifest lists.

A file counts by its manifest alone, so these do no harm to the tables; but somebody put them there,
and whoever reads the folder without manifests would take them for messages. Looked at are the days
that an ingest reads. A file whose records come after all that is shipped is none: sealed parts of
the running period lie there early.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from appliance.base.errors import FormatError
from appliance.base.signature import CONTEXT_SNAPSHOT, SIGNATURE_SIZE, verify
from appliance.formats import manifest as shipped
from appliance.reports.archive import Archive, Quarantined, wrong
from appliance.reports.file_store import Entry, read_all

STRAYS_MAX = 1000  # of a shard and run that are told
_READ_SIZE = 1 << 20


def strays(archive: Archive, shard: int, date: str, last_log_seq: int) -> Iterator[Quarantined]:
    """Files of the days from `date` on that no manifest lists; records up to `last_log_seq` are
    shipped."""
    folder = archive.folder(shard)
    known = {shipped.HEAD_FILE, shipped.INCOMING_FOLDER}
    for day in archive.store.list(folder):
        if not day.name.startswith("date="):
            if day.name not in known:
                yield _stray(archive, shard, f"{folder}/{day.name}", day)
        elif day.name.removeprefix("date=") >= date:
            for hour in archive.store.list(f"{folder}/{day.name}"):
                yield from _in_hour(
                    archive, shard, f"{folder}/{day.name}/{hour.name}", last_log_seq
                )


def _in_hour(archive: Archive, shard: int, path: str, last_log_seq: int) -> Iterator[Quarantined]:
    entries = archive.store.list(path)
    manifests = [e for e in entries if shipped.parse_manifest_name(e.name) is not None]
    suspects = []
    for entry in entries:
        span = shipped.parse_snapshot_name(entry.name)
        if entry not in manifests and (span is None or span[0] <= last_log_seq):
            suspects.append(entry)
    listed: set[str] | None = set()
    for entry in manifests if suspects else ():
        listed = _add(listed, archive, f"{path}/{entry.name}")
    if listed is None:
        return  # whose files these are is not known; the manifest is told of
    for entry in suspects:
        if entry.name not in listed:
            yield _stray(archive, shard, f"{path}/{entry.name}", entry)


def _add(listed: set[str] | None, archive: Archive, path: str) -> set[str] | None:
    """With the files of one more manifest; None once one cannot be read."""
    if listed is None:
        return None
    try:
        signed = shipped.parse_manifest(read_all(archive.store, path), archive.trusted.public_keys)
    except (FormatError, FileNotFoundError):
        return None
    return listed | {file.name for file in signed.value.files}


def _stray(archive: Archive, shard: int, path: str, entry: Entry) -> Quarantined:
    if entry.is_folder or _is_trusted(archive, path, entry.size):
        return wrong(shard, path, "unlisted", "is listed by no manifest, and is not counted")
    return wrong(
        shard, path, "foreign", "is listed by no manifest, and no key of this cluster signed it"
    )


def _is_trusted(archive: Archive, path: str, size: int) -> bool:
    """Whether it is a whole snapshot file that a trusted key signed."""
    if size <= SIGNATURE_SIZE:
        return False
    digest, left = sha256(), size - SIGNATURE_SIZE
    try:
        with archive.store.open(path, 0, size) as stream:
            while left and (part := stream.read(min(left, _READ_SIZE))):
                digest.update(part)
                left -= len(part)
            signature = b""
            while part := stream.read(SIGNATURE_SIZE - len(signature)):
                signature += part
    except FileNotFoundError:
        return False
    keys = archive.trusted.public_keys
    return any(verify(key, CONTEXT_SNAPSHOT, digest.digest(), signature) for key in keys)
