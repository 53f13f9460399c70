"""Those who ask: devices that number what they say, and edges whose sessions carry it to the shard.

A device writes to one room, record 1, 2, 3 ..., and gives up on none: what is not answered is
asked again under the same number, by whatever session carries the device then. A session is the
product's client core; it has one request in flight, made of records of its devices. Now and then a
session is lost with a request in flight, or given up because nobody answers: its devices move to
another one, perhaps of another edge, and the lost request may still come through.
"""

from appliance.base.prng import Prng
from appliance.cores.vsr.client import Client
from appliance.formats import envelope, record
from appliance.formats import session as ses
from appliance.formats.envelope import OPERATION_APPEND, PING_CLIENT, REPLY, REQUEST, Message
from appliance.formats.geometry import RESULT_SIZE, Geometry
from appliance.simulation import trace as kinds
from appliance.simulation.checkers.rooms import Key, key_of
from appliance.simulation.delay import exponential
from appliance.simulation.failure import violated
from appliance.simulation.judge import Judge
from appliance.simulation.network import MILLION, Network
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.trace import EDGE, Trace

AUTHORS = 4
BODY_MAX = 60
NAMED = (REQUEST, REPLY)          # commands whose body begins with the client's id


class Device:
    """One device and its room. Records to `acknowledged` are answered, to `asked` were sent."""

    __slots__ = ("index", "client_id", "room_id", "author_id", "kind", "limit", "acknowledged",
                 "asked", "retired")

    def __init__(self, index: int, *, client_id: bytes, room_id: bytes, author_id: int, kind: int,
                 limit: int) -> None:
        self.index, self.client_id, self.room_id = index, client_id, room_id
        self.author_id, self.kind, self.limit = author_id, kind, limit
        self.acknowledged = self.asked = 0
        self.retired = False          # refused for good

    @property
    def done(self) -> bool:
        return self.retired or self.acknowledged >= self.limit

    def record(self, client_seq: int) -> bytes:
        """Record number `client_seq`: the same bytes whenever it is asked for."""
        text = b"%d says %d " % (self.index, client_seq)
        size = BODY_MAX if client_seq % 7 else len(text)
        name = (self.index << 64 | client_seq).to_bytes(16, "little")
        return record.encode(
            room_id=self.room_id, msg_id=name, author_id=self.author_id,
            body=text.ljust(size, b"."), client_id=self.client_id, client_seq=client_seq,
            kind=self.kind)


class Session:
    """One session of an edge, by the product's client core, and what it has in flight."""

    __slots__ = ("edge", "client_id", "core", "devices", "in_flight", "floor", "asked_us",
                 "next_us", "last_request")

    def __init__(self, edge: int, client_id: bytes, core: Client) -> None:
        self.edge, self.client_id, self.core = edge, client_id, core
        self.devices: list[Device] = []
        self.in_flight: list[tuple[Device, int]] = []     # (device, client_seq) of each record
        self.floor = 0                # the request's op must be above this
        self.asked_us = 0
        self.next_us = 0              # no new request before
        self.last_request = False     # no further request after this one


