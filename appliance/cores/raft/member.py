"""The state of a member, and the few acts that every part of the protocol needs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from appliance.base.prng import Prng
from appliance.cores.raft.change import Join, Removal, Stay
from appliance.cores.raft.effects import (
    JOINING,
    MEMBER,
    OUT,
    Answer,
    AppendLog,
    Apply,
    Beat,
    CutLog,
    HangUp,
    HardState,
    Leave,
    MakeSnapshot,
    Mark,
    Readable,
    Refuse,
    Restore,
    Saved,
    SaveSnapshot,
    SaveState,
    Send,
    Snapshot,
    Word,
)
from appliance.cores.raft.log import Log
from appliance.cores.raft.progress import NEVER, Progress
from appliance.cores.raft.settings import Settings
from appliance.formats.raft_legacy.configuration import Configuration
from appliance.formats.raft_legacy.frame import ANSWER_OF, NOBODY, Entry, Request, Response

FOLLOWER, PRE_CANDIDATE, CANDIDATE, LEADER = "follower", "pre_candidate", "candidate", "leader"


@dataclass(slots=True)
class Election:
    """When a leader was last heard, and when this member would stand itself."""

    contact_tick: int = NEVER  # when a leader was last heard
    timer_tick: int = 0  # since when it waits
    timeout: int = 0  # for so many ticks
    stand_tick: int = 0  # does not stand before this one
    refusals: int = 0  # elections since a leader was heard in which a legacy peer said no

    def end_giving_way(self, tick: int) -> None:
        """There is a leader: the next election is another matter."""
        if self.refusals:
            self.refusals, self.stand_tick = 0, tick


class Member:
    """What one member of the farm is.

    Invariants: commit <= log.last; term and vote never fall back; at most one leader role a term.
    """

    def __init__(
        self,
        *,
        id: int,
        settings: Settings,
        prng: Prng,
        saved: Saved,
        configured: Configuration,
        snapshot_fits: Callable[[bytes], bool],
    ) -> None:
        self.id, self.settings, self.prng = id, settings, prng
        self.snapshot_fits = snapshot_fits
        self.term, self.vote = saved.state.term, saved.state.vote
        self.standing = saved.state.standing
        self.log = Log(saved, configured)
        self.commit = max(saved.state.commit, self.log.snapshot_index)
        assert self.commit <= self.log.last
        self.role, self.leader = FOLLOWER, NOBODY
        self.tick = 0
        self.election = Election()
        self.leaving = False  # said yes to LeaveCluster
        self.peers: dict[int, Progress] = {}
        self.term_first = 0  # index of the first entry of our term, while leading
        self.led_tick = 0  # since when we lead
        self.pending: list[tuple[int, int, int]] = []  # (last index, token, tick) of requests
        self.sent = 0  # requests to peers so far
        self.reads: list[tuple[int, int, int]] = []  # (token, index, requests sent before)
        self.change: Join | Removal | Stay | None = None
        self.receiving: tuple[tuple[int, int], bytearray] | None = None  # a snapshot, in pieces
        self.snapshot_asked = 0  # index for which the application was asked
        self.beat = Beat()
        self._saved = saved.state
        self.restart_timer()
        if self.log.snapshot is not None:
            self.word(Restore(self.log.snapshot))
        self._apply(self.log.snapshot_index)
        self.refresh_peers()

    # --- effects ----------------------------------------------------------------------------------

    def word(self, word: Word) -> None:
        self.beat.words.append(word)

    def mark(self, name: str) -> None:
        self.beat.words.append(Mark(name))

    def save(self) -> None:
        """Make term, vote and standing durable, and the commit with them."""
        state = HardState(self.term, self.vote, self.commit, self.standing)
        if state != self._saved:
            self._saved = state
            self.beat.writes.append(SaveState(state))

    def send(self, peer: Progress, request: Request) -> None:
        assert peer.connected
        self.sent += 1
        peer.flight.append((request, self.tick, self.sent))
        peer.sent_tick = self.tick
        self.beat.words.append(Send(peer.id, request))

    def answer(
        self,
        token: int,
        request: Request,
        *,
        accepted: bool,
        next_index: int,
        destination: int | None = None,
    ) -> None:
        response = Response(
            ANSWER_OF[request.type],
            self.id,
            request.source if destination is None else destination,
            self.term,
            next_index,
            accepted,
        )
        self.word(Answer(token, response))

    def refuse(self, token: int, reason: str) -> None:
        self.word(Refuse(token, reason))

    # --- terms ------------------------------------------------------------------------------------

    def take_over(self, term: int) -> None:
        """A higher term: nobody has our vote in it, and we follow until we know more."""
        assert term > self.term
        self.term, self.vote = term, 0
        self.leaving = self.leaving and self.id not in self.log.configurations[-1][1].ids
        self.follow(NOBODY)
        self.save()

    def follow(self, leader: int) -> None:
        """Lead no more, if we did, and remember who does."""
        if self.role == LEADER:
            self._abdicate(leader)
        self.role, self.leader = FOLLOWER, leader

    def _abdicate(self, leader: int) -> None:
        """What our leadership had promised is told as open: the outcome is unknown to clients."""
        self.change = None
        for peer in self.peers.values():
            peer.transfer = None
        for _, token, _ in self.pending:
            response = Response(ANSWER_OF[5], self.id, leader, self.term, 0, accepted=False)
            self.word(Answer(token, response))
        self.pending.clear()
        for token, _, _ in self.reads:
            self.word(Readable(token, None))
        self.reads.clear()
        self.restart_timer()
        self.refresh_peers()

    def restart_timer(self) -> None:
        low, high = self.settings.election_ticks_min, self.settings.election_ticks_max
        self.election.timer_tick = self.tick
        self.election.timeout = self.prng.between(low, high)

    # --- configurations ---------------------------------------------------------------------------

    @property
    def newest(self) -> tuple[int, Configuration]:
        """(index, Configuration) of the newest one in the log, committed or not."""
        return self.log.configurations[-1]

    def counting(self) -> list[Configuration]:
        """The Configurations of which each quorum needs a majority: the last committed one and
        all behind it."""
        at = self.log.configuration_at(self.commit)[0]
        return [c for index, c in self.log.configurations if index >= at]

    def is_quorum(self, ids: Iterable[int]) -> bool:
        """Whether these members, ourselves counted if named, are a majority of all that count."""
        present = frozenset(ids)
        return all(
            2 * sum(server_id in present for server_id in configuration.ids)
            > len(configuration.ids)
            for configuration in self.counting()
        )

    def is_voter(self) -> bool:
        """Whether we may stand: a member, in the newest Configuration, not on our way out."""
        return self.standing == MEMBER and not self.leaving and self.id in self.newest[1].ids

    def refresh_peers(self) -> None:
        """Know exactly those who are in a Configuration that counts, and a joiner."""
        wanted = {
            server.id: server.endpoint
            for configuration in self.counting()
            for server in configuration.servers
        }
        if isinstance(self.change, Join):
            wanted.setdefault(self.change.server.id, self.change.server.endpoint)
        wanted.pop(self.id, None)
        for peer_id in [p for p in self.peers if p not in wanted]:
            if self._is_parting(self.peers[peer_id]):
                continue
            if self.peers.pop(peer_id).connected:
                self.word(HangUp(peer_id, "gone"))
        for peer_id, endpoint in wanted.items():
            known = self.peers.get(peer_id)
            if known is None or known.endpoint != endpoint:
                self.peers[peer_id] = Progress(peer_id, endpoint, next=self.log.free)
            else:
                known.gone_tick = NEVER  # let in again while it was still told that it is out

    def _is_parting(self, peer: Progress) -> bool:
        """Whether a leaver of ours is still to be told that its removal is committed: from nobody
        else would it hear that. Not for long: it may be dead."""
        if self.role != LEADER or not (peer.connected and peer.pre_vote) or peer.learner:
            return False
        if peer.gone_tick == NEVER:
            peer.gone_tick = self.tick
        late = self.tick - peer.gone_tick >= 2 * self.settings.election_ticks_max
        return not late and peer.commit_known < self.log.configuration_at(self.commit)[0]

    # --- log --------------------------------------------------------------------------------------

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Put entries behind the last one, durably."""
        self.beat.writes.append(AppendLog(self.log.free, entries))
        self.log.append(entries)
        self.refresh_peers()

    def cut(self, index: int) -> None:
        """Drop what was never committed."""
        assert index > self.commit
        self.beat.writes.append(CutLog(index))
        self.log.cut(index)
        self.refresh_peers()

    def advance(self, commit: int) -> None:
        """Entries up to `commit` are committed."""
        if commit <= self.commit:
            return
        assert commit <= self.log.last
        applied, self.commit = self.commit, commit
        self._apply(applied)
        self.refresh_peers()
        self._validate_standing()
        distance = self.commit - max(self.log.snapshot_index, self.snapshot_asked)
        if distance > self.settings.snapshot_distance:
            self.snapshot_asked = self.commit
            self.word(MakeSnapshot(self.commit))

    def _apply(self, applied: int) -> None:
        if self.commit > applied:
            entries = self.log.take(applied + 1, self.commit)
            self.beat.words.append(Apply(applied + 1, entries))

    def _validate_standing(self) -> None:
        configuration = self.log.configuration_at(self.commit)[1]
        if self.standing == MEMBER and self.role != LEADER and configuration.servers:
            if self.id not in configuration.ids:
                self.depart()

    def lose(self, peer: Progress) -> None:
        """The connection to a peer is gone, with all answers that were on their way."""
        peer.connected = False
        peer.flight.clear()
        peer.transfer = None
        if isinstance(self.change, Removal) and self.change.server_id == peer.id:
            self.change.asked = False

    def admit(self) -> None:
        """An append told us of a commit: if that made us a member, we are one from now on."""
        if self.standing == JOINING and self.id in self.log.configuration_at(self.commit)[1].ids:
            self.standing, self.change = MEMBER, None
            self.restart_timer()
            self.save()

    def depart(self) -> None:
        """Out, durably."""
        assert self.role != LEADER
        self.standing = OUT
        self.save()
        self.word(Leave())

    def on_snapshot(self, index: int, data: bytes) -> None:
        """The application's state after the entry `index`, as MakeSnapshot asked for it."""
        if index <= self.log.snapshot_index:
            return  # a leader's newer one came in between
        term = self.log.term_of(index)
        assert term is not None
        assert index <= self.commit
        assert data
        snapshot = Snapshot(index, term, self.log.configuration_at(index)[1], data)
        self.log.compact(snapshot, self._keep_behind(index))
        self.beat.writes.append(SaveSnapshot(snapshot, self.log.before, self.log.before_term))
        self.save()

    def _keep_behind(self, index: int) -> int:
        """Up to where the log may be forgotten: what peers that are a little late need stays."""
        least = max(self.log.before, index - self.settings.snapshot_lag)
        if self.role != LEADER:
            return least
        late = [p.match for p in self.peers.values() if least <= p.match < index]
        return min([index, *late])
