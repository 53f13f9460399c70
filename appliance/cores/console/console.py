"""The console's state: the look of now, its alarms, and the curves of the last minutes."""

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from appliance.cores.console.about import About
from appliance.cores.console.act import SITE
from appliance.cores.console.acts import in_words, offers, remedies
from appliance.cores.console.alarm import Alarm
from appliance.cores.console.alarm_life import AlarmLife, Raised
from appliance.cores.console.alarms import alarms
from appliance.cores.console.cells import Table, plain
from appliance.cores.console.model import (
    Answers,
    Clock,
    Rates,
    ShardLine,
    SiteSnapshot,
    learned,
    take_snapshot,
)
from appliance.cores.console.remedies import REMEDIES
from appliance.cores.console.screen import tables
from appliance.cores.console.usual import Usual, usual_told
from appliance.formats.site import Site
from appliance.formats.site_view import SiteView

HISTORY_MAX = 300  # points of a curve: five minutes at one look a second
HISTORY_MS_MAX = 300_000  # which it holds also where looks were rarer


class Console:
    """Feed it a poll; read `plain()` for the page, `tables()` for the terminal.

    Invariants: history grows at its end and holds at most HISTORY_MAX points, in order of time;
    an alarm's time is never younger than the look at which it was first found.
    """

    def __init__(self, view: SiteView) -> None:
        self.view = view  # as the last poll has it
        self._rates, self._clock = Rates(), Clock()
        self._snapshot: SiteSnapshot | None = None
        self._alarms: tuple[Alarm, ...] = ()
        self.life, self.usual = AlarmLife(), Usual()
        self._history: deque[dict[str, Any]] = deque(maxlen=HISTORY_MAX)

    def on_site(self, site: Site) -> None:
        """The site file describes this now; the next poll goes by it."""
        self.view = self.view.described(site)

    def on_poll(self, answers: Answers, *, now_ms: int, wall_ms: int) -> None:
        """`answers` holds every process that was asked: what it said, or None for silence.

        `now_ms` is of a clock that only goes forward, `wall_ms` milliseconds since the epoch.
        """
        assert self._snapshot is None or now_ms >= self._snapshot.now_ms
        self.view = learned(self.view, answers)
        found = take_snapshot(self.view, answers, self._rates, self._clock, now_ms, wall_ms)
        self.usual.on_poll(found)
        usual_us = usual_told(answers) | self.usual.medians
        self._snapshot = replace(found, usual_us=usual_us)
        self._alarms = alarms(self._snapshot, self._alarms)
        self.life.on_poll(self._alarms, now_ms=now_ms, wall_ms=wall_ms)
        self._history.append(_point(self._snapshot))
        while self._history[0]["at"] < wall_ms - HISTORY_MS_MAX:
            self._history.popleft()

    def remember(self, since: Iterable[tuple[str, str, int]]) -> None:
        """Of alarms (name, subject) somebody else knows since when they hold, on the same clock;
        the earliest counts. Told before a poll, it is for those that the poll finds."""
        known = {(alarm.name, alarm.subject): alarm for alarm in self._alarms}
        for name, subject, since_ms in since:
            before = known.get((name, subject))
            if before is None or since_ms < before.since_ms:
                known[name, subject] = Alarm(name, "", subject, "", since_ms)
        self._alarms = tuple(known.values())

    def tables(self) -> tuple[Table, ...]:
        assert self._snapshot is not None
        return tables(self._snapshot, self._alarms)

    def seen(self) -> SiteSnapshot:
        """All that the newest poll found."""
        assert self._snapshot is not None
        return self._snapshot

    def shards(self) -> tuple[ShardLine, ...]:
        return self.seen().shards

    def alarms(self) -> tuple[Alarm, ...]:
        return self._alarms

    def plain(self) -> dict[str, Any]:
        """Plain values: raw figures, the alarms, and the tables that everybody sees."""
        assert self._snapshot is not None
        return {
            "at": self._snapshot.wall_ms,
            "cluster": self.view.site.cluster.hex(),
            "alarms": [self._plain_alarm(self._snapshot, alarm) for alarm in self._alarms],
            "past_alarms": [row.plain() for row in self.life.over()],
            "shards": [
                _plain_shard(self._snapshot, number) for number in range(len(self._snapshot.shards))
            ],
            "farm": None if self._snapshot.farm is None else asdict(self._snapshot.farm),
            "objects": [asdict(line) for line in self._snapshot.objects],
            "federation": [asdict(line) for line in self._snapshot.federation],
            "processes": [
                {"node": node, "name": name, **asdict(kept)}
                for node, name, kept in self._snapshot.processes
            ],
            "machines": [asdict(machine) for machine in self._snapshot.machines],
            "tables": [plain(table) for table in self.tables()],
            "point": self._history[-1],
        }

    def _plain_alarm(self, seen: SiteSnapshot, alarm: Alarm) -> dict[str, Any]:
        raised: Raised = self.life.holds[alarm.name, alarm.subject]
        remedy = REMEDIES[alarm.name]
        return {
            "name": alarm.name,
            "severity": alarm.severity,
            "subject": alarm.subject,
            "text": alarm.text,
            "for_ms": seen.now_ms - alarm.since_ms,
            "means": remedy.means,
            "do": remedy.do,
            "seen_by": raised.seen_by,
            "seen_ms": raised.seen_ms,
            "acts": remedies(seen, alarm),
        }

    def offers(self) -> dict[str, list[dict[str, Any]]]:
        """Plain values: of tables by title, what an operator may do beside each row; of the site
        as if it were a table with one row."""
        snapshot = self.seen()
        site = {"subject": "the site", "acts": offers(snapshot, SITE, About())}
        return {SITE: [site]} | {
            table.title: [
                {
                    "subject": in_words(snapshot.site, subject),
                    "acts": offers(snapshot, table.title, subject),
                }
                for subject in table.subjects
            ]
            for table in self.tables()
            if table.subjects
        }

    def history(self) -> list[dict[str, Any]]:
        """The curves' points, oldest first."""
        return list(self._history)


