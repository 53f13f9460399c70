"""Sites for tests: carriers with stores and links on loopback, and logs that commit late."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.cores.federation.channel import Channel
from appliance.cores.federation.exchange import SEND, Exchange, Member
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.parameters import Parameters
from appliance.drivers.network.quic_links.quic_link import Identity
from appliance.drivers.network.stream.acceptor import Acceptor
from appliance.drivers.network.stream.dialler import Dialler
from appliance.drivers.network.tls import client_context, server_context
from appliance.formats.causal.content import RoomMessage, open_content, seal
from appliance.roles.federation.carrier import Carrier
from appliance.roles.federation.datagrams import Peer, QuicPort
from appliance.roles.federation.store import LmdbChannelStore
from tests.cores.federation.participants import DATAGRAMS
from tests.drivers.network.site import TestNode, make_node
from tests.roles.federation.lossy import LossyWay

ROOM = "general"
QUICK = Parameters(
    verify_ids=True,
    sync_interval_ms=1_000,
    sync_reply_ms=100,
    resend_ms_min=300,
    resend_ms_max=2_000,
    store_delay_ms=50,
    repair_ms_min=500,
    repair_ms_max=2_000,
)

LOSSY = replace(
    DATAGRAMS,
    verify_ids=True,
    resend_ms_min=100,
    resend_ms_max=400,
    resend_attempts_max=0,
    sync_interval_ms=300,
    sync_reply_ms=50,
    store_delay_ms=50,
)


PAUSE_S, PAUSES_PER_COST = 0.003, 5  # between two looks at a condition


class SlowLog:
    """A site's log: what is offered is committed a moment later, while there is a quorum."""

    def __init__(self, site: "Site") -> None:
        self.site = site
        self.records: list[LogRecord] = []
        self.ids: set[str] = set()
        self.offered: list[LogRecord] = []
        self.quorum = True

    def append(self, channel: str, due: told.Append) -> None:
        assert channel == ROOM
        self.offered.append(LogRecord(0, due.content, due.sender, due.message_id, due.lamport))
        asyncio.get_running_loop().call_later(0.005, self.commit)

    def commit(self) -> None:
        if not self.quorum:
            return
        fresh = []
        for record in self.offered:
            if record.message_id not in self.ids:
                self.ids.add(record.message_id)
                fresh.append(replace(record, timestamp_ms=self.site.timestamp_ms()))
        self.offered.clear()
        self.records += fresh
        self.site.take_records()


class Site:
    """One site. `taken` is how much of the log its channel has, kept where the log is."""

    def __init__(self, folder: Path, number: int, count: int) -> None:
        self.name = f"site-{number}"
        self.folder = folder / self.name
        self.folder.mkdir(exist_ok=True)
        self.node: TestNode = make_node(self.folder, number)
        self.number, self.count = number, count
        self.log = SlowLog(self)
        self.taken = self.posted = 0
        self.port = 0
        self.clock = 0
        self.carrier: Carrier | None = None
        self.events: list[told.Effect] = []
        self.counters: Counter[str] = Counter()
        self.rights = {f"site-{n}": SEND for n in range(count)}
        self.diallers: list[Dialler] = []
        self.parameters = QUICK

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def timestamp_ms(self) -> int:
        """The primary's: strictly increasing in the log."""
        self.clock = max(self.clock + 1, self.now_ms())
        return self.clock

    @property
    def channel(self) -> Channel:
        assert self.carrier is not None
        return self.carrier.exchange.shared[ROOM].channel

    async def start(self, sites: list["Site"], linked: list[int]) -> None:
        """Take the channel up, listen, and dial those of `linked` that have a smaller number."""
        store = LmdbChannelStore(self.folder / "channel")
        now = self.now_ms()
        channel = Channel(
            me=self.name,
            channel=ROOM,
            parameters=self.parameters,
            prng=Prng(now),
            store=store,
            now_ms=now,
        )
        members = {
            site.name: Member(site.node.key.public, self.rights[site.name]) for site in sites
        }
        exchange = Exchange(self.name)
        exchange.share(ROOM, channel, members, now)
        self.carrier = Carrier(
            exchange,
            {ROOM: store},
            self.log,
            now_ms=self.now_ms,
            tell=lambda name, event: self.events.append(event),
        )
        self.carrier.start({ROOM: channel.open(now)})
        self.taken = self.carrier.position(ROOM)
        self.take_records()
        await self._listen([site.node for site in sites])
        for number in linked:
            if number < self.number:
                await self._dial(sites[number])

    async def _listen(self, known: list[TestNode]) -> None:
        context = server_context(
            self.node.certificate, self.node.private, [node.pem for node in known]
        )
        assert self.carrier is not None
        self.acceptor = Acceptor(
            self.carrier.make_codec,
            context=context,
            pins={node.spki: f"site-{node.index}" for node in known},
            counters=self.counters,
        )
        await self.acceptor.start("127.0.0.1", self.port)
        self.port = self.acceptor.port

    async def _dial(self, other: "Site") -> None:
        assert self.carrier is not None
        node = other.node
        dialler = Dialler(
            self.carrier.make_codec,
            "127.0.0.1",
            other.port,
            context=client_context(self.node.certificate, self.node.private, [node.pem]),
            pins={node.spki: other.name},
            prng=Prng(self.number),
            counters=self.counters,
        )
        dialler.start()
        self.diallers.append(dialler)

    def take_records(self) -> None:
        if self.carrier is not None:
            position = len(self.log.records)
            records = self.log.records[self.taken :]
            self.taken = position
            self.carrier.on_records(ROOM, records, position)

    def post(self, text: str) -> None:
        """Somebody at this site says something."""
        self.write(text)
        self.take_records()

    def write(self, text: str) -> None:
        """The same, into the log only; nothing else may be going on."""
        self.posted += 1
        stamp = self.timestamp_ms()
        message = RoomMessage(
            kind=0,
            msg_id=self.number.to_bytes(8, "big") + self.posted.to_bytes(8, "big"),
            author_id=self.number,
            author=self.name,
            time_us=stamp * 1000,
            seq=self.posted,
            body=text.encode(),
        )
        lamport = max(stamp, self.channel.state.clock + 1)
        place = {"channel": ROOM, "site": self.name, "lamport": lamport}
        content = seal(message, self.node.key, **place)
        self.log.records.append(LogRecord(lamport, content))

    def texts(self, sites: list["Site"]) -> list[tuple[str, str]]:
        """(site, text) of the whole log, in its order; every signature is checked."""
        found = []
        for lamport, message_id in self.channel.order():
            row = self.channel.state.row_of(message_id)
            assert row is not None
            content = self.channel.state.content_of(message_id)
            key = next(site.node.key.public for site in sites if site.name == row.sender)
            place = {"channel": ROOM, "site": row.sender, "lamport": lamport}
            opened = open_content(content, key, **place)
            found.append((opened.author, opened.body.decode()))
        return found

    async def _hang_up(self) -> None:
        for dialler in self.diallers:
            await dialler.close()
        self.diallers.clear()
        await self.acceptor.close()

    async def stop(self) -> None:
        if self.carrier is None:
            return
        await self._hang_up()
        self.carrier.close()
        for store in self.carrier.stores.values():
            store.close()
        self.carrier = None
        self.log.offered.clear()


