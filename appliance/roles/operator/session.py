"""A session of the log for one command: links to all members of a shard, one request at a time."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

from appliance.base.errors import StorageError
from appliance.base.prng import Prng
from appliance.cores.vsr import log_sessions as logs
from appliance.cores.vsr.client import new_client
from appliance.cores.vsr.evictions import EVICTION_REASONS, EVICTIONS_LASTING
from appliance.cores.vsr.log_sessions import LogSessions
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import TLS_CERTIFICATE_FILE, TLS_KEY_FILE, NodeFolder
from appliance.drivers.network.checks import Checks, NonceWindow, Sender
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.link import Connection, Link, Secured
from appliance.drivers.network.tls import client_context
from appliance.drivers.terminal.waiting import Waiting
from appliance.formats.command import COMMANDS_TO_CLIENT
from appliance.formats.envelope import PONG_CLIENT, SENDER_CLIENT, Message
from appliance.formats.geometry import PRODUCTION
from appliance.formats.group import Configuration
from appliance.formats.site import Shard

POLL_S = 0.02

# Of a reason why a primary ended a session (`cores/vsr/normal`), and what it told with it: why the
# operation is refused, in words. Empty: it is not, and may be asked for anew.
Refusal = Callable[[int, int], str]


def _none(reason: int, told: int) -> str:
    return ""


class OperatorSession:
    """`async with` it. `node` need not hold a volume: its keys are enough. A command names
    itself by `verb`, and what lasts is told."""

    def __init__(self, node: NodeFolder, shard: Shard, verb: str = "") -> None:
        self._node, self._shard = node, shard
        self._waiting = Waiting(verb) if verb else None
        self._tick_s = node.site.tick_ms / 1000
        prng = Prng(clock.seed())
        self._sessions = LogSessions()
        self._session = self._sessions.open(new_client(node.site, shard, PRODUCTION, prng))
        self._signer = Signer(
            sender=SENDER_CLIENT, key=node.signing_key, incarnation=clock.realtime_us() // 1_000_000
        )
        self._counters: Counter[str] = Counter()
        self._drops: Counter[str] = Counter()
        self._answer: asyncio.Future[bytes] | None = None
        self._refusal: Refusal = _none
        self._what = ""  # is asked
        self.commit = -1  # the newest op that a replica says it has applied; -1: none answered
        # by the id of the replica at the other end
        self._links = {
            replica_id: self._link(index, prng)
            for replica_id, index in zip(shard.replica_ids, shard.members, strict=True)
        }

    def _link(self, index: int, prng: Prng) -> Link:
        site, path = self._node.site, self._node.path
        other = site.nodes[index]
        context = client_context(
            path / TLS_CERTIFICATE_FILE,
            path / TLS_KEY_FILE,
            self._node.view.anchors,
        )
        return Link(
            self,
            host=other.host,
            port=other.peer_port + self._shard.number,
            secured=Secured(context, server_side=False, pins={other.spki: index}),
            message_size_max=PRODUCTION.message_size_max,
            prng=prng.fork(),
            counters=self._counters,
        )

    async def __aenter__(self) -> "OperatorSession":
        if self._waiting is not None:
            self._waiting.__enter__()
        for link in self._links.values():
            link.start()
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waiting is not None:
            self._waiting.__exit__()
        self._ticking.cancel()
        await asyncio.gather(*(link.close() for link in self._links.values()))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            self._sessions.on_ticks(1)
            self._perform()

    # --- what commands ask

    @property
    def view(self) -> int:
        """The newest view of the newest epoch, as far as was heard."""
        return self._session.client.view

    @property
    def configuration(self) -> Configuration:
        """The group, as it said last."""
        assert self._session.client.configuration is not None
        return self._session.client.configuration

    def greet(self) -> None:
        """Ask every member how the group is now."""
        self._sessions.ask_all()
        self._perform()

    async def poll(self, patience_s: float) -> bool:
        """Whether anybody of the group answers within this time."""
        self.waits("an answer of any member")
        return await self._until(lambda: self._session.client.configuration is not None, patience_s)

    def waits(self, what: str) -> None:
        """What the command waits for from now on."""
        if self._waiting is not None:
            self._waiting.on(f"shard {self._shard.number}: for {what}")

    async def ask(
        self,
        operation: int,
        body: bytes,
        patience_s: float,
        what: str,
        records: int = 0,
        refusal: Refusal = _none,
        *,
        again: bool = True,
    ) -> bytes:
        """The results of one operation, of so many `records`, once it is committed; StorageError
        when it cannot be, or as soon as the primary's reason not to prepare it has a `refusal`.
        When others took this session's place it is asked under a new one: `again` is false for
        what must not be carried out twice, and has nothing by which the group would know it."""
        self.waits(f"a quorum that commits {what}")
        self._refusal, self._what = refusal, what
        self._answer = asyncio.get_running_loop().create_future()
        self._sessions.ask(self._session, operation, body, records, again=again)
        self._perform()
        try:
            async with asyncio.timeout(patience_s):
                return await self._answer
        except TimeoutError:
            raise StorageError(self._hopeless(what, patience_s)) from None
        finally:
            self._answer = None
            self._sessions.withdraw(self._session)

    def _evicted(self, reason: int, told: int) -> str:
        """Why what is asked is given up at the end of this session; empty: it is asked anew."""
        if why := self._refusal(reason, told):
            return why
        if self._session.asked is not None:
            return ""
        if reason in EVICTIONS_LASTING:
            return (
                f"the primary refuses {self._what} ({EVICTION_REASONS[reason]}): its program and "
                "this one are of different versions; update the older one, then run this again"
            )
        return (
            f"the session that asked for {self._what} was ended before the answer came: it may "
            "have been done; look, then run this again if it was not"
        )

    def _hopeless(self, what: str, patience_s: float) -> str:
        there = sum(link.connected for link in self._links.values())
        return (
            f"shard {self._shard.number}: {what} could not be committed in {patience_s:.0f} s, "
            f"{there} of {len(self._links)} members can be reached: bring replicas back until a "
            "quorum works, then run this again"
        )

    async def _until(self, condition: Any, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    # --- links call

    def on_open(self, connection: Connection) -> Checks:
        assert connection.node is not None
        replica = self._shard.members.index(connection.node)
        asyncio.get_running_loop().call_soon(self._connected, self._shard.replica_ids[replica])
        return Checks(
            cluster=self._node.site.cluster,
            shard=self._shard.number,
            message_size_max=PRODUCTION.message_size_max,
            senders={replica: Sender(COMMANDS_TO_CLIENT, NonceWindow())},
            public_key=self._node.site.nodes[connection.node].public_key,
            drops=self._drops,
        )

    def _connected(self, replica_id: bytes) -> None:
        if self._links[replica_id].connected:
            self._sessions.on_connected(0, replica_id, self._links[replica_id])
            self._perform()

    def on_closed(self, connection: Connection) -> None:
        if connection.node is not None:
            self._sessions.on_gone(0, self._shard.replica_id_of(connection.node))

    def on_message(self, connection: Connection, message: Message) -> None:
        if message.header.command == PONG_CLIENT:
            self.commit = max(self.commit, message.header.op)
        self._sessions.on_message(0, message)

    def on_batch(self, connection: Connection) -> None:
        self._perform()

    def _perform(self) -> None:
        for effect in self._sessions.take_effects():
            kind, link = effect[0], effect[1]
            if kind == logs.SEND:
                if link.connected:
                    link.send(self._signer.frame(effect[2], effect[3]))
            elif self._answer is not None and not self._answer.done():
                if kind == logs.REPLY:
                    self._answer.set_result(bytes(effect[2]))
                elif kind == logs.EVICTED and (why := self._evicted(effect[2], effect[3])):
                    self._answer.set_exception(StorageError(f"shard {self._shard.number}: {why}"))

    def member(self, member_index: int) -> str:
        """A member of the group in words, with its node as far as that is known."""
        known = self._session.client.configuration
        members = known.members if known is not None else tuple(self._shard.replica_ids)
        index = self._shard.node_of(members[member_index]) if member_index < len(members) else None
        if index is not None:
            return f"replica {member_index} (node {self._node.site.nodes[index].name})"
        return f"replica {member_index}"
