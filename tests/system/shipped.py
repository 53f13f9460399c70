"""What lies at a target, read without the code that wrote it: JSON, digests, records by offset."""

import hashlib
import json
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from appliance.base.signature import verify
from appliance.drivers.hdfs.target import Target
from appliance.formats import snapshot
from appliance.formats.site import Site

RECORD = 2240
MANIFEST = re.compile(r"manifest-\d{8}T\d{6}Z\.json")


@dataclass
class Shipped:
    """A shard's folder, judged as it was read."""

    manifests: list[dict[str, Any]] = field(default_factory=list)
    records: dict[int, bytes] = field(default_factory=dict)  # log_seq -> record
    unlisted: list[str] = field(default_factory=list)
    incoming: list[str] = field(default_factory=list)
    head: dict[str, Any] | None = None

    @property
    def last_log_seq(self) -> int:
        return self.manifests[-1]["last_log_seq"] if self.manifests else 0

    def messages(self) -> dict[tuple[bytes, int], bytes]:
        """(room, seq) -> body, of the records of users."""
        found = {}
        for raw in self.records.values():
            length = struct.unpack_from("<I", raw, 72)[0]
            if raw[2216] == 0:
                found[raw[:16], struct.unpack_from("<Q", raw, 2224)[0]] = raw[76 : 76 + length]
        return found


def signed_line(raw: bytes, site: Site, context: bytes) -> tuple[dict[str, Any], str]:
    """(what the first line says, its SHA-256); the second one's signature is checked."""
    line, second, rest = raw.split(b"\n")
    assert rest == b""
    by = json.loads(second)
    signer = bytes.fromhex(by["signer"])
    assert signer in {node.public_key for node in site.nodes}
    digest = hashlib.sha256(line)
    assert verify(signer, context, digest.digest(), bytes.fromhex(by["signature"]))
    return json.loads(line), digest.hexdigest()


def read(target: Target, site: Site, shard: int = 0) -> Shipped:
    """Everything, with every digest, signature and chain checked, and no log_seq twice."""
    root = f"cluster={site.cluster.hex()}/shard={shard:05d}"
    shipped = Shipped(incoming=[entry.name for entry in target.list(f"{root}/_incoming")])
    found, snapshots = [], set()
    for date in target.list(root):
        for hour in target.list(f"{root}/{date.name}") if date.name.startswith("date=") else []:
            folder = f"{root}/{date.name}/{hour.name}"
            for entry in target.list(folder):
                if MANIFEST.fullmatch(entry.name):
                    raw = b"".join(target.read(f"{folder}/{entry.name}"))
                    found.append((folder, *signed_line(raw, site, b"tigerchat v1 manifest")))
                else:
                    snapshots.add(f"{folder}/{entry.name}")
    previous, following, end = "0" * 64, 1, None
    for number, (folder, manifest, digest) in enumerate(
        sorted(found, key=lambda row: row[1]["number"])
    ):
        assert (manifest["number"], manifest["previous"]) == (number, previous), manifest
        assert manifest["first_log_seq"] == following
        assert end in (None, manifest["period_start_us"])
        for file in manifest["files"]:
            path = f"{folder}/{file['name']}"
            snapshots.remove(path)
            _file(target, path, file, manifest, site, shipped)
        previous, following = digest, manifest["last_log_seq"] + 1
        end = manifest["period_start_us"] + manifest["period_us"]
        assert sorted(shipped.records)[-1:] in ([], [following - 1])
        shipped.manifests.append(manifest)
    # a file of a period that is being put lies there before its manifest does
    shipped.unlisted = sorted(path for path in snapshots if _first_log_seq(path) < following)
    if target.status(f"{root}/head.json") is not None:
        raw = b"".join(target.read(f"{root}/head.json"))
        shipped.head, _ = signed_line(raw, site, b"tigerchat v1 shipped head")
    assert list(shipped.records) == list(range(1, following))
    return shipped


def _first_log_seq(path: str) -> int:
    return int(path.rpartition("/")[2].split("-")[1])


def _file(
    target: Target,
    path: str,
    file: dict[str, Any],
    manifest: dict[str, Any],
    site: Site,
    shipped: Shipped,
) -> None:
    raw = b"".join(target.read(path))
    assert len(raw) == file["size"]
    assert hashlib.sha256(raw[:-64]).hexdigest() == file["sha256"]
    assert any(_parses(raw, node.public_key) for node in site.nodes), path
    for i in range(file["record_count"]):
        record = raw[48 + i * RECORD : 48 + (i + 1) * RECORD]
        (log_seq,) = struct.unpack_from("<Q", record, 2232)
        (time_us,) = struct.unpack_from("<Q", record, 64)
        assert log_seq == file["first_log_seq"] + i
        assert 0 <= time_us - manifest["period_start_us"] < manifest["period_us"]
        assert log_seq not in shipped.records
        shipped.records[log_seq] = record


def _parses(raw: bytes, key: bytes) -> bool:
    if not verify(key, b"tigerchat v1 snapshot", hashlib.sha256(raw[:-64]).digest(), raw[-64:]):
        return False
    return snapshot.parse(raw, key).record_count > 0