class QuicSite(Site):
    """The same over QUIC; each dialled link goes a way that loses `loss` of its datagrams."""

    loss = 0.0

    def __init__(self, folder: Path, number: int, count: int) -> None:
        super().__init__(folder, number, count)
        self.parameters = LOSSY
        self.ways: list[LossyWay] = []

    async def _listen(self, known: list[TestNode]) -> None:
        assert self.carrier is not None
        self.quic = QuicPort(
            self.carrier,
            Identity(self.name, self.node.key, self.node.spki),
            {f"site-{node.index}": node.key.public for node in known},
            certificate=self.node.certificate,
            private_key=self.node.private,
            prng=Prng(self.number),
        )
        await self.quic.start("127.0.0.1", self.port)
        self.port = self.quic.port

    async def _dial(self, other: Site) -> None:
        way = LossyWay(other.port, self.loss, self.number)
        await way.start()
        self.ways.append(way)
        self.quic.keep(Peer(other.name, ("127.0.0.1", way.port), other.node.spki))

    async def _hang_up(self) -> None:
        self.quic.close()
        for way in self.ways:
            way.close()
        self.ways.clear()


async def until(
    holds: Callable[[], bool], within_s: float = 150, tell: Callable[[], str] = str
) -> None:
    """`tell` says how it is when it does not come to that."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                asked = time.monotonic()
                if holds():
                    return
                cost_s = time.monotonic() - asked  # looking at stores flushes them
                await asyncio.sleep(max(PAUSE_S, PAUSES_PER_COST * cost_s))
    except TimeoutError as error:
        raise TimeoutError(f"not within {within_s} s: {tell()}") from error


def figures(sites: list[Site]) -> str:
    """How far each is, a line a site."""
    return "".join(
        f"\n{site.name}: {site.channel.statistics()} {dict(site.quic.endpoint.counters)} "
        f"links {len(site.quic.numbers)}"
        if isinstance(site, QuicSite)
        else f"\n{site.name}: {site.channel.statistics()}"
        for site in sites
    )


def equal(sites: list[Site], count: int) -> bool:
    """Whether every log has all of them in one order, and nobody waits for anything."""
    orders = [site.channel.order() for site in sites]
    if any(order != orders[0] or len(order) != count for order in orders):
        return False
    held = [site.channel.statistics() for site in sites]
    return not any(
        (one.outgoing, one.backlog, one.waiting, one.ready, one.wanted) != (0,) * 5 for one in held
    )
