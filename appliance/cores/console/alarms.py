"""What is wrong, by name. Each rule looks at one `SiteSnapshot` and yields the alarms it finds.

no_quorum       bad    too few replicas of a shard serve: nothing is acknowledged
replica_down    bad    a replica on this machine does not answer
stale           bad    a replica hears no quorum: what its node serves may be old
replica_halted  bad    a replica stopped itself because going on could lose data
edge_down       bad    an edge on this machine does not answer
edge_untold     bad    an edge whose node holds no replica of a shard hears its log from no node
role_stuck      bad    the beat of a process on this machine stands
suspicious      bad    a node sends messages that no honest peer sends
member_refused  bad    a member has forgotten what it promised, holds another state, or speaks
                       another version
not_normal      warn   a replica changes views or recovers
peer_down       warn   a replica hears nothing from another one
sync            warn   a replica adopts the state of a peer
lag             warn   a replica is behind the shard
faulty          warn   broken sectors are being repaired
disk_slow       warn   durable writes take long
disk            bad    the volume reports a fault of its own
disk_health     warn   a disk says that it wears out or lost data; bad: that it fails
space           warn   the volume's extents, or bytes of its disk, come to an end; bad at 95 %,
                       and when only the reserve is left
ship_late       warn   a period is over and not shipped yet
ship_hole       warn   the target lacks what was shipped elsewhere, and the log has it no more
farm_no_leader  warn   no majority of the farm: nothing moves, chat goes on
farm_two_leaders  bad  a member heard two leaders of one term: two farms share it, or an old log
directory_expired  warn  the newest directory is past its time and serves on
objects_refuse  bad    the objects of a node take no edits: their store is full
site_away       warn   a site that shares rooms with this one cannot be reached: messages wait
sharing_broken  warn   a node cannot carry the shared rooms of a shard as it should
log_ahead       warn   the log's newest time is ahead of the clocks; bad when by over a minute
quorum_thin     warn   one replica more may not fail: then nothing is acknowledged
role_down       warn   another process of a node here does not answer
flush_slow      warn   durable writes take twice as long as is usual for that replica
move_stands     warn   the replica of a shard is to move, and does not for ten minutes
certificate     warn   a certificate ends within 30 days; bad: within three, or has
clock           warn   the clock of this machine jumped, or a node's is not that of the others
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from appliance.base.limits import LOG_AHEAD_US_MAX
from appliance.base.printable import counted
from appliance.cores.console.about import About
from appliance.cores.console.alarm import Alarm, node_name
from appliance.cores.console.cells import duration
from appliance.cores.console.disks import troubles
from appliance.cores.console.figures import LAG_OPS_MAX, Replica, furthest, unheard
from appliance.cores.console.later_alarms import LATER_RULES
from appliance.cores.console.model import SILENT_MS_MAX, Member, ShardLine, SiteSnapshot
from appliance.formats.status.replica import NORMAL

P99_WRITES_MIN = 200  # of fewer, a p99 says nothing
WRITE_P99_US_MAX = 100_000  # durable journal writes slower than this are felt by everybody
# Per cent of a volume's extents, or of its disk, that are taken: an alarm, which says how bad.
SPACE_PERCENT = (80, 90, 95)
# A wall clock that is off by so much is told: of a second, the way between nodes may hide a part.
CLOCK_ERROR_MS_MIN = 900
LOG_AHEAD_MS_LONG = 60_000  # what is less passes by itself, before anybody could do a thing
GIB = 1 << 30  # bytes


def _subject(snapshot: SiteSnapshot, member: Member) -> str:
    return f"shard {member.shard} on {node_name(snapshot, member.node)}"


def _about(member: Member) -> About:
    return About(member.node, f"replica-{member.shard}")


def _no_quorum(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    for shard in snapshot.shards:
        if shard.normal_count < shard.quorum:
            yield Alarm(
                "no_quorum",
                "bad",
                f"shard {shard.number}",
                f"{shard.normal_count} of {shard.quorum} needed replicas serve",
            )


def _unanswered(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    for shard in snapshot.shards:
        for member in shard.members:
            if member.asked and not member.removed and member.own is None:
                if not (member.process is not None and member.process.halt):
                    why, about = unheard(member.process), _about(member)
                    yield Alarm("replica_down", "bad", _subject(snapshot, member), why, about=about)
    for edge in snapshot.edges:
        if edge.own is None and not edge.removed:
            subject = f"edge {edge.number} on {node_name(snapshot, edge.node)}"
            about = About(edge.node, f"edge-{edge.number}")
            yield Alarm("edge_down", "bad", subject, unheard(edge.process), about=about)


def _silent(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """Members on other machines; those on this one are asked themselves."""
    for shard in snapshot.shards:
        if not any(member.own for member in shard.members):
            continue
        for member in shard.members:
            if not member.asked and not member.normal and not member.removed:
                heard = member.seen.silent_ms // 1000 if member.seen is not None else None
                words = "was never heard of" if heard is None else f"silent for {heard} s"
                yield Alarm("peer_down", "warn", _subject(snapshot, member), words)


def _farm(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    farm = snapshot.farm
    if snapshot.has_farm and (farm is None or farm.leader <= 0):
        words = "no member answers" if farm is None else "nobody leads: directories are not signed"
        yield Alarm("farm_no_leader", "warn", "farm", words)
    if farm is not None and farm.second_leaders:
        words = f"two members led in one term, heard {counted(farm.second_leaders, 'time')} here"
        yield Alarm("farm_two_leaders", "bad", "farm", words)
    if farm is not None and farm.expired_ms:
        words = f"directory {farm.directory} expired {farm.expired_ms // 1000} s ago; it serves on"
        yield Alarm("directory_expired", "warn", "farm", words)


def _objects(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    for line in snapshot.objects:
        if line.alarm:
            name = snapshot.site.nodes[line.node].name
            yield Alarm("objects_refuse", "bad", name, line.alarm)


def _federation(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    for line in snapshot.federation:
        name = snapshot.site.nodes[line.node].name
        for site in line.sites:
            if site.cut_off:
                words = f"{name} has no link to it: {site.unacknowledged:,} messages wait"
                yield Alarm("site_away", "warn", f"site {site.site}", words)
        for error in line.errors:
            yield Alarm("sharing_broken", "warn", name, error)


def _clock(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """Wrong clocks by name, as primaries see them; where none is seen, as anybody does."""
    if snapshot.clock:
        yield Alarm("clock", "warn", "this machine", snapshot.clock)
    told: set[int] = set()
    members = [
        member for shard in snapshot.shards for member in shard.members if not member.removed
    ]
    for member in sorted(members, key=lambda m: m.own is None or m.own.role != "primary"):
        own = member.own
        if own is None or own.status != NORMAL:
            continue
        for replica, error_ms in own.clocks.errors:
            others = [m for m in members if (m.shard, m.index) == (member.shard, replica)]
            if abs(error_ms) < CLOCK_ERROR_MS_MIN or not others or others[0].node in told:
                continue
            told.add(others[0].node)
            words = f"{abs(error_ms) / 1000:.1f} s {'ahead of' if error_ms > 0 else 'behind'}"
            if own.clocks.agree:
                words = f"its clock is {words} the time that the others agree on"
            else:
                words = f"no quorum of clocks agrees; its one is {words} the one that is used"
            yield Alarm("clock", "warn", node_name(snapshot, others[0].node), words)


def _log_ahead(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """Once for each shard: the log is one, and clocks that agree are behind it together."""
    for shard in snapshot.shards:
        for member in shard.members:
            ahead_ms = member.own.clocks.log_ahead_ms if member.own is not None else 0
            if ahead_ms * 1000 <= LOG_AHEAD_US_MAX or member.removed:
                continue
            words = f"log time is {duration(ahead_ms)} ahead of this clock"
            severity = "warn"
            if ahead_ms > LOG_AHEAD_MS_LONG:
                severity = "bad"
                words += ": set it, or `tigerchat clock correct`"
            about = About(shard=shard.number)
            yield Alarm("log_ahead", severity, _subject(snapshot, member), words, about=about)
            break


# --- rules about one replica that answered: its figures -> words, or nothing


def _halted(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """A halt keeps its reason while the process is tried again and again: its supervisor knows."""
    for shard in snapshot.shards:
        for member in shard.members:
            if member.removed:
                continue
            process, since, reason = member.process, 0, ""
            if process is not None and process.halt:
                since, reason = process.halt_since_ms, process.halt
            elif member.own is not None:
                reason = member.own.halted
            if reason:
                subject, about = _subject(snapshot, member), About(member.node)
                yield Alarm("replica_halted", "bad", subject, reason, since, about)


def _stuck(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """As the supervisor of its node hears it, which starts it again."""
    for node, name, process in snapshot.processes:
        if process.silent_ms:
            words = f"its beat stands for {process.silent_ms / 1000:.0f} s"
            yield Alarm("role_stuck", "bad", f"{name} on {node_name(snapshot, node)}", words)


def _suspicious(_shard: ShardLine, _member: Member, own: Replica) -> str:
    return own.suspicious


def _refused(_shard: ShardLine, _member: Member, own: Replica) -> str:
    return own.refused


def _not_normal(_shard: ShardLine, _member: Member, own: Replica) -> str:
    return own.status.replace("_", " ") if own.status != NORMAL and not own.halted else ""


def _deaf(shard: ShardLine, _member: Member, own: Replica) -> str:
    """It does not hear a member of whom we know that it serves: a broken link."""
    deaf = [
        peer.replica
        for peer in own.peers
        if peer.silent_ms > SILENT_MS_MAX
        and shard.members[peer.replica].normal
        and not shard.members[peer.replica].removed
    ]
    return "hears nothing from replica " + ", ".join(map(str, deaf)) if deaf else ""


def _stale(_shard: ShardLine, _member: Member, own: Replica) -> str:
    seconds = own.stale_ms // 1000
    return f"hears no quorum for {seconds} s: what is read here may be old" if own.stale_ms else ""


def _sync(_shard: ShardLine, _member: Member, own: Replica) -> str:
    return "adopts the state of a peer" if own.syncing else ""


def _lag(shard: ShardLine, member: Member, own: Replica) -> str:
    lag = shard.lag(member)
    assert lag is not None
    return f"{lag} ops behind" if lag > LAG_OPS_MAX and not own.syncing else ""


def _faulty(_shard: ShardLine, _member: Member, own: Replica) -> str:
    return f"{own.faulty} broken journal slots being repaired" if own.faulty else ""


def _disk_slow(_shard: ShardLine, _member: Member, own: Replica) -> str:
    slow = own.writes.count >= P99_WRITES_MIN and own.writes.p99_us > WRITE_P99_US_MAX
    return f"durable write p99 {own.writes.p99_us // 1000} ms" if slow else ""


def _disk(_shard: ShardLine, _member: Member, own: Replica) -> str:
    return own.disk.alarm


def _disk_health(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """Once for each disk of a machine, however many volumes lie on it."""
    told: set[tuple[int, str]] = set()
    for member in (member for shard in snapshot.shards for member in shard.members):
        for name, health in member.own.disk.health if member.own is not None else ():
            found = sorted(troubles(health))
            if found and (member.node, name) not in told and not member.removed:
                told.add((member.node, name))
                words = "; ".join(text for _, text in found)
                subject = f"{name} on {node_name(snapshot, member.node)}"
                yield Alarm("disk_health", found[0][0], subject, words)


def _space(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """The volume's extents and its disk, whichever ends first is told first."""
    for shard in snapshot.shards:
        for member in shard.members:
            own = member.own
            if own is None or member.removed:
                continue
            for what, used, size, left in (
                (
                    "of the volume's extents are taken",
                    own.space.extents,
                    own.space.extents_max,
                    (own.space.extents_max - own.space.extents) * own.space.extent_size,
                ),
                (
                    "of its disk is taken",
                    own.space.disk_size - own.space.disk_free,
                    own.space.disk_size,
                    own.space.disk_free,
                ),
            ):
                reached = [per_cent for per_cent in SPACE_PERCENT if used * 100 >= size * per_cent]
                if size and reached:
                    severity = "bad" if reached[-1] == SPACE_PERCENT[-1] else "warn"
                    words = f"{used * 100 // size} % {what}"
                    words += f", {left / GIB:.1f} GiB left" if left else ", nothing left"
                    yield Alarm("space", severity, _subject(snapshot, member), words + _lasts(own))
            if own.space.sparing or own.space.short:
                words = f"its disk has only {own.space.disk_free / GIB:.2f} GiB left, its reserve: "
                if not own.space.short:
                    words = "the disks of too many others have only their reserve left: "
                words += "the shard takes no messages" if own.space.sparing else "the others go on"
                yield Alarm("space", "bad", _subject(snapshot, member), words)


