"""The state machine of a farm: statuses, duties, exclusions, placement, and its snapshots."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from appliance.base.json_text import parse_json
from appliance.base.limits import (
    FARM_EXCLUSIONS_MAX,
    FARM_GUESTS_MAX,
    FARM_PERIOD_MS_MAX,
    FARM_PERIOD_MS_MIN,
    FARM_SHARDS_MAX,
)
from appliance.cores.directory.acts import GUEST, guest_of
from appliance.cores.directory.choice import Choice, Score, score_of
from appliance.cores.directory.document import DATE_MAX, date_of, parse_document, poster_of
from appliance.cores.directory.log_time import LogTime, append_time_of
from appliance.cores.directory.status import PUBLISH_OFF, PUBLISH_ON, Group, Status, status_of
from appliance.cores.directory.wanted import Placement
from appliance.formats.raft_legacy.configuration import decode_configuration
from appliance.formats.raft_legacy.frame import APPLICATION, CONFIGURATION, Entry
from appliance.formats.status.farm import FarmView, PostedStatus

SNAPSHOT_VERSION = 1
PERIOD_MS = 60_000  # between two posts of a node, unless an administrator says otherwise
RECENT_PERIODS = 3  # a status is recent for so long
EXPIRY_PERIODS = 10  # a directory is valid for so long, from the log's time on
AHEAD_MS = 86_400_000  # a date further ahead of all other clocks is that of no clock


def canonical(value: object) -> bytes:
    """JSON in one line that is the same on every machine."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


@dataclass(slots=True)
class Held:
    """The newest document of a node, byte for byte as it was posted; `since_ms`: of the log's
    time, when it was appended."""

    index: int
    date: int
    since_ms: int
    value: bytes
    status: Status


