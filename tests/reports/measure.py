"""How fast an archive becomes tables: run by `make bench`, prints a JSON row for each measurement.

    python tests/reports/measure.py FOLDER [--quick]                   all of them
    python tests/reports/measure.py FOLDER --one ARCHIVE --cores N     one, in a Spark of its own

Each measurement has a fresh Spark, so that the memory of its workers is its own. What is timed
begins when Spark and its workers are up and ends when the last batch counts: reading, all
verification, Parquet. The same records are written as files of 10,000, 100,000 and 1,000,000.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

import numpy as np  # noqa: E402

from appliance.base.checksum import crc32c  # noqa: E402
from appliance.formats import manifest as shipped  # noqa: E402
from appliance.formats import snapshot  # noqa: E402
from appliance.formats.author import author_id_of  # noqa: E402
from appliance.formats.geometry import RECORD_SIZE  # noqa: E402
from appliance.formats.manifest import CHUNK_RECORDS, PeriodManifest, ShippedFile  # noqa: E402
from appliance.formats.record import CHECKSUM, LOG_SEQ, MSG_ID, PREV_HASH, RECORD  # noqa: E402
from appliance.formats.room_name import room_id_of  # noqa: E402
from appliance.formats.webhdfs_call import Login  # noqa: E402
from appliance.reports.archive import Archive  # noqa: E402
from appliance.reports.file_store import FileStore, file_store_of  # noqa: E402
from appliance.reports.ingest import Ingest  # noqa: E402
from appliance.reports.ledger import Ledger  # noqa: E402
from appliance.reports.session import session  # noqa: E402
from tests.reports.maker import HOUR_US, NAMES, START_US, Shard, Site  # noqa: E402
from tools import hdfs as hdfs_tool  # noqa: E402

ROOMS, BODY_SIZE = 16, 256
SEED = 20260701
RUNS = 3  # the best one counts: others share the machine
HDFS_RECORDS = 200_000
_CRC, _TAIL = struct.Struct("<I"), struct.Struct("<QQ")


class Log:
    """Chained records by the chunk, made as columns."""

    def __init__(self) -> None:
        self.prng = np.random.default_rng(SEED)
        self.rooms = [room_id_of(f"bench-{i}") for i in range(ROOMS)]
        self.heads = {room: (bytes(32), 0) for room in self.rooms}
        self.log_seq = 0

    def chunk(self, count: int) -> tuple[bytearray, bytes]:
        """(records, their hashes)."""
        rows = np.zeros(count, RECORD)
        numbers = self.log_seq + 1 + np.arange(count, dtype=np.uint64)
        rows["log_seq"], rows["timestamp"] = numbers, START_US + numbers * np.uint64(1000)
        picks = self.prng.integers(0, ROOMS, count)
        rows["room_id"] = np.array(self.rooms, "V16")[picks]
        authors = np.array([author_id_of(name) for name in NAMES], np.uint64)
        rows["author_id"] = authors[self.prng.integers(0, len(NAMES), count)]
        rows["msg_id"] = np.frombuffer(self.prng.bytes(16 * count), "V16")
        rows["client_id"] = np.frombuffer(b"device of bench." * count, "V16")
        rows["client_seq"], rows["body_len"] = numbers, BODY_SIZE
        letters = self.prng.integers(97, 123, (count, BODY_SIZE), dtype=np.uint8)
        letters[:, ::6] = 32
        rows.view(np.uint8).reshape(count, -1)[:, 76 : 76 + BODY_SIZE] = letters
        out = bytearray(rows.tobytes())
        view = memoryview(out)
        hashes = []
        for i in range(count):
            at = i * RECORD_SIZE
            room = self.rooms[picks[i]]
            head, seq = self.heads[room]
            out[at + PREV_HASH : at + PREV_HASH + 32] = head
            _TAIL.pack_into(out, at + LOG_SEQ - 8, seq + 1, self.log_seq + 1 + i)
            _CRC.pack_into(out, at + CHECKSUM, crc32c(view[at + MSG_ID : at + CHECKSUM]))
            head = sha256(view[at : at + RECORD_SIZE]).digest()
            self.heads[room] = (head, seq + 1)
            hashes.append(head)
        self.log_seq += count
        return out, b"".join(hashes)


def write(root: Path, site: Site, total: int, file_records: int) -> None:
    """An archive of one shard and one period, in files of so many records."""
    shard, log = Shard(site, root, 0), Log()
    folder = shard.folder / shipped.period_folder(START_US)
    folder.mkdir(parents=True)
    files = []
    for first in range(1, total + 1, file_records):
        last = min(first + file_records - 1, total)
        head = snapshot.HEAD_SIZE
        raw = b"".join(
            part
            for part in snapshot.render(
                [], room_id=snapshot.SEGMENT, op=last, record_count=0, key=site.keys[0]
            )
        )[:head]
        raw = raw[:40] + (last - first + 1).to_bytes(8, "little")
        digest, chunks = sha256(raw), []
        with (folder / shipped.snapshot_name(first, last)).open("wb") as file:
            file.write(raw)
            for at in range(first, last + 1, CHUNK_RECORDS):
                data, hashes = log.chunk(min(CHUNK_RECORDS, last + 1 - at))
                digest.update(data)
                chunks.append(sha256(hashes).digest())
                file.write(data)
            file.write(site.keys[0].sign(b"tigerchat v1 snapshot", digest.digest()))
        files.append(ShippedFile(first, last, digest.digest(), tuple(chunks)))
    found = PeriodManifest(
        site.cluster, 0, 0, shipped.NO_MANIFEST, START_US, HOUR_US, 1, total, tuple(files)
    )
    (folder / shipped.manifest_name(START_US)).write_bytes(
        shipped.sign_manifest(found, site.keys[0])
    )
    shard.write_head(found)


def one(folder: Path, archive: FileStore, cores: int) -> dict[str, Any]:
    """Ingest an archive with so many cores; the best of a few runs."""
    site = Site(SEED)
    spark = session("measure", f"local[{cores}]")
    context = spark.sparkContext
    context.parallelize(range(4 * cores), 4 * cores).map(warm).collect()
    best = None
    for _ in range(RUNS):
        tables = folder / "tables"
        shutil.rmtree(tables, ignore_errors=True)
        ledger = Ledger(file_store_of(str(tables)), site.cluster)
        with ledger.writing() as state:
            done = Ingest(context, Archive(archive, site.trusted), ledger, print_nothing).run(state)
        if not done.clean:
            raise SystemExit(f"bench: a false alarm: {done.quarantined + done.waiting}")
        if best is None or done.seconds < best.seconds:
            best = done
    spark.stop()
    return {
        "records": best.records,
        "per_s": round(best.records / best.seconds),
        "peak_rss_mib": round(best.peak_rss / 2**20),
    }


def warm(number: int) -> int:
    """Imports what a task needs."""
    time.sleep(0.05)
    return number


def print_nothing(line: str) -> None:
    """Progress is not what is measured."""


def child(folder: Path, archive: str, cores: int, **extra: object) -> dict[str, Any]:
    """One measurement in a process of its own."""
    line = [sys.executable, __file__, str(folder), "--one", archive, "--cores", str(cores)]
    done = subprocess.run(
        line,
        text=True,
        capture_output=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(TOP),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
        },
    )
    if done.returncode != 0:
        raise SystemExit(f"bench: {line}: {done.stderr[-2000:]}")
    row = {"kind": "reports", "cores": cores, **extra, **json.loads(done.stdout.splitlines()[-1])}
    print(json.dumps(row), flush=True)
    return row


def measure(folder: Path, quick: bool) -> None:
    """Every measurement, a row each."""
    site = Site(SEED)
    total = 30_000 if quick else 1_000_000
    sizes = (10_000,) if quick else (10_000, 100_000, 1_000_000)
    for size in sizes:
        root = folder / f"files-of-{size}"
        write(root, site, total, size)
        cores = (2,) if size != 100_000 else (1, 2)
        for count in cores:
            child(folder, str(root), count, file_records=size, over="files")
        shutil.rmtree(root)
    if not quick:
        over_hdfs(folder, site)


def over_hdfs(folder: Path, site: Site) -> None:
    """The same from a real HDFS with one data node, on this machine too."""
    root = folder / "for-hdfs"
    write(root, site, HDFS_RECORDS, CHUNK_RECORDS)
    hdfs_tool.fetch()
    ports = hdfs_tool.free_ports(hdfs_tool.PORTS_NEEDED)
    with hdfs_tool.Hdfs(folder / "hdfs", ports) as hdfs:
        url = f"{hdfs.webhdfs_url}/bench"
        there = file_store_of(url, login=Login(hdfs_tool.USER))
        for path in sorted(root.rglob("*")):
            if path.is_file():
                there.put(path.relative_to(root).as_posix(), path)
        child(folder, url, 2, file_records=CHUNK_RECORDS, over="hdfs")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one")
    parser.add_argument("--cores", type=int, default=2)
    chosen = parser.parse_args(arguments)
    if chosen.one:
        place = file_store_of(chosen.one, login=Login(hdfs_tool.USER))
        print(json.dumps(one(chosen.folder, place, chosen.cores)))
        return 0
    measure(chosen.folder, chosen.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