def _lasts(own: Replica) -> str:
    if own.space.days_left is None:
        return ""
    return f", for about {own.space.days_left:,.1f} days at this pace"


REPLICA_RULES: tuple[tuple[str, str, Callable[[ShardLine, Member, Replica], str]], ...] = (
    ("stale", "bad", _stale),
    ("suspicious", "bad", _suspicious),
    ("member_refused", "bad", _refused),
    ("not_normal", "warn", _not_normal),
    ("peer_down", "warn", _deaf),
    ("sync", "warn", _sync),
    ("lag", "warn", _lag),
    ("faulty", "warn", _faulty),
    ("disk", "bad", _disk),
    ("disk_slow", "warn", _disk_slow),
)


def _replicas(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    for shard in snapshot.shards:
        for member in shard.members:
            if member.own is None or member.removed:
                continue
            for name, severity, rule in REPLICA_RULES:
                words = rule(shard, member, member.own)
                if words:
                    subject = _subject(snapshot, member)
                    yield Alarm(name, severity, subject, words, about=_about(member))


def _ship_late(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    """As whoever is furthest sees it: one that is behind knows of less, and one that adopts a state
    or was removed knows nothing. Shippers read the log, so they also know when nothing was ever
    shipped; replicas tell where no shipper answers."""
    for shard in snapshot.shards:
        well = [m for m in shard.members if not m.removed and m.own is not None]
        own = [m.own for m in well if m.own is not None]
        own = [r for r in own if r.ship_late_s_max > 0 and r.status == NORMAL and not r.syncing]
        told = [(replica.ship_late_s, replica.ship_late_s_max) for replica in own]
        nodes = {m.node for m in well if m.own is not None and not m.own.syncing}
        shipper = furthest(s for s in snapshot.shippers if s.node in nodes).get(shard.number)
        if shipper is not None:
            told = [(shipper.late_s, shipper.late_s_max)]
        if told:
            late_s, late_s_max = min(told)
            if late_s > late_s_max:
                words = f"{late_s:.0f} s late; `tigerchat ship status` says why"
                yield Alarm("ship_late", "warn", f"shard {shard.number}", words)


def _ship_hole(snapshot: SiteSnapshot) -> Iterator[Alarm]:
    for shipper in snapshot.shippers:
        if shipper.hole:
            words = f"{shipper.hole}; copy them from the former target"
            yield Alarm("ship_hole", "warn", f"shard {shipper.shard}", words)


RULES = (
    _no_quorum,
    _unanswered,
    _halted,
    _stuck,
    _silent,
    _replicas,
    _disk_health,
    _space,
    _ship_late,
    _ship_hole,
    _farm,
    _objects,
    _federation,
    _clock,
    _log_ahead,
    *LATER_RULES,
)


def alarms(snapshot: SiteSnapshot, before: tuple[Alarm, ...]) -> tuple[Alarm, ...]:
    """All alarms, the worst first; those of `before` that still hold keep their time."""
    since = {(alarm.name, alarm.subject): alarm.since_ms for alarm in before}
    found = [alarm for rule in RULES for alarm in rule(snapshot)]
    found.sort(key=lambda alarm: (alarm.severity, alarm.name, alarm.subject))
    return tuple(
        replace(
            alarm,
            since_ms=alarm.since_ms or since.get((alarm.name, alarm.subject), snapshot.now_ms),
        )
        for alarm in found
    )
