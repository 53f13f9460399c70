"""A member of the farm: inputs by `on_...`, effects by `take`."""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.base.limits import FARM_TERM_JUMP_MAX
from appliance.base.prng import Prng
from appliance.cores.raft import election, membership, replication, requests, snapshots
from appliance.cores.raft.effects import MEMBER, OUT, Beat, Saved
from appliance.cores.raft.hint import LeaderHint
from appliance.cores.raft.idle import idle_ticks
from appliance.cores.raft.member import LEADER, Member
from appliance.cores.raft.progress import Progress
from appliance.cores.raft.settings import Settings
from appliance.formats.raft_legacy.configuration import Configuration, Server
from appliance.formats.raft_legacy.frame import (
    ADD_SERVER,
    ADMINISTRATIVE,
    ANSWER_OF,
    APPEND_ENTRIES,
    CLIENT_REQUEST,
    INSTALL_SNAPSHOT,
    JOIN_CLUSTER,
    LEAVE_CLUSTER,
    NOBODY,
    PRE_VOTE,
    REMOVE_SERVER,
    REQUEST_VOTE,
    SYNC_LOG,
    Request,
    Response,
)

Handler = Callable[[Member, int, Request], None]


def _on_append(m: Member, token: int, request: Request) -> None:
    if reason := _leads_wrongly(m, request):
        m.refuse(token, reason)
    else:
        replication.on_append(m, token, request)


def _leads_wrongly(m: Member, request: Request) -> str:
    """Why this sender cannot be our leader, a word: in one term one member leads."""
    if membership.is_stranger(m, request):
        return "leader_of_another_farm"
    known = m.role != LEADER and m.leader not in (NOBODY, request.source)
    return "second_leader_of_term" if known and request.term == m.term else ""


def _on_install(m: Member, token: int, request: Request) -> None:
    if request.term < m.term:
        m.answer(token, request, accepted=False, next_index=0)
        return
    if request.term == m.term and m.role == LEADER:
        m.refuse(token, "second_leader")
        return
    if reason := _leads_wrongly(m, request):
        m.refuse(token, reason)
        return
    replication.hear_leader(m, request)
    snapshots.on_install(m, token, request)


HANDLERS: dict[int, Handler] = {
    REQUEST_VOTE: lambda m, token, request: election.on_request_vote(m, token, request),
    PRE_VOTE: lambda m, token, request: election.on_pre_vote(m, token, request),
    APPEND_ENTRIES: _on_append,
    CLIENT_REQUEST: lambda m, token, request: requests.on_client_request(m, token, request),
    ADD_SERVER: lambda m, token, request: membership.on_change(m, token, request),
    REMOVE_SERVER: lambda m, token, request: membership.on_change(m, token, request),
    SYNC_LOG: lambda m, token, request: membership.on_sync(m, token, request),
    JOIN_CLUSTER: lambda m, token, request: membership.on_join(m, token, request),
    LEAVE_CLUSTER: lambda m, token, request: membership.on_leave(m, token, request),
    INSTALL_SNAPSHOT: _on_install,
}


@dataclass(slots=True, frozen=True)
class PeerStatus:
    id: int
    endpoint: str
    connected: bool
    match: int
    next: int
    heard_ticks: int | None  # since its last answer; None: never


@dataclass(slots=True, frozen=True)
class Status:
    """For people: `docs/farm.md` tells what the words mean."""

    id: int
    role: str
    standing: str
    term: int
    leader: int
    commit: int
    last: int
    snapshot: int
    configuration_index: int
    servers: tuple[Server, ...]
    peers: tuple[PeerStatus, ...]
    change: str