class Edges:
    """All edges, their sessions and devices."""

    def __init__(self, *, options: Options, geometry: Geometry, cluster: bytes, shard: int,
                 schedule: Schedule, network: Network, prng: Prng, trace: Trace,
                 judge: Judge) -> None:
        self.options, self.geometry, self.cluster, self.shard = options, geometry, cluster, shard
        self.schedule, self.network, self.prng, self.trace = schedule, network, prng, trace
        self.judge = judge
        self.connected = [[False] * options.replica_count for _ in range(options.edge_count)]
        self.sessions: list[Session] = []
        self.requests = self.replies = self.evictions = self.abandoned = 0
        self.closing = False          # each session asks once more, then is silent
        for edge in range(options.edge_count):
            for _ in range(options.sessions_per_edge):
                self.sessions.append(self._session(edge))
        self.creators, self.devices = self._people()
        for device in self.creators + self.devices:
            self.prng.choice(self.sessions).devices.append(device)
        for session in self.sessions:
            self._take_effects(session)
        self.schedule.after(TICK_US, self._tick)

    def _people(self) -> tuple[list[Device], list[Device]]:
        """One creator a room, and the devices that talk in it."""
        creators, devices = [], []
        for room in range(self.options.room_count):
            room_id = self.prng.bytes(16)
            creators.append(Device(
                room, client_id=self.prng.bytes(16), room_id=room_id, author_id=1,
                kind=record.KIND_ROOM_CREATE, limit=1))
            for _ in range(self.options.devices_per_room):
                devices.append(Device(
                    self.options.room_count + len(devices), client_id=self.prng.bytes(16),
                    room_id=room_id, author_id=1 + self.prng.below(AUTHORS),
                    kind=record.KIND_MESSAGE, limit=self.options.records_per_device))
        return creators, devices

    def _session(self, edge: int) -> Session:
        client_id = self.prng.bytes(16)
        core = Client(client_id=client_id, cluster=self.cluster, shard=self.shard,
                      replica_count=self.options.replica_count, geometry=self.geometry,
                      prng=self.prng.fork())
        session = Session(edge, client_id, core)
        for replica, up in enumerate(self.connected[edge]):
            if up:
                core.on_connected(replica)
        return session

    # --- events

    def on_life(self, replica: int, up: bool) -> None:
        """A replica's process has started, or is gone: each edge learns it a little later."""
        for edge in range(self.options.edge_count):
            delay = 1_000 + self.prng.below(2 * TICK_US)
            self.schedule.after(delay, self._connection, edge, replica, up)

    def _connection(self, edge: int, replica: int, up: bool) -> None:
        self.connected[edge][replica] = up
        for session in self.sessions:
            if session.edge == edge:
                if up:
                    session.core.on_connected(replica)
                else:
                    session.core.on_disconnected(replica)
                self._take_effects(session)

    def deliver(self, edge: int, source: int, message: Message) -> None:
        """A replica's message has arrived at an edge."""
        header = message.header
        self.trace.add(self.schedule.now_us, kinds.DELIVER, EDGE + edge, source, header.op, header)
        client_id = bytes(message.body[:16]) if header.command in NAMED else header.area[:16]
        for session in self.sessions:
            if session.client_id == client_id:
                session.core.on_message(message)
                self._take_effects(session)
                return

    def _tick(self) -> None:
        now = self.schedule.now_us
        for session in list(self.sessions):
            session.core.on_tick()
            self._take_effects(session)
            if session.core.ready:
                self._ask(session, now)
            elif now - session.asked_us > self.options.session_patience_ticks * TICK_US:
                self._abandon(session)
        self.schedule.after(TICK_US, self._tick)

    def _take_effects(self, session: Session) -> None:
        effects, session.core.effects = session.core.effects, []
        for effect in effects:
            if effect[0] == "send":
                self._send(session, effect[1], effect[2], effect[3])
            elif effect[0] == "reply":
                self._answered(session, effect[1], effect[2])
            elif effect[0] == "evicted":      # the core registers anew; its request is lost
                self.evictions += 1
                session.in_flight = []
            else:
                assert effect[0] == "registered"

    def _send(self, session: Session, replica: int, header: envelope.Header, body: bytes) -> None:
        assert header.command in (REQUEST, PING_CLIENT)
        body = body if type(body) is bytes else bytes(body)
        if self.connected[session.edge][replica]:
            node = self.options.replica_count + session.edge
            self.network.send(node, replica, Message(header, body))

    # --- asking

    def _ask(self, session: Session, now: int) -> None:
        """Let the session's devices fill a request, if it is time."""
        if now < session.next_us or session.last_request or session.in_flight:
            return
        records = self._batch(session)
        session.last_request = self.closing
        if not records:
            return
        session.floor = self.judge.answers.on_request()
        session.asked_us = now
        self.requests += 1
        self.trace.add(now, kinds.REQUEST, EDGE + session.edge, len(records), session.floor,
                       session.client_id)
        session.core.request(OPERATION_APPEND, b"".join(records), len(records))
        self._take_effects(session)
        if self.prng.chance(self.options.session_kill, MILLION):
            self._abandon(session)

    def _batch(self, session: Session) -> list[bytes]:
        records: list[bytes] = []
        devices = list(session.devices)
        self.prng.shuffle(devices)
        room_left = self.prng.between(1, self.options.batch_max)
        for device in devices:
            if device.done and not self.closing or device.retired:
                continue
            if device.acknowledged and self.prng.chance(self.options.device_retry, MILLION):
                again = max(1, device.acknowledged - self.prng.below(100))
                self._add(session, records, device, again)
                room_left -= 1
            if device.kind == record.KIND_ROOM_CREATE and device.acknowledged:
                continue
            count = self.prng.between(0, room_left) if records else room_left
            if device.kind == record.KIND_ROOM_CREATE:
                count = min(count, 1)
            for client_seq in range(device.acknowledged + 1, device.acknowledged + 1 + count):
                self._add(session, records, device, client_seq)
                device.asked = max(device.asked, client_seq)
            room_left -= count
            if room_left <= 0:
                break
        return records

    def _add(self, session: Session, records: list[bytes], device: Device, client_seq: int) -> None:
        made = device.record(client_seq)
        self.judge.rooms.on_ask(made)
        session.in_flight.append((device, client_seq))
        records.append(made)

    # --- being answered

    def _answered(self, session: Session, results: bytes, header: envelope.Header) -> None:
        if not session.in_flight:
            violated("answers", f"edge {session.edge}: {header} answers nothing")
        now = self.schedule.now_us
        self.trace.add(now, kinds.REPLY, EDGE + session.edge, header.op, len(results), header)
        self.judge.answers.on_reply(session.edge, session.floor, header.op)
        if len(results) != len(session.in_flight) * RESULT_SIZE:
            violated("answers", f"edge {session.edge}: {len(results)} bytes of results for "
                                f"{len(session.in_flight)} records")
        self.replies += 1
        in_flight, session.in_flight = session.in_flight, []
        session.asked_us = now
        session.next_us = now + exponential(self.prng, self.options.think_us)
        for i, (device, client_seq) in enumerate(in_flight):
            result = bytes(results[i * RESULT_SIZE:(i + 1) * RESULT_SIZE])
            key = Key(device.client_id, device.room_id, client_seq)
            assert key == key_of(device.record(client_seq))
            self.judge.answers.on_result(session.edge, key, result)
            self._result(device, client_seq, ses.RESULT_STRUCT.unpack(result)[3])

    def _result(self, device: Device, client_seq: int, code: int) -> None:
        if code in (ses.OK, ses.DUPLICATE):
            if client_seq == device.acknowledged + 1:
                device.acknowledged = client_seq
            elif client_seq > device.acknowledged:
                violated("answers", f"device {device.index}: {client_seq} acknowledged after "
                                    f"{device.acknowledged}")
        elif code == ses.DUPLICATE_EXPIRED:
            if client_seq > device.acknowledged:
                violated("answers", f"device {device.index}: {client_seq} expired unanswered")
        elif code in (ses.LIMIT, ses.STORAGE_FULL):
            device.retired = True
        elif code == ses.FORBIDDEN:
            violated("answers", f"device {device.index}: record {client_seq} is forbidden")
        # A gap or an unknown room follows from a record that was refused before it: ask again.

    # --- sessions come and go

    def _abandon(self, session: Session) -> None:
        """Nobody answers, or the process is gone: another session goes on, perhaps elsewhere."""
        self.abandoned += 1
        self._replace(session, self.prng.below(self.options.edge_count))

    def _replace(self, session: Session, edge: int) -> None:
        fresh = self._session(edge)
        fresh.devices = session.devices
        fresh.asked_us = fresh.next_us = self.schedule.now_us
        fresh.last_request = session.last_request and not session.in_flight
        self.sessions[self.sessions.index(session)] = fresh
        session.devices, session.in_flight = [], []
        self._take_effects(fresh)

    # --- the end

    @property
    def done(self) -> bool:
        """Every device has all its answers."""
        return all(device.done for device in self.devices)

    def close(self) -> None:
        """Let each session ask once more, after what it has in flight."""
        self.closing = True
        for session in self.sessions:
            session.next_us = 0
            session.last_request = False

    @property
    def closed(self) -> bool:
        """Whether every session has got the answer to its last request."""
        return all(s.last_request and not s.in_flight or not s.devices for s in self.sessions)
