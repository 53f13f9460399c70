"""What tables hold, in a form that can be compared: rows counted and hashed in any order."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq

from appliance.reports.ledger import State


def fingerprint(folder: Path, state: State) -> tuple[int, int]:
    """(rows, sum of the hashes of all rows over all columns) of the files that count."""
    count = total = 0
    for file in state.records:
        table = pq.ParquetFile(folder / file.path).read()
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            digest = sha256(repr((file.date, file.shard, row)).encode()).digest()
            total = (total + int.from_bytes(digest[:16], "little")) % (1 << 128)
            count += 1
    return count, total


def log_seqs(folder: Path, state: State) -> dict[int, list[int]]:
    """Shard -> log_seq of all rows, sorted."""
    found: dict[int, list[int]] = {}
    for file in state.records:
        column = pq.ParquetFile(folder / file.path).read(["log_seq"]).column(0)
        found.setdefault(file.shard, []).extend(column.to_pylist())
    return {shard: sorted(values) for shard, values in found.items()}