class Node:
    """One member. After any inputs, `take` gives the effects since the last time."""

    def __init__(
        self,
        *,
        id: int,
        settings: Settings,
        prng: Prng,
        saved: Saved,
        configured: Configuration,
        snapshot_fits: Callable[[bytes], bool] = bool,
    ) -> None:
        """`configured`: whom a first start lists, empty for a joiner. `snapshot_fits`: whether the
        application takes a snapshot's content for whole."""
        self.member = Member(
            id=id,
            settings=settings,
            prng=prng,
            saved=saved,
            configured=configured,
            snapshot_fits=snapshot_fits,
        )

    # --- inputs -----------------------------------------------------------------------------------

    def on_ticks(self, ticks: int) -> None:
        """So many, with no other input between them; those with which nothing is due only count."""
        idle = min(idle_ticks(self.member), ticks - 1) if ticks > 1 else 0
        self.member.tick += idle
        for _ in range(ticks - idle):
            self.on_tick()

    def on_tick(self) -> None:
        m = self.member
        m.tick += 1
        if m.standing == OUT:
            return
        for peer in list(m.peers.values()):
            if peer.flight and m.tick - peer.flight[0][1] >= m.settings.election_ticks_max:
                replication.hang_up(m, peer, "call_timeout")
        if m.role == LEADER:
            replication.lead(m)
            if m.role == LEADER:
                membership.drive(m)
        elif m.leaving:
            if m.tick - m.election.timer_tick >= 2 * m.settings.election_ticks_max:
                membership.end_silence(m)
        elif m.tick - m.election.timer_tick >= m.election.timeout:
            election.on_timeout(m)

    def on_request(self, token: int, request: Request) -> None:
        """A request whose sender may send it; `token` names it in Answer or Refuse."""
        m = self.member
        if m.standing == OUT:
            m.refuse(token, "out_of_the_farm")
            return
        if request.type not in ADMINISTRATIVE:
            if request.destination != m.id:
                m.refuse(token, "destination_wrong")
                return
            if request.source == m.id:
                m.refuse(token, "source_is_us")
                return
            if request.term - m.term > FARM_TERM_JUMP_MAX:
                m.refuse(token, "term_jump")
                return
            if m.leaving and request.type in (REQUEST_VOTE, APPEND_ENTRIES):
                m.restart_timer()
        HANDLERS[request.type](m, token, request)

    def on_connected(self, peer_id: int, *, pre_vote: bool) -> None:
        """Our connection to a peer is logged in; `pre_vote`: whether that feature is agreed."""
        peer = self.member.peers.get(peer_id)
        if peer is None:
            return
        assert not peer.flight
        peer.connected, peer.pre_vote = True, pre_vote
        if self.member.role == LEADER:
            replication.feed(self.member, peer)
            membership.drive(self.member)
        else:
            election.ask(self.member, peer)

    def on_hint(self, index: int, members: tuple[Server, ...]) -> None:
        """A peer told, as we logged in, which Configuration is committed there: who was taken out
        while nobody could tell it, or has missed it, learns so."""
        m = self.member
        known = index <= m.log.configuration_at(m.commit)[0]
        if known or m.standing != MEMBER or m.role == LEADER:
            return
        if m.id not in {server.id for server in members}:
            m.depart()

    def on_disconnected(self, peer_id: int) -> None:
        """It is gone, with all answers that were on their way."""
        peer = self.member.peers.get(peer_id)
        if peer is not None:
            self.member.lose(peer)

    def on_response(self, peer_id: int, response: Response) -> None:
        """The next answer on our connection to a peer."""
        m = self.member
        peer = m.peers.get(peer_id)
        if peer is None or not peer.connected:
            return
        if not peer.flight:
            replication.hang_up(m, peer, "answer_unasked")
            return
        request, _, number = peer.flight.popleft()
        if response.type != ANSWER_OF[request.type]:
            replication.hang_up(m, peer, "answer_of_another_type")
            return
        if response.term - m.term > FARM_TERM_JUMP_MAX:
            replication.hang_up(m, peer, "term_jump")
            return
        peer.heard_tick = m.tick
        if response.term > m.term:
            if peer.learner:  # no member: what it thinks of terms ends the join, not our leadership
                membership.drop_join(m, "join_term_higher")
            else:
                m.take_over(response.term)
            return
        if request.type == APPEND_ENTRIES and response.term == request.term == m.term:
            peer.heard_sent = number
        self._route(peer, request, response)

    def _route(self, peer: Progress, request: Request, response: Response) -> None:
        m = self.member
        if request.type == REQUEST_VOTE:
            election.on_vote_response(m, peer, request, response)
        elif request.type == PRE_VOTE:
            election.on_pre_vote_response(m, peer, request, response)
        elif request.type == CLIENT_REQUEST:
            election.on_probe_response(m, peer, response)
        elif request.type == APPEND_ENTRIES:
            replication.on_append_response(m, peer, request, response)
        elif request.type == JOIN_CLUSTER:
            membership.on_join_response(m, peer, request, response)
        elif request.type == SYNC_LOG:
            membership.on_sync_response(m, peer, request, response)
        elif request.type == INSTALL_SNAPSHOT:
            membership.on_install_response(m, peer, request, response)
        else:
            membership.on_leave_response(m, peer, request, response)
        if m.role == LEADER:
            membership.drive(m)
            requests.confirm_reads(m)
            requests.prompt_all(m)

    def on_read(self, token: int) -> None:
        """Somebody wants to know what is current; Readable names the entry to wait for."""
        requests.on_read(self.member, token)

    def on_snapshot(self, index: int, data: bytes) -> None:
        """What MakeSnapshot asked for: the application's state after the entry `index`."""
        self.member.on_snapshot(index, data)

    def note_commit(self) -> None:
        """Write down how far the log is committed; else only other writes take it along."""
        self.member.save()

    def yield_leadership(self) -> bool:
        """Lead no more and do not stand for two election timeouts; False: we do not lead."""
        m = self.member
        if m.role != LEADER:
            return False
        m.election.stand_tick = m.tick + 2 * m.settings.election_ticks_max
        m.follow(-1)
        return True

    # --- outputs ----------------------------------------------------------------------------------

    def take(self) -> Beat:
        """All effects since the last call."""
        beat, self.member.beat = self.member.beat, Beat()
        return beat

    @property
    def peers(self) -> dict[int, str]:
        """id -> endpoint of everybody to whom a connection is to be held."""
        return {peer.id: peer.endpoint for peer in self.member.peers.values()}

    def hint(self) -> LeaderHint:
        """What a client may be told of who leads."""
        m = self.member
        index, configuration = m.log.configuration_at(m.commit)
        return LeaderHint(m.leader, configuration.servers, index)

    def status(self) -> Status:
        m = self.member
        index, configuration = m.newest
        return Status(
            id=m.id,
            role=m.role,
            standing=m.standing,
            term=m.term,
            leader=m.leader,
            commit=m.commit,
            last=m.log.last,
            snapshot=m.log.snapshot_index,
            configuration_index=index,
            servers=configuration.servers,
            peers=tuple(
                PeerStatus(
                    peer.id,
                    peer.endpoint,
                    peer.connected,
                    peer.match,
                    peer.next,
                    m.tick - peer.heard_tick if peer.heard_tick >= 0 else None,
                )
                for peer in m.peers.values()
            ),
            change="" if m.change is None else type(m.change).__name__.lower(),
        )
