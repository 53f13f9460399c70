"""What lies on HDFS beside the snapshot files: manifests of periods, the head, the trusted keys.

    ROOT/cluster=<32 hex>/shard=<5 digits>/
        _incoming/<generation>-<file name>     being put; nobody but the shipper reads it
        head.json                              signed: which manifest is the newest
        date=YYYY-MM-DD/hour=HH/               of the start of the period, UTC
            snapshot-<first log_seq>-<last log_seq>.tig
            manifest-YYYYMMDDTHHMMSSZ.json

A signed file is two lines. The first is JSON without spaces, its keys in a fixed order, and a
function of the log alone: it names no signer and no clock, so that every shipper writes the same
bytes. The second names who signed its SHA-256. A reader takes a first line only if it is exactly
what `encode` gives for the values in it: one manifest has one hash, and nothing hides beside them.

Spark's interpreter reads with this module too: it needs the standard library and PyNaCl only.
"""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Generic, TypeVar

from appliance.base.errors import FormatError
from appliance.base.json_text import parse_json
from appliance.base.signature import (
    CONTEXT_MANIFEST,
    CONTEXT_SHIPPED_HEAD,
    PUBLIC_KEY_SIZE,
    SIGNATURE_SIZE,
    SigningKey,
    verify,
)
from appliance.formats.geometry import RECORD_SIZE

FORMAT = 1
CHUNK_RECORDS = 10_000  # records under one hash in a manifest
HASH_SIZE = 32
NO_MANIFEST = bytes(HASH_SIZE)  # "previous" of the first manifest
HEAD_FILE = "head.json"
INCOMING_FOLDER = "_incoming"
SIGNED_SIZE_MAX = 64 << 20  # bytes of a signed file that a reader takes: 200,000 files
SECOND_US = 1_000_000

_CLUSTER_SIZE = 16
_NUMBER_MAX = (1 << 63) - 1
_SHARD_MAX = (1 << 16) - 1
_TIME_US_MAX = 253_402_300_800 * SECOND_US  # end of the year 9999
_SNAPSHOT_FRAME = 48 + SIGNATURE_SIZE  # bytes of a snapshot file beside its records


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """One snapshot file as its manifest describes it."""

    first_log_seq: int
    last_log_seq: int
    sha256: bytes  # of all bytes before the file's signature
    chunks: tuple[bytes, ...]  # of each CHUNK_RECORDS records: SHA-256 over their 32-byte hashes

    @property
    def name(self) -> str:
        """Its name in the folder of the period."""
        return snapshot_name(self.first_log_seq, self.last_log_seq)

    @property
    def record_count(self) -> int:
        """Records in it; log_seq has no gaps."""
        return self.last_log_seq - self.first_log_seq + 1

    @property
    def size(self) -> int:
        """Bytes of the whole file, its signature included."""
        return _SNAPSHOT_FRAME + self.record_count * RECORD_SIZE


