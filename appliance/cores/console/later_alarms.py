"""Rules about what is not wrong yet, is seen only against what was before, or is told by one
process of others."""

from collections.abc import Iterator

from appliance.cores.console.about import About
from appliance.cores.console.alarm import Alarm, node_name
from appliance.cores.console.cells import duration, latency
from appliance.cores.console.figures import is_stopped
from appliance.cores.console.model import SiteSnapshot
from appliance.formats.site import valid_until_ms
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.replica import ReplicaStatus

DAY_MS = 86_400_000
CERTIFICATE_DAYS, CERTIFICATE_DAYS_BAD = 30, 3  # before its end
MOVE_STOOD_MS_MAX = 600_000  # for one step; a large shard tells each tenth that is there
SLOWER = 2  # times its own median of a day: then a durable write is slow
SLOWER_US_MIN = 1000  # and by so much: a disk that takes 30 us may take 90


def _quorum_thin(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """Of shards that have a replica to spare when all serve."""
    for shard in snapshot.shards:
        voters = sum(not member.standby and not member.removed for member in shard.members)
        if shard.normal_count == shard.quorum < voters:
            words = f"{shard.quorum} of {voters} replicas serve: no other one may fail"
            about = About(shard=shard.number)
            yield Alarm("quorum_thin", "warn", f"shard {shard.number}", words, about=about)


def _role_down(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """Replicas and edges have alarms of their own; who is just being started has none."""
    for node, name, kept in snapshot.processes:
        own = (f"{kind}-" for kind in (ReplicaStatus.kind, EdgeStatus.kind))
        if kept.answers is not False or name.startswith(tuple(own)) or kept.halt:
            continue
        words = ""
        if is_stopped(kept):
            words = "stopped by an operator"
        elif kept.ready:
            words = "gives no data: it does not answer"
        elif kept.ended:
            words = "does not run"
        if words:
            subject = f"{name} on {node_name(snapshot, node)}"
            yield Alarm("role_down", "warn", subject, words, about=About(node, name))


def _untold(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    for edge in snapshot.edges:
        if edge.own is not None and edge.own.untold and not edge.removed:
            subject = f"edge {edge.number} on {node_name(snapshot, edge.node)}"
            numbers = ", ".join(map(str, edge.own.untold))
            words = f"no node tells it the log of shard {numbers}"
            about = About(edge.node, f"edge-{edge.number}")
            yield Alarm("edge_untold", "bad", subject, words, about=about)


def _flush_slow(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    for shard in snapshot.shards:
        for member in shard.members:
            usual_us = snapshot.usual_us.get((shard.number, member.node))
            if member.own is None or member.removed or usual_us is None:
                continue
            now_us = member.own.writes.p50_us
            if now_us > max(SLOWER * usual_us, usual_us + SLOWER_US_MIN):
                words = f"durable writes take {latency(now_us)}, over a day {latency(usual_us)}"
                subject = f"shard {shard.number} on {node_name(snapshot, member.node)}"
                about = About(member.node, f"replica-{shard.number}")
                yield Alarm("flush_slow", "warn", subject, words, about=about)


def _certificate(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    members = {m.node for shard in snapshot.shards for m in shard.members if not m.removed}
    for node in snapshot.site.nodes:
        for what, pem in (
            ("of nodes", node.certificate_pem),
            ("that clients are shown", node.client_certificate_pem),
        ):
            if not pem or node.index not in members:
                continue
            left_ms = valid_until_ms(pem) - snapshot.wall_ms
            if left_ms < CERTIFICATE_DAYS * DAY_MS:
                severity = "bad" if left_ms < CERTIFICATE_DAYS_BAD * DAY_MS else "warn"
                when = f"ends in {left_ms // DAY_MS} days" if left_ms > 0 else "has ended"
                yield Alarm("certificate", severity, node.name, f"its certificate {what} {when}")


def _move_stands(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    farm = snapshot.farm
    if farm is None:
        return
    if farm.moves and farm.moves_stood_ms > MOVE_STOOD_MS_MAX:
        why = f"; {farm.moves_trouble}" if farm.moves_trouble else ""
        words = f"{farm.moves[0]}, for {duration(farm.moves_stood_ms)}{why}"
        yield Alarm("move_stands", "warn", "farm", words)
    for node, words in farm.moves_here:
        yield Alarm("move_stands", "warn", node_name(snapshot, node), words)


LATER_RULES = (_quorum_thin, _role_down, _untold, _flush_slow, _certificate, _move_stands)
