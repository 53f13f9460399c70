"""A small group of replicas without disks, clocks or messages, to try the rule that chooses a
view's log.

A history is a few hundred random steps: prepares that reach some backups, some of them with gaps;
entries that break; repairs; view changes in which only some replicas take part and which may end
half-way. The rule itself is the product's `evaluate`. What a quorum acknowledged is kept aside: no
later view may start without it. `Rule` names the parts that can be left out, to see that each of
them is needed.
"""

from enum import Enum, IntEnum

from appliance.base.prng import Prng
from appliance.cores.vsr.evaluate import DoViewChange, Verdict, canonical_header, evaluate
from appliance.cores.vsr.quorums import quorums
from appliance.formats import envelope
from appliance.formats.envelope import Header

PIPELINE_MAX = 4
STEPS = 250
CLUSTER = bytes(16)


class Rule(Enum):
    """A part of the protocol that keeps acknowledged prepares."""

    HIGHEST_LOG_VIEW = "the highest log_view wins, not the highest op"
    STITCHING = "a list names the headers of its start_view, even those the journal lost"
    FAULTY_STAYS = "a header learned for a lost slot does not make the loss undone"
    CORRUPT_IS_NO_NACK = "what cannot be read is not denied"
    WHOLE_NACK_QUORUM = "one nack less than a quorum proves nothing"


class Lost(Exception):
    """An acknowledged prepare is missing from a later log, or stands beside another one."""


class State(IntEnum):
    """Of an entry: durable, not yet durable, once durable and unreadable now."""

    CLEAN = 0
    DIRTY = 1
    FAULTY = 2


class Entry:
    """A slot. `header` is None where the loss took the header as well; then it is FAULTY."""

    __slots__ = ("header", "state")

    def __init__(self, header: Header | None, state: State) -> None:
        self.header, self.state = header, state


class Replica:
    """What one replica knows. In status normal `view == log_view`."""

    def __init__(self, index: int, root: Header) -> None:
        self.index = index
        self.view = self.log_view = 0
        self.normal = True
        self.log = {0: Entry(root, State.CLEAN)}
        self.op = self.commit_min = self.commit_max = 0
        self.named: dict[int, Header] = {0: root}  # headers of the start_view of log_view
        self.list: list[Header] | None = None  # made once when it leaves log_view

    def serves(self, view: int) -> bool:
        return self.normal and self.view == self.log_view == view

    def holds(self, header: Header) -> bool:
        """Whether this prepare is durable here."""
        entry = self.log.get(header.op)
        return entry is not None and entry.state == State.CLEAN and entry.header is header


