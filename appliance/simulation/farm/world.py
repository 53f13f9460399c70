"""One seed of the farm, from its options to its verdict."""

import json
import traceback
from collections import Counter
from dataclasses import dataclass

from appliance.base.prng import Prng
from appliance.cores.raft.effects import JOINING, HardState, Saved
from appliance.formats.raft_legacy.configuration import Configuration, Server
from appliance.simulation.failure import Violation, violated
from appliance.simulation.farm.checkers import Checkers
from appliance.simulation.farm.fabric import POSTER, Fabric
from appliance.simulation.farm.host import Host, endpoint_of
from appliance.simulation.farm.legacy import UNSAFE, Legacy
from appliance.simulation.farm.options import LEGACY, FarmOptions
from appliance.simulation.farm.poster import Poster, adding, removing
from appliance.simulation.schedule import TICK_US, Schedule

CONVERGE_TICKS = 1500  # after everything healed, within which all must agree
RATE = 10_000
READ_IN = 8  # one tick in so many somebody asks a member what is current
ADMINISTRATOR = POSTER + 99
MEMBERS_MIN, MEMBERS_MAX = 2, 6


@dataclass(slots=True, frozen=True)
class FarmOutcome:
    """What became of a seed. `failure` is empty when everything held, or was excused."""

    options: FarmOptions
    failure: str
    checker: str
    excuse: str
    ticks: int
    digest: str
    events: int
    commits: int
    yes: int
    faults: dict[str, int]
    marks: dict[str, int]