def _plain_shard(seen: SiteSnapshot, number: int) -> dict[str, Any]:
    shard = seen.shards[number]
    return {
        "shard": shard.number,
        "view": shard.view,
        "commit_max": shard.commit_max,
        "primary": None if shard.primary is None else shard.primary.node,
        "records": shard.records,
        "records_per_s": round(shard.records_per_s, 1),
        "serving": shard.normal_count,
        "quorum": shard.quorum,
        "replicas": [
            {
                "replica": member.index,
                "node": member.node,
                "normal": member.normal,
                "asked": member.asked,
                "answers": member.own is not None,
                "status": member.own.status if member.own else None,
                "role": member.own.role if member.own else None,
                "view": member.own.view if member.own else None,
                "op": member.own.op if member.own else None,
                "commit": member.commit,
                "stale_ms": member.own.stale_ms if member.own else None,
                "lag": shard.lag(member),
                "write_p50_us": member.own.writes.p50_us if member.own else None,
                "write_p99_us": member.own.writes.p99_us if member.own else None,
                "connections": member.own.connections if member.own else None,
            }
            for member in shard.members
        ],
    }


def _point(seen: SiteSnapshot) -> dict[str, Any]:
    """One point of the curves: committed records a second, and the worst of this machine's
    latencies: durable write of any replica, acknowledgement of any edge."""
    replicas = [member.own for shard in seen.shards for member in shard.members if member.own]
    edges = [edge.own for edge in seen.edges if edge.own]
    return {
        "at": seen.wall_ms,
        "records_per_s": round(sum(shard.records_per_s for shard in seen.shards), 1),
        "write_p50_us": max((replica.writes.p50_us for replica in replicas), default=None),
        "write_p99_us": max((replica.writes.p99_us for replica in replicas), default=None),
        "ack_p50_us": max((edge.ack_p50_us for edge in edges), default=None),
        "ack_p99_us": max((edge.ack_p99_us for edge in edges), default=None),
    }