class History:
    """One random history of one group. `run` raises Lost or AssertionError if the rule fails."""

    def __init__(self, seed: int, without: Rule | None = None) -> None:
        self.prng = Prng(seed)
        self.without = without
        self.count = self.prng.choice((2, 3, 3, 3, 4, 5, 6))
        self.quorums = quorums(self.count)
        root = envelope.root(CLUSTER, 0)
        self.replicas = [Replica(i, root) for i in range(self.count)]
        self.committed = [root]
        self.started = 0
        self._made = 0

    def run(self) -> None:
        for _ in range(STEPS):
            dice = self.prng.below(100)
            if dice < 45:
                self._work()
            elif dice < 60:
                self._damage()
            elif dice < 70:
                self._repair()
            elif dice < 90:
                self._change_view()

    def _lucky(self, percent: int) -> bool:
        return self.prng.chance(percent, 100)

    # --- normal operation

    def _work(self) -> None:
        """A primary prepares, some backups get some of it, what a quorum holds is committed."""
        primaries = [
            r for r in self.replicas if r.serves(r.view) and r.view % self.count == r.index
        ]
        if not primaries:
            return
        primary = self.prng.choice(primaries)
        backups = [r for r in self.replicas if r is not primary and r.serves(primary.view)]
        self._prepare(primary)
        for backup in backups:
            self._deliver(primary, backup)
        self._commit(primary, backups)
        for backup in backups:
            if self._lucky(50):
                backup.commit_max = max(backup.commit_max, primary.commit_max)

    def _prepare(self, primary: Replica) -> None:
        tail = range(primary.commit_max + 1, primary.op + 1)
        if len(tail) >= PIPELINE_MAX or self._lucky(20):
            return
        if any(primary.log[op].state != State.CLEAN for op in tail):
            return
        self._made += 1
        primary.op += 1
        header = envelope.make(
            envelope.PREPARE,
            cluster=CLUSTER,
            shard=0,
            operation=envelope.OPERATION_NOOP,
            view=primary.view,
            op=primary.op,
            aux=self._made,
            commit_num=primary.commit_max,
        )
        primary.log[primary.op] = Entry(header, State.CLEAN)

    def _deliver(self, primary: Replica, backup: Replica) -> None:
        for op in range(max(1, backup.commit_max), primary.op + 1):
            header = primary.log[op].header
            if header is None or self._lucky(35) or op > backup.op + 1 and self._lucky(50):
                continue
            entry = backup.log.get(op)
            if entry is None or entry.header is not header:
                self._install(backup, header)
                if self._lucky(80):
                    backup.log[op].state = State.CLEAN
            elif self._lucky(50):
                entry.state = State.CLEAN
            backup.op = max(backup.op, op)

    def _install(self, replica: Replica, header: Header) -> None:
        """Let a header own its slot: dirty, but faulty if it may be what was lost there."""
        entry = replica.log.get(header.op)
        if entry is not None and entry.header is header:
            return
        lost = entry is not None and entry.header is None and entry.state == State.FAULTY
        keep = lost and self.without != Rule.FAULTY_STAYS
        replica.log[header.op] = Entry(header, State.FAULTY if keep else State.DIRTY)

    def _commit(self, primary: Replica, backups: list[Replica]) -> None:
        for op in range(primary.commit_max + 1, primary.op + 1):
            header = primary.log[op].header
            if header is None:
                return
            if sum(r.holds(header) for r in [primary, *backups]) < self.quorums.replication:
                return
            if op < len(self.committed):
                if self.committed[op] is not header:
                    raise Lost(f"op {op} is committed twice")
            else:
                self.committed.append(header)
            primary.commit_min = primary.commit_max = op

    # --- weather

    def _damage(self) -> None:
        """A durable entry becomes unreadable; below the head its header may be lost as well."""
        replica = self.prng.choice(self.replicas)
        clean = [op for op, e in replica.log.items() if op > 0 and e.state == State.CLEAN]
        if not clean:
            return
        entry = replica.log[op := self.prng.choice(clean)]
        entry.state = State.FAULTY
        if op < replica.op and self._lucky(40):
            entry.header = None

    def _repair(self) -> None:
        """A replica asks the others for what it knows by header and does not hold."""
        replica = self.prng.choice(self.replicas)
        for entry in replica.log.values():
            if entry.header is None or entry.state == State.CLEAN or self._lucky(50):
                continue
            if any(other.holds(entry.header) for other in self.replicas if other is not replica):
                entry.state = State.CLEAN

    # --- view change

    def _change_view(self) -> None:
        """Some replicas join a view; its primary evaluates what they say and perhaps starts."""
        view = max(r.view for r in self.replicas) + self.prng.choice((0, 1, 1, 2))
        able = [r for r in self.replicas if r.view < view or r.view == view > r.log_view]
        primary = self.replicas[view % self.count]
        if primary not in able:
            return
        others = [r for r in able if r is not primary]
        self.prng.shuffle(others)
        more = self.prng.between(self.quorums.view_change - 1, self.count - 1)
        members = [primary, *others[:more]]
        words = [self._join(r, view) for r in members]
        canonical_words = self._relabel(words)
        quorum_nack = self.quorums.nack - (self.without == Rule.WHOLE_NACK_QUORUM)
        result = evaluate(
            canonical_words,
            replica_count=self.count,
            quorum_view_change=self.quorums.view_change,
            quorum_nack=quorum_nack,
            pipeline_max=PIPELINE_MAX,
        )
        if result.verdict == Verdict.CONTRADICTED:
            raise Lost(result.reason)
        if result.verdict == Verdict.START:
            self.started += 1
            self._start(primary, members, canonical_words, result.head, result.floor)

    def _join(self, replica: Replica, view: int) -> DoViewChange:
        if replica.view == replica.log_view:
            replica.list = self._describe(replica)
        replica.view, replica.normal = view, False
        headers = replica.list
        assert headers is not None
        presents = nacks = 0
        for i, header in enumerate(headers):
            present, nack = self._bits(replica, header)
            presents |= present << i
            nacks |= nack << i
        return DoViewChange(
            replica.index,
            replica.log_view,
            headers[0].op,
            replica.commit_min,
            0,
            headers,
            presents,
            nacks,
        )

    def _describe(self, replica: Replica) -> list[Header]:
        headers = []
        for op in range(replica.op, -1, -1):
            entry = replica.log.get(op)
            header = entry.header if entry is not None else None
            if header is None and self.without != Rule.STITCHING:
                header = replica.named.get(op)
            headers.append(header or envelope.reserved(op, CLUSTER, 0))
            if op <= replica.commit_max:
                break
        return headers

    def _bits(self, replica: Replica, header: Header) -> tuple[bool, bool]:
        """(present, nack) of one listed header."""
        entry = replica.log.get(header.op)
        faulty = entry is not None and entry.state == State.FAULTY
        known = entry.header if entry is not None else None
        valid = header.operation != envelope.OPERATION_RESERVED
        present = replica.holds(header)
        if known is None:
            nack = not faulty
        elif valid and known is header:
            nack = entry is not None and entry.state == State.DIRTY
        else:
            nack = valid
        if self.without == Rule.CORRUPT_IS_NO_NACK and not present:
            nack = True
        return present, nack

    def _relabel(self, words: list[DoViewChange]) -> list[DoViewChange]:
        """As they are, or so that the evaluation takes the highest op for the highest log_view."""
        if self.without != Rule.HIGHEST_LOG_VIEW:
            return words
        head = max(word.op for word in words)
        return [word._replace(log_view=int(word.op == head)) for word in words]

    def _start(
        self,
        primary: Replica,
        members: list[Replica],
        words: list[DoViewChange],
        head: int,
        floor: int,
    ) -> None:
        log_view = max(word.log_view for word in words)
        canonical = [word for word in words if word.log_view == log_view]
        log: list[Header] = self.committed[:floor]
        for op in range(floor, head + 1):
            header = canonical_header(canonical, op)
            assert header is not None
            log.append(header)
        if len(log) < len(self.committed):
            raise Lost(f"view {primary.view} starts with head {head} of {len(self.committed) - 1}")
        for op, header in enumerate(self.committed):
            if log[op] is not header:
                raise Lost(f"view {primary.view} starts with another prepare at op {op}")
        self._adopt(primary, primary.view, log, named=log[floor:])
        primary.commit_max = max(primary.commit_max, floor)
        for header in log:
            entry = primary.log[header.op]
            if entry.state != State.CLEAN and any(r.holds(header) for r in members):
                entry.state = State.CLEAN
        if any(entry.state != State.CLEAN for entry in primary.log.values()):
            return  # it cannot repair its log now: a later view decides
        primary.normal = True
        primary.commit_min = primary.commit_max
        for backup in self.replicas:
            if backup is primary or backup.view > primary.view or backup.serves(primary.view):
                continue
            if self._lucky(60):
                self._adopt(backup, primary.view, log, named=log[floor:])
                backup.normal = True
                backup.commit_max = max(backup.commit_max, primary.commit_max)

    def _adopt(self, replica: Replica, view: int, log: list[Header], named: list[Header]) -> None:
        """Install a view's log and forget what lies above its head."""
        for header in log:
            self._install(replica, header)
        replica.log = {header.op: replica.log[header.op] for header in log}
        replica.named = {header.op: header for header in named}
        replica.op = len(log) - 1
        replica.view = replica.log_view = view
        replica.list = None
