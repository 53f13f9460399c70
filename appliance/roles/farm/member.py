"""One member of one farm: inputs to the core, writes flushed, then words."""

import asyncio
import dataclasses
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from appliance.base.errors import FarmBroken, FarmMemberOut
from appliance.base.prng import Prng
from appliance.cores.directory.directory import Directory, canonical, snapshot_fits
from appliance.cores.raft.dial import Challenges
from appliance.cores.raft.effects import (
    JOINING,
    MEMBER,
    OUT,
    Answer,
    Apply,
    Beat,
    Halt,
    HangUp,
    HardState,
    Leave,
    MakeSnapshot,
    Mark,
    Refuse,
    Restore,
    Send,
    Word,
)
from appliance.cores.raft.hint import LeaderHint
from appliance.cores.raft.idle import idle_ticks
from appliance.cores.raft.invitation import Invited
from appliance.cores.raft.login import Gate, decoy_of
from appliance.cores.raft.member import LEADER
from appliance.cores.raft.node import Node
from appliance.cores.raft.nonces import KEY_SIZE, Nonces
from appliance.cores.raft.settings import TICK_MS
from appliance.cores.raft.users import User
from appliance.drivers.host.ticks import Ticks
from appliance.drivers.network.farm_stream import Route
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    Server,
    endpoint_address,
)
from appliance.formats.raft_legacy.frame import (
    ANSWER_OF,
    Request,
    Response,
)
from appliance.formats.raft_legacy.refusal import refusal_of_code
from appliance.roles.farm.link import Keys, PeerLink
from appliance.roles.farm.listener import Slot, Visitor, now_ms
from appliance.roles.farm.posting import act_of, is_out, refusal_of_post, with_append_times
from appliance.roles.farm.settings import TLS, FarmSettings
from appliance.roles.farm.storage import STORE_FOLDER, FarmStorage

_NOTE_S = 1.0  # how often the commit is written down when nothing else is
_TICKS_CAUGHT_UP = 2  # of those that passed while the disk wrote; the others are forgotten


_LOUD = {  # what is logged when it is first refused
    "second_leader_of_term": "two members lead in one term: a farm goes on from old logs twice, or "
    "two farms have a member in common; look at `farm dump` of all members",
    "leader_of_another_farm": "a leader of another farm wants this member, which joins one already",
}

Input = tuple[str, object, object]


async def _no_guest(invited: Invited) -> bytes:
    return b""


