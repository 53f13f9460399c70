"""The other end: a registered session that has at most one request in flight and follows the
primary.

An edge owns a few of these per shard. A retry repeats the canonical bytes of its request, so the
group knows it by digest; a request lost with its session (eviction) is the edge's to send again:
the rooms deduplicate.
"""

from typing import Any

from appliance.base.prng import Prng
from appliance.cores.vsr.timeout import Timeout
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import SESSION_BLOCK_SIZE, Geometry
from appliance.formats.group import Configuration
from appliance.formats.membership import decode_configuration
from appliance.formats.site import Shard, Site

REQUEST_TICKS = 10  # first patience; doubled with jitter up to
REQUEST_TICKS_MAX = 500
PING_TICKS = 300
RETRIES_AT_ONE_REPLICA = 2  # then the next replica is tried


class Client:
    """Effects: ("send", replica_id, header, body), ("reply", results, header), ("registered",),
    ("evicted", reason, told). `members` are the ids of the group as the caller knows it, those that
    vote first; which of them serve, and who else, the group tells by and by.
    """

    def __init__(
        self,
        *,
        client_id: bytes,
        cluster: bytes,
        shard: int,
        replica_count: int,
        geometry: Geometry,
        prng: Prng,
        members: tuple[bytes, ...],
    ) -> None:
        assert 1 <= replica_count <= len(members)
        assert len(client_id) == 16
        assert any(client_id)
        self.client_id = client_id
        self.cluster = cluster
        self.shard = shard
        self.replica_count = replica_count
        self.members = members
        self.members_op = 0  # of the change that made them
        self.configuration: Configuration | None = None  # once a replica has told it
        self.geometry = geometry
        self.prng = prng
        self.effects: list[tuple[Any, ...]] = []
        self.view = 0
        self.epoch = 0
        self.session = 0
        self.request_number = 0
        self.reply_digest = bytes(16)
        self.in_flight: tuple[Header, bytes | memoryview] | None = None
        self.target = members[0]  # the request goes there
        self.tries = 0
        self.connected: set[bytes] = set()  # also such as are no members, or not yet
        self.timeout = Timeout(REQUEST_TICKS)
        self.ping_timeout = Timeout(PING_TICKS)
        self.ping_timeout.start()
        self.ticks = 0
        self._register()

    @property
    def ready(self) -> bool:
        """Registered, and nothing in flight."""
        return self.session > 0 and self.in_flight is None

    # --- inputs

    def request(
        self, operation: int, body: bytes | bytearray | memoryview, record_count: int
    ) -> None:
        """Send `record_count` records; the answer is a "reply" effect with one result each."""
        self._start(operation, ses.encode(self._next_block(record_count)) + body)

    def request_uncopied(self, operation: int, body: memoryview, record_count: int) -> None:
        """As `request`, without a copy: `body` begins with room for the session's block, and stays
        as it is until the reply or an eviction. Whoever performs a "send" takes its bytes then."""
        assert len(body) >= SESSION_BLOCK_SIZE
        ses.encode_into(body, self._next_block(record_count))
        self._start(operation, body)

    def _next_block(self, record_count: int) -> ses.SessionBlock:
        assert self.ready
        assert 0 <= record_count <= self.geometry.records_max
        self.request_number += 1
        assert self.request_number >= 1
        return ses.SessionBlock(
            self.client_id, self.session, record_count, self.reply_digest, bytes(16), bytes(32)
        )

    def on_message(self, message: Message) -> None:
        """A reply, eviction or pong_client of a replica."""
        header = message.header
        if header.cluster != self.cluster or header.shard != self.shard:
            return
        if header.command == env.REPLY:
            self._on_reply(message)
        elif header.command == env.EVICTION and cmd.client_of(message) == self.client_id:
            self._on_eviction(header)
        elif header.command == env.PONG_CLIENT and cmd.client_of(message) == self.client_id:
            self._learn_members(message.body)
            if header.epoch == self.epoch:
                self._learn_view(header)

    def on_connected(self, replica_id: bytes) -> None:
        """Say who lives on this connection; send again what was in flight if it goes there."""
        self.connected.add(replica_id)
        assert len(replica_id) == 16
        self._ping(replica_id)
        if self.in_flight is not None and replica_id == self.target:
            self._send()

    def on_disconnected(self, replica_id: bytes) -> None:
        """Do not wait for a dead replica: ask the others who is primary."""
        self.connected.discard(replica_id)
        if replica_id == self.target and self.in_flight is not None:
            self._next_target()
            self._send()
        self.ask_all()

    def on_tick(self) -> None:
        self.ticks += 1
        if self.timeout.fired():
            self.tries += 1
            if self.tries % RETRIES_AT_ONE_REPLICA == 0:
                self._next_target()
            self.timeout.backoff(base=REQUEST_TICKS, most=REQUEST_TICKS_MAX, prng=self.prng)
            self._send()
        if self.ping_timeout.fired():
            self.ping_timeout.reset()
            self.ask_all()

    # --- inside

    def _register(self) -> None:
        self.session = 0
        self.request_number = 0
        self.reply_digest = bytes(16)
        block = ses.SessionBlock(self.client_id, 0, 0, bytes(16), bytes(16), bytes(32))
        self._start(env.OPERATION_REGISTER, ses.encode(block))

    def _start(self, operation: int, body: bytes | memoryview) -> None:
        assert len(body) >= SESSION_BLOCK_SIZE
        assert self.request_number >= 0
        header = env.make(
            env.REQUEST,
            cluster=self.cluster,
            shard=self.shard,
            epoch=self.epoch,
            operation=operation,
            view=self.view,
            aux=self.request_number,
            body=body,
        )
        self.in_flight = (header, body)
        self.tries = 0
        self.target = self._primary
        self.timeout.start(REQUEST_TICKS)
        self._send()

    @property
    def _primary(self) -> bytes:
        return self.members[self.view % self.replica_count]

    def _send(self) -> None:
        if self.in_flight is None:
            return
        if self.connected and self.target not in self.connected:
            self._next_target()
        header, body = self.in_flight
        assert header.command == env.REQUEST
        assert header.cluster == self.cluster
        self.effects.append(("send", self.target, header, body))

    def _next_target(self) -> None:
        """The next of those that vote, in their order; one that is connected, if any is."""
        assert 0 < self.replica_count <= len(self.members)
        voters = self.members[: self.replica_count]
        member_index = voters.index(self.target) if self.target in voters else -1
        for step in range(1, self.replica_count + 1):
            candidate = voters[(member_index + step) % self.replica_count]
            if candidate in self.connected or not self.connected:
                self.target = candidate
                return

    def _on_reply(self, message: Message) -> None:
        block = ses.decode(message.body)
        if block is None or self.in_flight is None or block.client != self.client_id:
            return
        header, _ = self.in_flight
        assert header.aux == self.request_number
        if block.request_digest != header.digest:
            return
        self.in_flight = None
        self.timeout.stop()
        assert self.in_flight is None
        self.reply_digest = message.header.digest
        if message.header.epoch == self.epoch and message.header.view > self.view:
            self.view = message.header.view
        if header.operation == env.OPERATION_REGISTER:
            self.session = message.header.op
            assert self.request_number == 0
            self.effects.append(("registered",))
        else:
            self.effects.append(("reply", message.body[SESSION_BLOCK_SIZE:], message.header))

    def _on_eviction(self, header: Header) -> None:
        if cmd.Eviction.session(header.area) != self.session:
            return
        assert cmd.Eviction.client(header.area) == self.client_id
        self.effects.append(("evicted", header.aux, header.op))
        self._register()

    def _learn_members(self, body: bytes | memoryview) -> None:
        """A newer configuration of the group. Who is connected says who lives there, so that also
        those who were no members, or had no vote, learn of the session.
        """
        learned = decode_configuration(body)
        if learned is None or learned.epoch < self.epoch:
            return
        if self.configuration is None or learned.op > self.configuration.op:
            self.configuration = learned
        if learned.op <= self.members_op:
            return
        assert learned.epoch >= self.epoch
        assert learned.op > self.members_op
        changed = self.members != learned.members
        self.members = learned.members
        self.members_op, self.replica_count = learned.op, learned.replica_count
        if learned.epoch > self.epoch:
            self.epoch, self.view = learned.epoch, 0
        if self.target not in self.members[: self.replica_count]:
            self.target = self._primary
        if changed:
            self.ask_all()

    def _learn_view(self, header: Header) -> None:
        """A newer primary is asked at once: waiting for a timer would be the longest part of an
        outage.
        """
        if header.view < self.view:
            return
        newer = header.view > self.view
        announced = not cmd.PongClient.echo_ns(header.area)
        assert header.view >= self.view
        self.view = header.view
        if self.in_flight is not None and (newer or announced):
            self.target = self._primary
            self.timeout.start(REQUEST_TICKS)
            self._send()

    def ask_all(self) -> None:
        """Ask everybody who is connected which view and members serve. Those who vote now need not
        be among those who voted when we learned the members, and only they answer.
        """
        known = [replica_id for replica_id in self.members if replica_id in self.connected]
        others = sorted(self.connected.difference(known))
        assert len(known) + len(others) == len(self.connected)
        for replica_id in (*known, *others):
            self._ping(replica_id)

    def _ping(self, replica_id: bytes) -> None:
        header = env.make(
            env.PING_CLIENT,
            cluster=self.cluster,
            shard=self.shard,
            epoch=self.epoch,
            op=self.session,
            area=cmd.PingClient.pack(self.client_id, max(1, self.ticks * 10_000_000)),
        )
        self.effects.append(("send", replica_id, header, b""))


def new_client(site: Site, shard: Shard, geometry: Geometry, prng: Prng) -> Client:
    """A client of `shard`, as the site file describes it, under an id of its own."""
    return Client(
        client_id=prng.bytes(16),
        cluster=site.cluster,
        shard=shard.number,
        replica_count=shard.replica_count,
        geometry=geometry,
        prng=prng.fork(),
        members=tuple(shard.replica_ids),
    )
