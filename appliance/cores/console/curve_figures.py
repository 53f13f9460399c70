"""What the curves are of: figures as processes tell them, and counts that rates are made of."""

from dataclasses import dataclass, field
from math import nan

from msgspec import UNSET

from appliance.cores.console.figures import LAG_OPS_MAX
from appliance.cores.console.model import Answers, told
from appliance.formats.curves import Curve, Figure
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.process import Latencies
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.status.shipper import ShipperStatus


@dataclass(slots=True)
class Figures:
    """Of one poll, shards first. A count stands beside the life that it is of: it begins anew with
    another one. NaN: not known."""

    values: dict[Curve, float] = field(default_factory=dict)
    counts: dict[Curve, tuple[int, int]] = field(default_factory=dict)


def figures_of(answers: Answers) -> Figures:
    found = Figures()
    _of_shards(found, answers)
    for source, edge in told(answers, EdgeStatus):
        at, life = (source.node, source.number), edge.process.pid
        found.values[Curve(Figure.CONNECTIONS, *at)] = edge.connections
        found.counts[Curve(Figure.RECEIVED, *at)] = life, edge.acked
        found.counts[Curve(Figure.SENT, *at)] = life, edge.live_events + edge.stored_events
    for source, replica in told(answers, ReplicaStatus):
        at = source.node, source.number
        found.values[Curve(Figure.FLUSH_MS, *at)] = _p99_ms(replica.volume.journal)
        if replica.volume.disk_size:
            found.values[Curve(Figure.FREE_BYTES, *at)] = replica.volume.disk_free
    for source, shipper in told(answers, ShipperStatus):
        for shard in shipper.shards:
            if shard.attached:
                at = source.node, shard.shard
                found.values[Curve(Figure.WAITING, *at)] = max(0, shard.log_seq - shard.cursor)
                found.values[Curve(Figure.DELAY_S, *at)] = shard.late_s
    return found


def _of_shards(found: Figures, answers: Answers) -> None:
    """Of those with a replica here, as far as the foremost of these knows: what one commits that
    catches up was committed long before. Edges tell how long the log takes of all shards together.
    """
    records: dict[int, int] = {}
    latencies = [_p99_ms(edge.ack) for _, edge in told(answers, EdgeStatus)]
    commit_ms = max((each for each in latencies if each == each), default=nan)
    for source, replica in told(answers, ReplicaStatus):
        found.values[Curve(Figure.COMMIT_MS, 0, source.number)] = commit_ms
        if replica.commit_max - replica.commit_min <= LAG_OPS_MAX:
            records[source.number] = max(replica.log_seq, records.get(source.number, 0))
    for shard, count in records.items():
        found.counts[Curve(Figure.RECORDS, 0, shard)] = 0, count


def _p99_ms(latencies: Latencies) -> float:
    """NaN when there was none of late."""
    recent = latencies.count if latencies.recent is UNSET else latencies.recent
    return latencies.p99_us / 1000 if recent else nan