@dataclass(frozen=True, slots=True)
class PeriodManifest:
    """Every record of a period of a shard, and the manifest before; immutable once shipped.

    Invariants (`check`): the files cover first_log_seq to last_log_seq in order, without a gap;
    an idle period has no file and last_log_seq = first_log_seq - 1.
    """

    cluster: bytes
    shard: int
    number: int  # 0, 1, 2 ... of this shard
    previous: bytes  # hash of manifest number - 1; NO_MANIFEST for number 0
    period_start_us: int
    period_us: int
    first_log_seq: int
    last_log_seq: int
    files: tuple[ShippedFile, ...]
    ahead_us: int = 0  # of the periods before the times that records bear, at the end of this one

    @property
    def record_count(self) -> int:
        """Records of the period."""
        return self.last_log_seq - self.first_log_seq + 1

    @property
    def period_end_us(self) -> int:
        """Start of the next period."""
        return self.period_start_us + self.period_us

    @property
    def earliest_us(self) -> int:
        """No record of the period bears an earlier time; all are before its end."""
        return self.period_start_us - self.ahead_us

    def check(self) -> None:
        """Raise FormatError, naming the field, when an invariant does not hold."""
        _check_period(self.period_start_us, self.period_us)
        if self.ahead_us > self.period_end_us:
            raise _wrong("ahead_us", f"{self.ahead_us} is more than the end of the period")
        if (self.number == 0) != (self.previous == NO_MANIFEST):
            raise _wrong("previous", "is zero for number 0 and for no other")
        if self.first_log_seq < 1 or self.last_log_seq < self.first_log_seq - 1:
            raise _wrong("last_log_seq", f"{self.last_log_seq} after {self.first_log_seq}")
        following = self.first_log_seq
        for file in self.files:
            if file.first_log_seq != following or file.last_log_seq < following:
                raise _wrong("files", f"{file.name} does not follow record {following - 1}")
            if len(file.chunks) != -(-file.record_count // CHUNK_RECORDS):
                raise _wrong("chunks", f"{len(file.chunks)} for {file.record_count} records")
            following = file.last_log_seq + 1
        if following != self.last_log_seq + 1:
            raise _wrong("files", f"end with record {following - 1} of {self.last_log_seq}")


@dataclass(frozen=True, slots=True)
class ShippedHead:
    """The newest manifest of a shard; its absence elsewhere is how a reader knows of a loss."""

    cluster: bytes
    shard: int
    number: int
    manifest: bytes  # its hash
    period_start_us: int
    period_us: int
    last_log_seq: int


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """Whose signatures an analyst accepts for a cluster."""

    cluster: bytes
    shards: int
    keys: tuple[tuple[str, bytes], ...]  # node's name, public key
    records_max: int = 0  # that the site's shards hold, all together; 0: it is not said

    @property
    def public_keys(self) -> frozenset[bytes]:
        """Without the names."""
        return frozenset(key for _, key in self.keys)


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Signed(Generic[Value]):
    """A verified file: what it says, the hash of its first line, who signed it."""

    value: Value
    hash: bytes
    signer: bytes


# --- names ----------------------------------------------------------------------------------------

_SNAPSHOT_NAME = re.compile(r"snapshot-([0-9]{20})-([0-9]{20})\.tig")
_MANIFEST_NAME = re.compile(r"manifest-([0-9]{8}T[0-9]{6}Z)\.json")
_INCOMING_NAME = re.compile(r"([0-9]+)-(.+)")
_MANIFEST_TIME = "%Y%m%dT%H%M%SZ"


def shard_folder(cluster: bytes, shard: int) -> str:
    """Folder of a shard below the root of the target."""
    assert len(cluster) == _CLUSTER_SIZE
    return f"cluster={cluster.hex()}/shard={shard:05d}"


def period_folder(period_start_us: int) -> str:
    """Folder of a period below its shard's."""
    return _utc(period_start_us).strftime("date=%Y-%m-%d/hour=%H")


def snapshot_name(first_log_seq: int, last_log_seq: int) -> str:
    """File of these records."""
    return f"snapshot-{first_log_seq:020d}-{last_log_seq:020d}.tig"


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """(first, last log_seq) that a snapshot file's name tells; None for any other name."""
    found = _SNAPSHOT_NAME.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def manifest_name(period_start_us: int) -> str:
    """File of the manifest of the period that starts then."""
    return f"manifest-{_utc(period_start_us).strftime(_MANIFEST_TIME)}.json"


def parse_manifest_name(name: str) -> int | None:
    """Start of the period, in microseconds, that a manifest's name tells."""
    found = _MANIFEST_NAME.fullmatch(name)
    if found is None:
        return None
    try:
        start = datetime.strptime(found[1], _MANIFEST_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(start.timestamp()) * SECOND_US


def incoming_name(generation: int, name: str) -> str:
    """Name of a file while the shipper of `generation` puts it."""
    return f"{generation}-{name}"


def parse_incoming_name(name: str) -> tuple[int, str] | None:
    """(generation, name it is to get) of a file under _incoming."""
    found = _INCOMING_NAME.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def _utc(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us // SECOND_US, UTC)


# --- signed files ---------------------------------------------------------------------------------


def encode_manifest(manifest: PeriodManifest) -> bytes:
    """The first line of its file: what is hashed, signed and named by the next one."""
    manifest.check()
    return _line(
        {
            "format": FORMAT,
            "cluster": manifest.cluster.hex(),
            "shard": manifest.shard,
            "number": manifest.number,
            "previous": manifest.previous.hex(),
            "period_start_us": manifest.period_start_us,
            "period_us": manifest.period_us,
            "first_log_seq": manifest.first_log_seq,
            "last_log_seq": manifest.last_log_seq,
            "record_count": manifest.record_count,
            **({"ahead_us": manifest.ahead_us} if manifest.ahead_us else {}),
            "chunk_records": CHUNK_RECORDS,
            "files": [
                {
                    "name": file.name,
                    "first_log_seq": file.first_log_seq,
                    "last_log_seq": file.last_log_seq,
                    "record_count": file.record_count,
                    "size": file.size,
                    "sha256": file.sha256.hex(),
                    "chunks": [chunk.hex() for chunk in file.chunks],
                }
                for file in manifest.files
            ],
        }
    )


def manifest_hash(manifest: PeriodManifest) -> bytes:
    """What the next manifest, the head and the log name it by."""
    return sha256(encode_manifest(manifest)).digest()


def encode_head(head: ShippedHead) -> bytes:
    """The first line of head.json."""
    _check_period(head.period_start_us, head.period_us)
    return _line(
        {
            "format": FORMAT,
            "cluster": head.cluster.hex(),
            "shard": head.shard,
            "number": head.number,
            "manifest": head.manifest.hex(),
            "period_start_us": head.period_start_us,
            "period_us": head.period_us,
            "last_log_seq": head.last_log_seq,
        }
    )


def sign_manifest(manifest: PeriodManifest, key: SigningKey) -> bytes:
    """The whole file."""
    return _signed(encode_manifest(manifest), CONTEXT_MANIFEST, key)


def sign_head(head: ShippedHead, key: SigningKey) -> bytes:
    """The whole file."""
    return _signed(encode_head(head), CONTEXT_SHIPPED_HEAD, key)


def parse_manifest(raw: bytes, trusted: Collection[bytes]) -> Signed[PeriodManifest]:
    """Verify a manifest's file, signed by one of the `trusted` public keys."""
    return _verified(raw, CONTEXT_MANIFEST, trusted, _manifest_of, encode_manifest)


def parse_head(raw: bytes, trusted: Collection[bytes]) -> Signed[ShippedHead]:
    """Verify head.json, signed by one of the `trusted` public keys."""
    return _verified(raw, CONTEXT_SHIPPED_HEAD, trusted, _head_of, encode_head)


def claimed_cluster(raw: bytes) -> bytes | None:
    """The cluster that a manifest's or head's file claims to be of, which nobody vouches for; None
    where it claims none."""
    try:
        return _hex(_table(raw.split(b"\n")[0], "first line"), "cluster", _CLUSTER_SIZE)
    except FormatError:
        return None


def _signed(line: bytes, context: bytes, key: SigningKey) -> bytes:
    signature = key.sign(context, sha256(line).digest())
    return b"%s\n%s\n" % (line, _line({"signer": key.public.hex(), "signature": signature.hex()}))


def _verified(
    raw: bytes,
    context: bytes,
    trusted: Collection[bytes],
    read: Callable[[dict[str, Any]], Value],
    encode: Callable[[Value], bytes],
) -> Signed[Value]:
    """Signature first: nothing is said of contents that no trusted key stands for."""
    if len(raw) > SIGNED_SIZE_MAX:
        raise _wrong("file", f"has {len(raw)} bytes, at most {SIGNED_SIZE_MAX} are read")
    parts = raw.split(b"\n")
    if len(parts) != 3 or parts[2]:
        raise _wrong("file", "is not two lines; it may be truncated")
    line, second = parts[0], _table(parts[1], "second line")
    signer = _hex(second, "signer", PUBLIC_KEY_SIZE)
    signature = _hex(second, "signature", SIGNATURE_SIZE)
    digest = sha256(line).digest()
    if signer not in trusted:
        raise _wrong("signer", f"{signer.hex()} is not among the trusted keys")
    if not verify(signer, context, digest, signature):
        raise _wrong("signature", "is not of this line, use and key")
    table = _table(line, "first line")
    _check_format(table)
    value = read(table)
    if encode(value) != line:
        raise _wrong("first line", "is not in the one form that its values have")
    return Signed(value, digest, signer)


def _manifest_of(table: dict[str, Any]) -> PeriodManifest:
    if _whole(table, "chunk_records") != CHUNK_RECORDS:
        raise _wrong("chunk_records", f"is not {CHUNK_RECORDS}")
    files = tuple(_file_of(row) for row in _list(table, "files"))
    return PeriodManifest(
        cluster=_hex(table, "cluster", _CLUSTER_SIZE),
        shard=_whole(table, "shard", _SHARD_MAX),
        number=_whole(table, "number"),
        previous=_hex(table, "previous", HASH_SIZE),
        period_start_us=_whole(table, "period_start_us"),
        period_us=_whole(table, "period_us"),
        first_log_seq=_whole(table, "first_log_seq"),
        last_log_seq=_whole(table, "last_log_seq"),
        files=files,
        ahead_us=_whole(table, "ahead_us") if "ahead_us" in table else 0,
    )


def _file_of(row: Any) -> ShippedFile:
    if not isinstance(row, dict):
        raise _wrong("files", "holds something else than tables")
    chunks = tuple(_hex({"chunks": chunk}, "chunks", HASH_SIZE) for chunk in _list(row, "chunks"))
    return ShippedFile(
        _whole(row, "first_log_seq"),
        _whole(row, "last_log_seq"),
        _hex(row, "sha256", HASH_SIZE),
        chunks,
    )


def _head_of(table: dict[str, Any]) -> ShippedHead:
    return ShippedHead(
        cluster=_hex(table, "cluster", _CLUSTER_SIZE),
        shard=_whole(table, "shard", _SHARD_MAX),
        number=_whole(table, "number"),
        manifest=_hex(table, "manifest", HASH_SIZE),
        period_start_us=_whole(table, "period_start_us"),
        period_us=_whole(table, "period_us"),
        last_log_seq=_whole(table, "last_log_seq"),
    )


# --- the keys file --------------------------------------------------------------------------------


def encode_keys(trusted: TrustedKeys) -> bytes:
    """One line; it is not signed: the analyst gets it by a way that is trusted already."""
    rows = [{"node": node, "public_key": key.hex()} for node, key in trusted.keys]
    room = {"records_max": trusted.records_max} if trusted.records_max else {}
    return (
        _line(
            {
                "format": FORMAT,
                "cluster": trusted.cluster.hex(),
                "shards": trusted.shards,
                "keys": rows,
                **room,
            }
        )
        + b"\n"
    )


def parse_keys(raw: bytes) -> TrustedKeys:
    """The keys in a file that `encode_keys` or a careful hand wrote."""
    table = _table(raw, "keys file")
    _check_format(table)
    keys = []
    for row in _list(table, "keys"):
        if not isinstance(row, dict) or not isinstance(row.get("node"), str):
            raise _wrong("keys", "are not tables with node and public_key")
        keys.append((row["node"], _hex(row, "public_key", PUBLIC_KEY_SIZE)))
    if not keys:
        raise _wrong("keys", "is empty: nothing could be trusted")
    shards = _whole(table, "shards")
    if shards < 1:
        raise _wrong("shards", "is zero")
    room = _whole(table, "records_max") if "records_max" in table else 0
    return TrustedKeys(_hex(table, "cluster", _CLUSTER_SIZE), shards, tuple(keys), room)


# --- fields ---------------------------------------------------------------------------------------


def _wrong(field: str, reason: str) -> FormatError:
    return FormatError(f"manifest: {field} {reason}")


def _check_format(table: dict[str, Any]) -> None:
    if _whole(table, "format") != FORMAT:
        raise _wrong("format", f"{table['format']} is not known here, only {FORMAT}")


def _check_period(start_us: int, length_us: int) -> None:
    if start_us % SECOND_US or not 0 <= start_us < _TIME_US_MAX:
        raise _wrong("period_start_us", f"{start_us} is not a whole second of this calendar")
    if length_us < SECOND_US or length_us % SECOND_US:
        raise _wrong("period_us", f"{length_us} is not a number of whole seconds")


def _line(table: dict[str, Any]) -> bytes:
    return json.dumps(table, separators=(",", ":")).encode()


def _table(raw: bytes, what: str) -> dict[str, Any]:
    try:
        table = parse_json(raw)
    except ValueError as error:
        raise _wrong(what, "is not JSON") from error
    if not isinstance(table, dict):
        raise _wrong(what, "is not a JSON object")
    return table


def _whole(table: dict[str, Any], field: str, largest: int = _NUMBER_MAX) -> int:
    value = table.get(field)
    if type(value) is not int or not 0 <= value <= largest:
        raise _wrong(field, "is missing or not a whole number")
    return value


def _list(table: dict[str, Any], field: str) -> list[Any]:
    value = table.get(field)
    if not isinstance(value, list):
        raise _wrong(field, "is missing or not a list")
    return value


def _hex(table: dict[str, Any], field: str, size: int) -> bytes:
    value = table.get(field)
    if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", value):
        raise _wrong(field, f"is missing or not {size} bytes in lower-case hexadecimal")
    return bytes.fromhex(value)
