"""The files of a shard at its target: put, read back, compared, swept. Everything blocks, so it is
called in a thread.
"""

import logging

from appliance.base.errors import FormatError
from appliance.base.signature import SigningKey
from appliance.cores.shipping.render import Reading, render
from appliance.cores.shipping.shipper import CheckTarget, Put, Shipper
from appliance.cores.shipping.source import Source
from appliance.drivers.hdfs.deliver import deliver
from appliance.drivers.hdfs.target import Target
from appliance.formats import manifest as mf
from appliance.formats.event import Shipped
from appliance.formats.manifest import PeriodManifest, ShippedFile
from appliance.formats.webhdfs import Entry


class ShardTarget:
    """One shard's part of the target."""

    def __init__(
        self,
        target: Target,
        core: Shipper,
        *,
        key: SigningKey,
        trusted: frozenset[bytes],
        log: logging.Logger,
    ) -> None:
        """`key` signs; `trusted` are the public keys whose signatures count."""
        self._target, self._core, self._key = target, core, key
        self.trusted = trusted  # another set once other nodes are described
        self._log = log
        self._folder = mf.shard_folder(core.role.cluster, core.role.shard)
        self.files_put = self.bytes_put = 0

    def describe(self) -> str:
        """Where it is, for people."""
        return self._target.describe()

    def put(self, step: Put, source: Source) -> tuple[ShippedFile, bool]:
        """Have the file there; what it is, and whether it had to be put."""
        rendered = render(step.part, source.records(*step.part), self._key)
        file = rendered.file
        path = f"{self._folder}/{mf.period_folder(step.period_start_us)}/{file.name}"
        there = self._target.status(path)
        if there is not None and there.size == file.size:
            reading = Reading()
            for block in self._target.read(path):
                reading.add(block)
            if reading.fits(file, self.trusted):
                return file, False
        self._deliver(path, rendered.data, overwrite=there is not None)
        self.files_put += 1
        self.bytes_put += len(rendered.data)
        return file, True

    def put_manifest(self, manifest: PeriodManifest) -> bool:
        """Have the manifest there, and no other file of its range; whether it had to be put."""
        folder = f"{self._folder}/{mf.period_folder(manifest.period_start_us)}"
        path = f"{folder}/{mf.manifest_name(manifest.period_start_us)}"
        raw = self._read_small(path)
        wrong = True
        if raw is not None:
            try:
                wrong = mf.parse_manifest(raw, self.trusted).value != manifest
            except FormatError:
                wrong = True
        if wrong:
            self._deliver(path, mf.sign_manifest(manifest, self._key), overwrite=raw is not None)
        listed = {file.name for file in manifest.files}
        for entry in self._target.list(folder):
            span = mf.parse_snapshot_name(entry.name)
            if span is not None and entry.name not in listed:
                if manifest.first_log_seq <= span[0] <= manifest.last_log_seq:
                    self._target.delete(f"{folder}/{entry.name}")
        return wrong

    def put_head(self, head: mf.ShippedHead) -> None:
        path = f"{self._folder}/{mf.HEAD_FILE}"
        raw = self._read_small(path)
        if raw is not None:
            try:
                if mf.parse_head(raw, self.trusted).value.number >= head.number:
                    return
            except FormatError as error:
                self._log.warning("%s is replaced: %s", path, error)
        self._deliver(path, mf.sign_head(head, self._key), overwrite=raw is not None)

    def _deliver(self, path: str, data: bytes, *, overwrite: bool) -> None:
        name = path.rpartition("/")[2]
        incoming = self._incoming(mf.incoming_name(self._core.generation, name))
        deliver(
            self._target,
            incoming,
            path,
            data,
            overwrite=overwrite,
            still_mine=lambda: self._core.ships,
        )

    def _incoming(self, name: str = "") -> str:
        return f"{self._folder}/{mf.INCOMING_FOLDER}" + (f"/{name}" if name else "")

    def _read_small(self, path: str) -> bytes | None:
        """A manifest or head; None where there is none."""
        entry = self._target.status(path)
        if entry is None or entry.size > mf.SIGNED_SIZE_MAX:
            return None if entry is None else b""
        return b"".join(self._target.read(path))

    def sweep(self, generation: int) -> None:
        for entry in self._target.list(self._incoming()):
            parsed = mf.parse_incoming_name(entry.name)
            if parsed is not None and parsed[0] <= generation:
                self._target.delete(self._incoming(entry.name))

    def check(self, step: CheckTarget) -> tuple[Entry, ...]:
        folder = f"{self._folder}/{mf.period_folder(step.period_start_us)}"
        return (*self._target.list(self._incoming()), *self._target.list(folder))

    def head_number(self) -> int:
        """Of the manifest that the head at the target names; -1 where there is none."""
        raw = self._read_small(f"{self._folder}/{mf.HEAD_FILE}")
        if raw is None:
            return -1
        try:
            return mf.parse_head(raw, self.trusted).value.number
        except FormatError:
            return -1

    def period_starts(self) -> set[int]:
        """Of all periods whose manifest lies there, by the names: a listing for each hour."""
        starts = set()
        for date in self._folders(self._folder):
            for hour in self._folders(date):
                starts |= {mf.parse_manifest_name(e.name) for e in self._target.list(hour)}
        return {start for start in starts if start is not None}

    def _folders(self, path: str) -> list[str]:
        entries = self._target.list(path)
        return [f"{path}/{e.name}" for e in entries if e.is_folder and "=" in e.name]

    def has_manifest(self, shipped: Shipped) -> bool:
        raw = self._read_small(
            f"{self._folder}/{mf.period_folder(shipped.period_start_us)}/"
            f"{mf.manifest_name(shipped.period_start_us)}"
        )
        if raw is None:
            return False
        try:
            return mf.parse_manifest(raw, self.trusted).hash == shipped.manifest_hash
        except FormatError:
            return False