class FarmMember:
    """Runs until `stop`, until it is out of the farm, or until something is broken."""

    def __init__(
        self,
        settings: FarmSettings,
        log: logging.Logger,
        on_applied: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_applied` is called when the directory has taken entries."""
        self.settings, self.log, self.on_applied = settings, log, on_applied
        self.counts: Counter[str] = Counter()
        self.storage = FarmStorage(settings.folder / STORE_FOLDER)
        self.directory = Directory(settings.farm)
        standing = JOINING if settings.join else MEMBER
        saved = self.storage.load(HardState(standing=standing))
        if saved.state.standing == OUT:
            self.storage.close()
            raise FarmMemberOut(
                f"{settings.folder}: this member was taken out of farm {settings.farm}; to let it "
                "in again, join with an empty folder"
            )
        servers = () if settings.join else (Server(settings.id, settings.endpoint), *settings.peers)
        ordered = tuple(sorted(servers))
        self.node = Node(
            id=settings.id,
            settings=settings.raft,
            prng=Prng(int.from_bytes(os.urandom(8), "little")),
            saved=saved,
            configured=Configuration(0, 0, ordered),
            snapshot_fits=snapshot_fits,
        )
        self.keys = Keys(settings.farm, settings.credentials(), Challenges())
        self.links: dict[int, PeerLink] = {}
        self.inbox: deque[Input] = deque()
        self.wake = asyncio.Event()
        self.owed = 0  # ticks that have passed and that the core was not told
        self.ticks = Ticks(
            TICK_MS / 1000,
            idle=lambda: idle_ticks(self.node.member),
            count=self._owe,
            woke=self.wake.set,
        )
        self.tokens: dict[int, tuple[Visitor, Slot]] = {}
        self.acts: dict[int, dict[str, Any]] = {}  # of administrators, by token, while we lead
        self.on_act: Callable[[dict[str, Any], str], None] = self._log_act
        self.token = 0
        self.disk = ThreadPoolExecutor(1, thread_name_prefix="farm-disk")
        self.stopping = False
        self.on_guest: Callable[[Invited], Awaitable[bytes]] = _no_guest

    def gate(self) -> Gate:
        """This farm at the door; its key is new with each start, so older nonces are stale."""
        settings = self.settings
        return Gate(
            farm=settings.farm,
            realm=settings.realm,
            users={user.name: user for user in settings.users},
            nonces=Nonces(os.urandom(KEY_SIZE)),
            decoy=decoy_of(os.urandom(32)),
            opaque=os.urandom(8).hex(),
            algorithms=settings.algorithms,
        )

    # --- inputs, from connections -----------------------------------------------------------------

    def _put(self, kind: str, first: object, second: object) -> None:
        self.inbox.append((kind, first, second))
        self.wake.set()

    def on_request(self, visitor: Visitor, request: Request) -> None:
        slot: Slot = [None]
        visitor.slots.append(slot)
        self._put("request", (visitor, slot), request)

    def on_link_open(self, link: PeerLink, pre_vote: bool, hint: LeaderHint | None) -> None:
        self._put("open", link, (pre_vote, hint))

    def on_link_response(self, link: PeerLink, response: Response) -> None:
        self._put("response", link, response)

    def on_link_closed(self, link: PeerLink) -> None:
        self._put("closed", link, None)

    # --- the beat ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop`. FarmMemberOut, FarmBroken, StorageError: it can not go on."""
        note_due = time.monotonic() + _NOTE_S
        try:
            await self._perform(self.node.take())
            self.ticks.start()
            while not self.stopping:
                await self.wake.wait()
                self.wake.clear()
                self.ticks.catch_up()
                self._take_time()
                if time.monotonic() >= note_due:
                    note_due = time.monotonic() + _NOTE_S
                    self.node.note_commit()
                while self.inbox:
                    self._feed(*self.inbox.popleft())
                await self._perform(self.node.take())
                self.owed = min(self.owed, _TICKS_CAUGHT_UP)
                self.ticks.plan()
            self.node.note_commit()
            await self._perform(self.node.take())
        finally:
            self.ticks.stop()
            for link in list(self.links.values()):
                await link.close()
            self.disk.shutdown()
            self.storage.close()

    def _owe(self, ticks: int) -> None:
        self.owed += ticks

    def _take_time(self) -> None:
        owed, self.owed = self.owed, 0
        self.node.on_ticks(owed)

    def _feed(self, kind: str, first: object, second: object) -> None:
        if kind == "request":
            assert isinstance(first, tuple)
            assert isinstance(second, Request)
            visitor, slot = first
            self._feed_request(visitor, slot, second)
            return
        assert isinstance(first, PeerLink)
        if self.links.get(first.peer) is not first:
            return  # of a link that is gone
        if kind == "open":
            assert isinstance(second, tuple)
            pre_vote, hint = second
            self.node.on_connected(first.peer, pre_vote=pre_vote)
            if isinstance(hint, LeaderHint):
                self.node.on_hint(hint.index, hint.members)
        elif kind == "response":
            assert isinstance(second, Response)
            self.node.on_response(first.peer, second)
        else:
            self.node.on_disconnected(first.peer)

    def _feed_request(self, visitor: Visitor, slot: Slot, request: Request) -> None:
        if visitor.closed:
            return
        now = now_ms()
        users = self.settings.users
        code = refusal_of_post(self.directory, visitor.user, users, request, now)
        act = act_of(visitor.user, request)
        out = is_out(self.directory, visitor.user, request)
        if code or out:
            self.counts["added_departed" if out else refusal_of_code(code).word] += 1
            member = self.node.member
            kind = ANSWER_OF[request.type]
            response = Response(kind, member.id, member.leader, member.term, 0, False, code)
            visitor.answer(slot, response)
            return
        if self.node.member.role == LEADER:
            request = with_append_times(self.directory, self.settings.id, request, now)
        self.token += 1
        self.tokens[self.token] = (visitor, slot)
        if act is not None and self.node.member.role == LEADER:
            self.acts[self.token] = act
        self.node.on_request(self.token, request)

    async def _perform(self, beat: Beat) -> None:
        """Write, flush, speak; again while the words made more."""
        while beat.writes or beat.words:
            if beat.writes:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self.disk, self.storage.perform, beat.writes)
            for word in beat.words:
                self._speak(word)
            beat = self.node.take()
        self._hold_links()

    def _speak(self, word: Word) -> None:
        if isinstance(word, Send):
            link = self.links.get(word.peer)
            if link is not None:
                link.send(word.request)
        elif isinstance(word, Answer):
            visitor, slot = self.tokens.pop(word.token)
            self._note_act(word.token, "" if word.response.accepted else "it was answered no")
            if not visitor.closed:
                visitor.answer(slot, word.response)
        elif isinstance(word, Refuse):
            visitor, _ = self.tokens.pop(word.token)
            self.counts[word.reason] += 1
            if word.reason in _LOUD and self.counts[word.reason] == 1:
                self.log.warning("farm %s: %s", self.settings.farm, _LOUD[word.reason])
            self._note_act(word.token, word.reason)
            visitor.close()
        elif isinstance(word, HangUp):
            self.counts[word.reason] += 1
            link = self.links.get(word.peer)
            if link is not None:
                link.hang_up()
        elif isinstance(word, Apply):
            self._apply(word)
        elif isinstance(word, Restore):
            snapshot = word.snapshot
            if not self.directory.restore(snapshot.index, snapshot.term, snapshot.data):
                self.log.warning("the farm's snapshot at %d is of another make", snapshot.index)
            self.on_applied()
        elif isinstance(word, MakeSnapshot):
            self._make_snapshot(word.index)
        elif isinstance(word, Mark):
            self.counts[word.name] += 1
        elif isinstance(word, Leave):
            raise FarmMemberOut(f"this member was taken out of farm {self.settings.farm}")
        elif isinstance(word, Halt):
            raise FarmBroken(f"farm {self.settings.farm}: {word.reason}; look at all members' logs")

    def _make_snapshot(self, index: int) -> None:
        """None where the state cannot be told whole: the last one stays, with what came behind."""
        data = self.directory.snapshot() if self.directory.index == index else b""
        if data:
            self.node.on_snapshot(index, data)

    def _note_act(self, token: int, outcome: str) -> None:
        act = self.acts.pop(token, None)
        if act is not None:
            self.on_act(act, outcome)

    def _log_act(self, act: dict[str, Any], outcome: str) -> None:
        self.log.info("act of an administrator: %s %s", canonical(act).decode(), outcome)

    def _apply(self, word: Apply) -> None:
        for index, entry in enumerate(word.entries, word.first):
            self.directory.take(index, entry)
        self.on_applied()

    def _hold_links(self) -> None:
        """A link to each peer, by its endpoint as the farm knows it now."""
        peers = self.node.peers
        for peer in [p for p, link in self.links.items() if peers.get(p) != link.endpoint]:
            self._drop_link(peer)
        for peer, endpoint in peers.items():
            if peer not in self.links:
                self.links[peer] = PeerLink(
                    peer=peer,
                    endpoint=endpoint,
                    route=self._route(peer, endpoint),
                    keys=self.keys,
                    owner=self,
                )

    def _drop_link(self, peer: int) -> None:
        """Have no link to a peer; the next one is another, so the core hears of the end now."""
        link = self.links.pop(peer)
        self.node.on_disconnected(peer)
        task = asyncio.get_running_loop().create_task(link.close())
        task.add_done_callback(lambda done: done.exception())

    def _route(self, peer: int, endpoint: str) -> Route:
        host, port = endpoint_address(endpoint)
        pin = self.settings.pins.get(peer, b"") if self.settings.carrier == TLS else None
        return Route(host, port, pin, self.settings.proxy, self.settings.proxy_absolute)

    def learn(self, user: User, pin: bytes) -> None:
        """Somebody else may log in now, and is dialled by this key."""
        others = [other for other in self.settings.users if other.name != user.name]
        pins = {**self.settings.pins, user.id: pin} if pin else self.settings.pins
        self.settings = dataclasses.replace(self.settings, users=(*others, user), pins=pins)
        self.renew_links()

    def renew_links(self) -> None:
        """Dial those anew of whom another key is expected by now, or one at all."""
        for peer, link in list(self.links.items()):
            if link.route != self._route(peer, link.endpoint):
                self._drop_link(peer)
        self.wake.set()

    async def welcome(self, invited: Invited) -> bytes:
        """What a guest is told; empty: it cannot be taken in."""
        return await self.on_guest(invited)

    def stop(self) -> None:
        self.stopping = True
        self.wake.set()

    def yield_leadership(self) -> bool:
        """Lead no more for a while; False: we do not lead."""
        yielded = self.node.yield_leadership()
        self.wake.set()
        return yielded

    def hint(self) -> LeaderHint:
        return self.node.hint()