@dataclass(slots=True)
class Directory:
    """`index`: of the newest entry taken; a directory computed now has it as its version."""

    cluster: str
    index: int = 0
    term: int = 0
    time: LogTime = field(default_factory=LogTime)
    date_ms: int = 0  # what time it is, as far as the nodes' clocks agree
    servers: tuple[int, ...] = ()  # of the newest committed Configuration
    documents: dict[int, Held] = field(default_factory=dict)  # by the poster's id
    publisher: Choice = field(default_factory=Choice)
    shippers: dict[int, Choice] = field(default_factory=dict)  # by shard
    exclusions: tuple[int, tuple[str, ...]] = (0, ())  # date, identities
    placement: Placement = field(default_factory=Placement)
    period: tuple[int, int] = (0, PERIOD_MS)  # date, ms between two posts of a node
    departed: tuple[int, tuple[int, ...]] = (0, ())  # date, members an administrator took out
    admitted: dict[int, dict[str, Any]] = field(default_factory=dict)  # guests, by id
    skipped: int = 0  # values that are no document of this farm, or too old
    foreign: bool = False  # began from a snapshot that we cannot read

    def take(self, index: int, entry: Entry) -> None:
        """One committed entry; every index is taken once, in order."""
        assert index > self.index
        self.index, self.term = index, entry.term
        if entry.type == CONFIGURATION:
            self.servers = decode_configuration(entry.value).ids
        if entry.type != APPLICATION:
            return
        document = parse_document(entry.value)
        if document is None or not self._take(index, entry.value, document):
            self.skipped += 1

    def _take(self, index: int, value: bytes, document: dict[str, Any]) -> bool:
        if document.get("cluster") != self.cluster:
            return False
        if (told_ms := append_time_of(document)) is not None:
            self.time.on_told(index, told_ms, self.period[1])
            return True
        poster, date = poster_of(document), date_of(document)
        if poster is None or date is None or self._is_impossible(index, date):
            return False
        administered = self._administer(date, document.get("config"))
        if administered and "meta" not in document:
            return True  # an administrator's word is no status
        held = self.documents.get(poster)
        if held is not None and not self._is_newer(date, held.date):
            return administered  # posted again, or late
        if held is not None and not self.time.is_told(index):
            self.time.on_dates(held.since_ms, date - held.date, self.period[1])
        status = status_of(poster, date, document)
        self.documents[poster] = Held(index, date, self.time.now_ms, value, status)
        if self.placement.open:
            newest = self.groups()
            said = [group for group in status.groups if group.op == newest[group.shard].op]
            self.placement = self.placement.reported(said)
        self._tell_date()
        self._choose(poster)
        return True

    # --- time -------------------------------------------------------------------------------------

    def date_ms_max(self, told_ms: int) -> int:
        """Up to where a date may be, where a leader's clock says `told_ms`: a day ahead of that
        clock and of the nodes'."""
        if not self.documents:
            return DATE_MAX  # one clock alone may be the wrong one
        return min(DATE_MAX, max(told_ms, self.date_ms) + AHEAD_MS)

    def _is_impossible(self, index: int, date: int) -> bool:
        return self.time.is_told(index) and date > self.date_ms_max(self.time.told_ms)

    def _is_newer(self, date: int, than: int) -> bool:
        """A date that no clock could have holds nobody back: it came from before there was a
        bound, or from a leader that knows none."""
        return date > than or than > self.date_ms_max(self.time.told_ms)

    def acted_ms(self) -> int:
        """The date of the newest act; what is older does not count. One that no clock could have
        holds none back."""
        acts = (self.exclusions[0], self.placement.date, self.period[0], self.departed[0])
        most = self.date_ms_max(self.time.told_ms)
        return max((date for date in acts if date <= most), default=0)

    def _tell_date(self) -> None:
        """The median of what the clocks of those who posted lately say now. It stands rather than
        falling a little: clocks differ, and a new one is worth another directory."""
        said = sorted(
            held.date + self.time.now_ms - held.since_ms
            for held in self.documents.values()
            if self.is_recent(held)
        )
        median = said[(len(said) - 1) // 2]
        if median > self.date_ms or median < self.date_ms - self.period[1]:
            self.date_ms = median

    def is_recent(self, held: Held) -> bool:
        return self.age_ms(held) <= RECENT_PERIODS * self.period[1]

    def age_ms(self, held: Held) -> int:
        """Since it was appended, whatever its date says."""
        return self.time.now_ms - held.since_ms

    def _administer(self, date: int, config: Any) -> bool:
        """What an administrator wants kept out, where replicas are to be, how often is posted."""
        if not isinstance(config, dict):
            return False
        period = config.get("period_ms")
        exclude, placement = config.get("exclude"), config.get("placement")
        found = False
        if isinstance(exclude, list) and self._is_newer(date, self.exclusions[0]):
            names = [name for name in exclude if isinstance(name, str)][:FARM_EXCLUSIONS_MAX]
            self.exclusions = (date, tuple(sorted(set(names))))
            found = True
        if isinstance(placement, dict) and self._is_newer(date, self.placement.date):
            self.placement = self.placement.placed(date, config)
            found = True
        if type(period) is int and FARM_PERIOD_MS_MIN <= period <= FARM_PERIOD_MS_MAX:
            if self._is_newer(date, self.period[0]):
                self.period = (date, period)
                found = True
        if (guest := guest_of(config.get(GUEST))) is not None:
            if len(self.admitted) < FARM_GUESTS_MAX and guest["id"] not in self.admitted:
                self.admitted[guest["id"]] = guest
            found = True
        departed = config.get("departed")
        if isinstance(departed, list) and self._is_newer(date, self.departed[0]):
            ids = {node for node in departed if type(node) is int and node > 0}
            self.departed = (date, tuple(sorted(ids)[:FARM_EXCLUSIONS_MAX]))
            found = True
        return found

    # --- duties -----------------------------------------------------------------------------------

    def candidates(self) -> dict[int, Score]:
        """Who may publish, with its score: if anybody is told to, only those who are."""
        excluded = self.exclusions[1]
        fit = [
            held.status
            for poster, held in sorted(self.documents.items())
            if self.is_recent(held)
            and poster in self.servers
            and held.status.publish != PUBLISH_OFF
            and str(poster) not in excluded
        ]
        told = [status for status in fit if status.publish == PUBLISH_ON]
        return {status.id: score_of(status) for status in told or fit}

    def shipping(self, shard: int) -> dict[int, Score]:
        """Who may ship a shard now, with its score: who serves it, if it can be those who say that
        they could."""
        serving: dict[int, Score] = {}
        able: dict[int, Score] = {}
        for poster, held in sorted(self.documents.items()):
            if not self.is_recent(held) or str(poster) in self.exclusions[1]:
                continue
            for endpoint in held.status.endpoints:
                if endpoint.shard == shard and not endpoint.blacklisted:
                    serving[poster] = score_of(held.status)
                    if endpoint.ships:
                        able[poster] = serving[poster]
        return able or serving

    def _choose(self, poster: int) -> None:
        self.publisher.decide(poster, self.candidates())
        shards = {e.shard for held in self.documents.values() for e in held.status.endpoints}
        for shard in sorted(shards | set(self.shippers)):
            if 0 <= shard < FARM_SHARDS_MAX:
                choice = self.shippers.setdefault(shard, Choice())
                choice.decide(poster, self.shipping(shard))

    # --- what is published ------------------------------------------------------------------------

    def groups(self) -> dict[int, Group]:
        """Who belongs to each shard, as the newest report of any node has it: also of one that is
        away, as a group changes by its log alone."""
        found: dict[int, Group] = {}
        for _, held in sorted(self.documents.items()):
            for group in held.status.groups:
                if group.shard not in found or group.op > found[group.shard].op:
                    found[group.shard] = group
        return dict(sorted(found.items()))

    def left(self) -> list[dict[str, Any]]:
        """The nodes that an operator took out, with the addresses at which they served."""
        told = ((node, self.documents.get(node)) for node in self.departed[1])
        return [
            {"node": node, "addresses": [] if held is None else held.status.addresses}
            for node, held in told
        ]

    def content(self) -> dict[str, Any]:
        """The directory as of this index; whoever computes it gets the same."""
        excluded, departed = self.exclusions[1], self.departed[1]
        endpoints = [
            {
                "identity": endpoint.identity,
                "node": poster,
                "address": endpoint.address,
                "shard": endpoint.shard,
                "weight": endpoint.weight,
            }
            for poster, held in sorted(self.documents.items())
            if self.is_recent(held) and str(poster) not in excluded and poster not in departed
            for endpoint in held.status.endpoints
            if not endpoint.blacklisted and endpoint.identity not in excluded
        ]
        return {
            "cluster": self.cluster,
            "version": self.index,
            "term": self.term,
            "publisher": self.publisher.holder,
            "expires": self.date_ms + EXPIRY_PERIODS * self.period[1],
            "endpoints": endpoints,
            "excluded": list(excluded),
            "shippers": {str(s): c.holder for s, c in sorted(self.shippers.items())},
            "placement": {str(s): list(n) for s, n in sorted(self.placement.nodes.items())},
            "groups": [group.row() for group in self.groups().values()],
            "left": self.left(),
        }

    def view(self) -> FarmView:
        """For people: each status with its age, who publishes and with which scores."""
        return FarmView(
            index=self.index,
            time_ms=self.date_ms,
            publisher=self.publisher.holder,
            scores=self.candidates(),
            ahead=dict(sorted(self.publisher.ahead.items())),
            shippers={shard: choice.holder for shard, choice in sorted(self.shippers.items())},
            excluded=list(self.exclusions[1]),
            placement={shard: list(nodes) for shard, nodes in sorted(self.placement.nodes.items())},
            departed=list(self.departed[1]),
            period_ms=self.period[1],
            documents=[
                PostedStatus(
                    id=poster,
                    index=held.index,
                    age_ms=self.age_ms(held),
                    recent=self.is_recent(held),
                    endpoints=sum(not e.blacklisted for e in held.status.endpoints),
                )
                for poster, held in sorted(self.documents.items())
            ],
        )

    # --- snapshots --------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The whole state: a header line with the digest of the rest, the state, the documents.
        Empty: it is that of a snapshot of another make, and of what came behind that one."""
        if self.foreign and not self.documents:
            return b""
        state = {
            "cluster": self.cluster,
            "skipped": self.skipped,
            "time_ms": self.date_ms,
            "time": self.time.row(),
            "servers": list(self.servers),
            "publisher": self.publisher.row(),
            "shippers": [[s, c.row()] for s, c in sorted(self.shippers.items())],
            "exclusions": [self.exclusions[0], list(self.exclusions[1])],
            **self.placement.state(),
            "period": list(self.period),
            "departed": [self.departed[0], list(self.departed[1])],
            "admitted": [row for _, row in sorted(self.admitted.items())],
        }
        lines = [canonical(state)]
        for poster, held in sorted(self.documents.items()):
            head = {"id": poster, "index": held.index, "date": held.date}
            head |= {"since_ms": held.since_ms}
            lines.append(canonical({**head, "value": held.value.decode()}))
        rest = b"".join(line + b"\n" for line in lines)
        header = {
            "farm-snapshot": SNAPSHOT_VERSION,
            "index": self.index,
            "term": self.term,
            "sha256": hashlib.sha256(rest).hexdigest(),
        }
        return canonical(header) + b"\n" + rest

    def restore(self, index: int, term: int, data: bytes) -> bool:
        """Begin anew from a snapshot. False: its content is not ours; the state starts empty."""
        lines = snapshot_lines(data)
        fresh = Directory(self.cluster, index, term)
        if lines is None:
            fresh.foreign = True
        else:
            state = lines[0]
            fresh.skipped, fresh.date_ms = state["skipped"], state["time_ms"]
            # an earlier version had the dates alone: from the largest one on
            fresh.time = LogTime(*state.get("time", [state["time_ms"], 0, 0]))
            fresh.servers = tuple(state["servers"])
            fresh.publisher = Choice.of_row(state["publisher"])
            fresh.shippers = {shard: Choice.of_row(row) for shard, row in state["shippers"]}
            fresh.exclusions = (state["exclusions"][0], tuple(state["exclusions"][1]))
            fresh.placement = Placement.of_state(state)
            since, period = state.get("period", [0, PERIOD_MS])
            fresh.period = (since, period)
            since, departed = state.get("departed", [0, []])
            fresh.departed = (since, tuple(departed))
            fresh.admitted = {row["id"]: row for row in state.get("admitted", [])}
            for line in lines[1:]:
                value = line["value"].encode()
                document = parse_document(value)
                if document is None:
                    continue  # an earlier version took it
                date = line["date"]
                since_ms = line.get("since_ms", min(date, fresh.time.now_ms))
                status = status_of(line["id"], date, document)
                fresh.documents[line["id"]] = Held(line["index"], date, since_ms, value, status)
        for name in Directory.__slots__:
            setattr(self, name, getattr(fresh, name))
        return lines is not None


def snapshot_lines(data: bytes) -> list[dict[str, Any]] | None:
    """The lines behind the header of a snapshot of ours; None: it is of another make. ValueError:
    they are no objects."""
    head, _, rest = data.partition(b"\n")
    if _header(head).get("farm-snapshot") != SNAPSHOT_VERSION:
        return None
    lines = [parse_json(line) for line in rest.split(b"\n")[:-1]]
    if not lines or not all(isinstance(line, dict) for line in lines):
        raise ValueError("no lines of a snapshot")
    return lines


def snapshot_fits(data: bytes) -> bool:
    """Whether a snapshot may be installed: whole, if it is of our make; of another make, any."""
    head, _, rest = data.partition(b"\n")
    header = _header(head)
    if "farm-snapshot" not in header:
        return bool(data)
    if header.get("sha256") != hashlib.sha256(rest).hexdigest():
        return False
    try:
        Directory("").restore(0, 0, data)
    except (ValueError, LookupError, TypeError, AttributeError):
        return False  # whole, and yet none: it would end whoever installs it
    return True


def _header(line: bytes) -> dict[str, Any]:
    """Empty for a snapshot of another make."""
    try:
        header = parse_json(line)
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}