class FarmWorld:
    def __init__(self, options: FarmOptions) -> None:
        self.options = options
        self.schedule = Schedule()
        self.prng = Prng(options.seed)
        self.fabric = Fabric(options, self.schedule, self.prng.fork())
        self.checkers = Checkers()
        self.faults: Counter[str] = Counter()
        self.members: dict[int, Host | Legacy] = {}
        self.joining: dict[int, bool] = {}  # id -> legacy; not seen listed yet
        self.gone: dict[int, bool] = {}  # were asked to leave
        servers = tuple(Server(i, endpoint_of(i)) for i in range(1, options.members + 1))
        self.configured = Configuration(0, 0, servers)
        for i in range(1, options.members + 1):
            late = options.late_ticks if i == options.members else 0
            self._make(i, i <= options.legacy, joins=False, late_ticks=late)
        self.next_id = options.members + 1
        self.posters = [self._poster(POSTER + i) for i in range(options.posters)]
        self.administrator = self._poster(ADMINISTRATOR)
        self.values = 0
        self.alone: tuple[Host, int, int] | None = None
        self.active = True

    def _make(self, member: int, legacy: bool, *, joins: bool, late_ticks: int = 0) -> None:
        configured = Configuration(0, 0, ()) if joins else self.configured
        made: Host | Legacy
        if legacy:
            made = Legacy(
                id=member,
                options=self.options,
                fabric=self.fabric,
                checkers=self.checkers,
                prng=self.prng.fork(),
                configured=configured,
            )
            made.snapshot_of = self._legacy_snapshot
        else:
            made = Host(
                id=member,
                options=self.options,
                fabric=self.fabric,
                checkers=self.checkers,
                prng=self.prng.fork(),
                configured=configured,
                saved=Saved(HardState(standing=JOINING)) if joins else Saved(),
            )
        self.members[member] = made
        self.fabric.processes[member] = made
        if late_ticks:
            self.faults["started_late"] += 1
            self.schedule.at(late_ticks * TICK_US, self._restart, member)
        else:
            made.start()

    def _legacy_snapshot(self, index: int) -> bytes:
        return json.dumps({"index": index, "chain": self.checkers.chain[index].hex()}).encode()

    def _poster(self, number: int) -> Poster:
        poster = Poster(
            id=number,
            fabric=self.fabric,
            prng=self.prng.fork(),
            members=self._asked,
            on_yes=self._on_yes,
        )
        self.fabric.processes[number] = poster
        return poster

    def _asked(self) -> list[int]:
        return sorted(self.members)

    def _on_yes(self, member: int, value: bytes) -> None:
        """A legacy leader says yes before it knows: only ours is a promise."""
        if value.startswith(b'{"v') and isinstance(self.members[member], Host):
            self.checkers.on_yes(value)

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> FarmOutcome:
        failure = checker = ""
        try:
            self._hurt()
            self._heal()
            self._converge()
        except Violation as error:
            failure, checker = error.sentence, error.checker
        except Exception:
            failure, checker = traceback.format_exc(), "exception"
        quirks: Counter[str] = Counter()
        marks: Counter[str] = Counter()
        for member in self.members.values():
            if isinstance(member, Legacy):
                quirks.update(member.quirks)
            else:
                marks.update(member.marks)
        excuse = ""
        unsafe = sorted(name for name in quirks if name in UNSAFE)
        if failure and unsafe and checker != "exception":
            excuse, failure = f"{checker}: {failure}, after {', '.join(unsafe)}", ""
        return FarmOutcome(
            options=self.options,
            failure=failure,
            checker=checker,
            excuse=excuse,
            ticks=self.schedule.now_us // TICK_US,
            digest=self.fabric.chain.hexdigest(),
            events=self.fabric.count,
            commits=len(self.checkers.committed),
            yes=len(self.checkers.acknowledged),
            faults=dict(sorted(self.faults.items())),
            marks=dict(
                sorted((marks + Counter({f"legacy_{k}": v for k, v in quirks.items()})).items())
            ),
        )

    def _hurt(self) -> None:
        for tick in range(self.options.ticks):
            self.schedule.run_until((tick + 1) * TICK_US)
            self._post()
            self._read()
            self._fault()
            self._administer()

    def _post(self) -> None:
        for poster in self.posters:
            if poster.request is None and self.prng.chance(1, self.options.posts_pause):
                self.values += 1
                fill = "x" * self.prng.below(30)
                poster.post(f'{{"v":{self.values},"f":"{fill}"}}'.encode())

    def _read(self) -> None:
        if self.prng.chance(1, READ_IN):
            host = self.members[self.prng.choice(sorted(self.members))]
            if isinstance(host, Host):
                host.read()

    def _chance(self, rate: int) -> bool:
        return self.prng.chance(rate, RATE)

    def _fault(self) -> None:
        options = self.options
        if self._chance(options.crash):
            self._crash(self.prng.choice(sorted(self.members)))
        if self._chance(options.power):
            self.faults["power"] += 1
            for member in sorted(self.members):
                self._crash(member)
        if self._chance(options.partition) and not self.fabric.cut:
            self._part()
        if self._chance(options.yields):
            for host in self.members.values():
                if isinstance(host, Host) and host.yield_leadership():
                    self.faults["yield"] += 1

    def _crash(self, member: int) -> None:
        process = self.members[member]
        if not process.life:
            return  # it has not started yet
        if process.up:
            self.faults["crash"] += 1
            if isinstance(process, Host) and process.writing is not None:
                self.faults["crash_in_write"] += 1
            process.crash()
        delay_us = self.prng.between(1, 60) * TICK_US
        self.schedule.after(delay_us, self._restart, member)

    def _restart(self, member: int) -> None:
        process = self.members[member]
        if not process.up and not process.out:
            process.start()

    def _part(self) -> None:
        members = sorted(self.members)
        self.prng.shuffle(members)
        side = members[: self.prng.between(1, max(1, len(members) // 2))]
        others = [m for m in [*self.members, *self.fabric.processes] if m not in side]
        pairs = [(a, b) for a in side for b in others]
        if self.prng.chance(1, 2):
            self.faults["partition"] += 1
            pairs += [(b, a) for a, b in pairs]
            self._note_alone(side)
        else:
            self.faults["partition_one_way"] += 1
            if self.prng.chance(1, 2):
                pairs = [(b, a) for a, b in pairs]
        self.fabric.part(pairs)
        delay_us = self.prng.between(1, self.options.partition_ticks) * TICK_US
        self.schedule.after(delay_us, self._heal_partition)

    def _note_alone(self, side: list[int]) -> None:
        """Who hears nobody and is heard by nobody until the partition ends, and its term now."""
        host = self.members[side[0]]
        self.alone = None
        if len(side) == 1 and isinstance(host, Host) and host.up:
            member = host.node.member
            if not member.is_quorum([member.id]):
                self.alone = (host, host.life, member.term)

    def _heal_partition(self) -> None:
        if self.alone is not None:
            host, life, before = self.alone
            term = host.node.member.term
            if host.up and host.life == life and term > before + 1:
                # One term may have been on its way: granted before, not yet stood for.
                violated("standing still", f"member {host.id}, alone, went from {before} to {term}")
            self.alone = None
        self.fabric.heal()

    # --- members come and go ----------------------------------------------------------------------

    def listed(self) -> tuple[int, ...]:
        """The members of the newest committed Configuration, as far as anybody knows."""
        index, found = 0, self.configured.ids
        for host in self.members.values():
            if isinstance(host, Host) and host.up:
                at, configuration = host.node.member.log.configuration_at(host.node.member.commit)
                if at > index:
                    index, found = at, configuration.ids
        return found

    def _administer(self) -> None:
        listed = self.listed()
        for member in [m for m in self.joining if m in listed]:
            del self.joining[member]
            self.faults["joined"] += 1
        for member in [m for m in self.gone if m not in listed]:
            del self.gone[member]
            self.faults["removed"] += 1
        if self.administrator.request is not None or not self._chance(self.options.change):
            return
        waiting = sorted(self.joining)
        if waiting:
            member = waiting[0]
            self.administrator.ask(adding(member, endpoint_of(member)))
        elif len(listed) < MEMBERS_MAX and self.prng.chance(1, 2):
            member, self.next_id = self.next_id, self.next_id + 1
            legacy = self.options.mode == LEGACY and self.prng.chance(1, 3)
            self.joining[member] = legacy
            self._make(member, legacy, joins=True)
            self.administrator.ask(adding(member, endpoint_of(member)))
        elif len(listed) > max(MEMBERS_MIN, self.options.legacy + 1):
            member = self.prng.choice(sorted(listed))
            self.gone[member] = True
            self.administrator.ask(removing(member))

    # --- the end ----------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.fabric.trace("calm")
        self.fabric.calm = True
        self.fabric.heal()
        for member in sorted(self.members):
            self._restart(member)

    def _converge(self) -> None:
        """All members must agree on everything, and take one more value."""
        start = self.schedule.now_us // TICK_US
        last = self.posters[0]
        final = b'{"v":"final"}'
        for tick in range(start, start + CONVERGE_TICKS):
            self.schedule.run_until((tick + 1) * TICK_US)
            done = final in self.checkers.indexes
            if last.request is None and not done:  # a legacy leader's yes promises nothing
                last.post(final)
            for member, process in sorted(self.members.items()):  # as an operator would do
                if isinstance(process, Legacy) and process.up and process.stuck:
                    process.crash()
                self._restart(member)
            if done and self._agreed():
                self._check()
                return
        violated(
            "progress",
            f"no agreement {CONVERGE_TICKS} ticks after everything healed: {self.lines()}",
        )

    def _agreed(self) -> bool:
        ends = []
        for member in self.listed():
            process = self.members[member]
            if not process.up:
                return False
            commit = (
                process.node.member.commit if isinstance(process, Host) else process.disk.commit
            )
            ends.append(commit)
        return len(set(ends)) == 1 and ends[0] == len(self.checkers.committed)

    def _check(self) -> None:
        for value in self.checkers.acknowledged:
            if value not in self.checkers.indexes:
                violated("yes", f"{value!r} is lost")
        for member in self.listed():
            process = self.members[member]
            if isinstance(process, Host):
                self.checkers.on_state(member, process.index, process.chain)

    def lines(self) -> str:
        """A word on each member, for a failure."""
        found = []
        for member, process in self.members.items():
            if not process.life:
                found.append(f"{member}: not started")
            elif isinstance(process, Host):
                status = process.node.status()
                found.append(
                    f"{member}: {'up' if process.up else 'down'} {status.role} {status.standing} "
                    f"term {status.term} leader {status.leader} commit {status.commit} last "
                    f"{status.last} snapshot {status.snapshot} change {status.change} peers "
                    f"{[(p.id, p.connected, p.match, p.next) for p in status.peers]}"
                )
            else:
                found.append(
                    f"{member}: legacy {'up' if process.up else 'down'} {process.role} term "
                    f"{process.disk.term} commit {process.disk.commit} last {process.last} "
                    f"before {process.disk.before} voters {process.voters()} {dict(process.quirks)}"
                )
        return "; ".join(found)


def run(options: FarmOptions) -> FarmOutcome:
    """One seed."""
    return FarmWorld(options).run()
