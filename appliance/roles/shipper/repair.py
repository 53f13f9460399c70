"""Putting again what a target lacks or holds wrong: a range at the operator's wish, or all that a
new target lacks of what the log calls shipped.
"""

from dataclasses import dataclass, field

from appliance.base.errors import TargetDamaged
from appliance.base.printable import counted
from appliance.cores.shipping.plan import parts
from appliance.cores.shipping.shipper import Put, Shipper
from appliance.cores.shipping.source import NotHere, Source
from appliance.formats import manifest as mf
from appliance.formats.event import Shipped
from appliance.formats.manifest import PeriodManifest
from appliance.formats.status.shipper import Mending
from appliance.roles.shipper.shard_target import ShardTarget


@dataclass
class Repair:
    """A range that is put again, and how far that is."""

    first_log_seq: int
    last_log_seq: int
    done: int = 0  # files and manifests looked at
    total: int = 0
    mended: list[str] = field(default_factory=list)  # names of what was put
    error: str = ""
    ended: bool = False

    def status(self) -> Mending:
        return Mending(
            done=self.done,
            total=self.total,
            mended=list(self.mended),
            error=self.error,
            ended=self.ended,
        )


class Repairs:
    """Of one shard. Everything blocks, so it is called in a thread."""

    def __init__(self, core: Shipper, target: ShardTarget) -> None:
        self._core, self._target = core, target

    def compare(self, source: Source) -> str:
        """Put what the log calls shipped and the target lacks; in words what cannot be put.

        A head that names the newest period, or the one before, was put after all that the log
        then could give. What the log has dropped only a look at what lies there can tell: it is
        taken each time, so that a hole is known again to each shipper that begins.
        """
        told = source.manifests()
        count = self._core.state.manifest_count
        untold = told[0].number if told else count
        headed = self._target.head_number()
        if headed >= count - 1 and source.keeps(1):
            return ""
        starts = self._target.period_starts()
        if headed >= count - 1:
            lacking = [s for s in told if s.period_start_us not in starts]
        else:
            lacking = [s for s in told if s.number > headed and not self._target.has_manifest(s)]
        before_us = told[0].period_start_us if told else None
        there = [start for start in starts if before_us is None or start < before_us]
        unmade, why = self._put_lacking(source, lacking, told)
        gone = max(0, untold - len(there)) + unmade
        where = f"{self._target.describe()} lacks"
        if why:
            return f"{where} {counted(gone, 'period')} shipped elsewhere; {why}"
        return f"{where} {counted(gone, 'period')}, of which the log has no more" if gone else ""

    def _put_lacking(
        self, source: Source, lacking: list[Shipped], told: list[Shipped]
    ) -> tuple[int, str]:
        """How many of `lacking` cannot be put, and why, unless the log has dropped them."""
        hashes = {shipped.number: shipped.manifest_hash for shipped in told}
        unmade, why = 0, ""
        for shipped in lacking:
            # A manifest holds the hash of the one before: of the oldest that is told it is unknown.
            if shipped.number and shipped.number - 1 not in hashes:
                unmade += 1
                continue
            try:
                self._put_period(Repair(1, self._core.cursor), source, shipped, hashes)
            except (TargetDamaged, NotHere) as error:
                unmade += 1
                if source.keeps(shipped.first_log_seq):
                    why = why or str(error)
        return unmade, why

    def put_range(self, repair: Repair, source: Source) -> None:
        """Look at every file of the range, and put what is not as the log says. Raises
        TargetDamaged where that cannot be."""
        if not self._core.ships:
            raise TargetDamaged(
                f"node {self._core.state.node} ships this shard: ask there, or make this node "
                "the shipper with `tigerchat ship now`"
            )
        wanted = [
            shipped
            for shipped in source.manifests()
            if shipped.first_log_seq <= repair.last_log_seq
            and shipped.last_log_seq >= repair.first_log_seq
            or shipped.last_log_seq < shipped.first_log_seq
            and repair.first_log_seq <= 1
        ]
        self._put_all(repair, source, wanted)

    def _put_all(self, repair: Repair, source: Source, wanted: list[Shipped]) -> None:
        told = source.manifests()
        records = self._core.role.segment_records
        repair.total = sum(1 + len(parts(s.first_log_seq, s.last_log_seq, records)) for s in wanted)
        hashes = {shipped.number: shipped.manifest_hash for shipped in told}
        for shipped in wanted:
            self._put_period(repair, source, shipped, hashes)

    def _put_period(
        self, repair: Repair, source: Source, shipped: Shipped, hashes: dict[int, bytes]
    ) -> None:
        previous = hashes.get(shipped.number - 1, mf.NO_MANIFEST)
        files = []
        seams = source.seams(self._core.log_time.ahead_us)
        for part in parts(
            shipped.first_log_seq, shipped.last_log_seq, self._core.role.segment_records, seams
        ):
            file, put = self._target.put(Put(part, shipped.period_start_us), source)
            files.append(file)
            repair.done += 1
            if put:
                repair.mended.append(file.name)
        manifest = PeriodManifest(
            cluster=self._core.role.cluster,
            shard=self._core.role.shard,
            number=shipped.number,
            previous=previous,
            period_start_us=shipped.period_start_us,
            period_us=shipped.period_us,
            first_log_seq=shipped.first_log_seq,
            last_log_seq=shipped.last_log_seq,
            files=tuple(files),
            ahead_us=source.ahead_at(shipped.last_log_seq, self._core.log_time.ahead_us),
        )
        if shipped.number > 0 and previous == mf.NO_MANIFEST:
            raise TargetDamaged(
                f"manifest {shipped.number - 1} is told in records that are no longer kept"
            )
        if mf.manifest_hash(manifest) != shipped.manifest_hash:
            raise TargetDamaged(f"manifest {shipped.number} cannot be made as the log tells it")
        if self._target.put_manifest(manifest):
            repair.mended.append(mf.manifest_name(manifest.period_start_us))
        if shipped.number == self._core.state.manifest_count - 1:
            self._target.put_head(
                mf.ShippedHead(
                    cluster=manifest.cluster,
                    shard=manifest.shard,
                    number=manifest.number,
                    manifest=shipped.manifest_hash,
                    period_start_us=manifest.period_start_us,
                    period_us=manifest.period_us,
                    last_log_seq=manifest.last_log_seq,
                )
            )
        repair.done += 1
