"""Those who ask: devices straight on sessions of the shard, with as little as possible between.

What is not answered is asked again under the same number, by whatever session carries the device
then. A session has one request in flight, made of records of its devices. Now and then a session
is lost with a request in flight, or given up because nobody answers: its devices move to another
one, perhaps of another edge, and the lost request may still come through.
"""

from typing import Any

from appliance.base.prng import Prng
from appliance.formats import record
from appliance.formats import session as ses
from appliance.formats.envelope import OPERATION_APPEND, Header
from appliance.formats.geometry import RESULT_SIZE
from appliance.simulation import trace as kinds
from appliance.simulation.all_checkers import Checkers
from appliance.simulation.checkers.rooms import Key, key_of
from appliance.simulation.clock import EPOCH_US
from appliance.simulation.delay import exponential
from appliance.simulation.device import Device
from appliance.simulation.failure import violated
from appliance.simulation.network import MILLION
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US, Schedule
from appliance.simulation.sessions import Session, Sessions
from appliance.simulation.trace import EDGE, Trace

AUTHORS = 4
FEW_AUTHORS = 2  # who hold more windows each than they can keep


class Load:
    """What a session carries and has in flight."""

    __slots__ = ("devices", "in_flight", "floor", "next_us", "last_request")

    def __init__(self, devices: list[Device], next_us: int) -> None:
        self.devices = devices
        self.in_flight: list[tuple[Device, int]] = []  # (device, client_seq) of each record
        self.floor = 0  # the request's op must be above this
        self.next_us = next_us  # no new request before
        self.last_request = False  # no further request after this one


class Clients:
    """All devices, and the sessions that carry them."""

    def __init__(
        self,
        *,
        options: Options,
        schedule: Schedule,
        sessions: Sessions,
        prng: Prng,
        trace: Trace,
        checkers: Checkers,
    ) -> None:
        self.options, self.schedule, self.sessions = options, schedule, sessions
        self.prng, self.trace, self.checkers = prng, trace, checkers
        self.requests = self.replies = self.abandoned = self.killed = self.retried = 0
        self.forgotten = 0
        self.closing = False  # each session asks once more, then is silent
        self.left = options.newcomers
        self._may_forget = bool(options.newcomers or options.keep_segments)
        self.gone: list[Device] = []  # whose places others have taken
        sessions.on_reply, sessions.on_evicted = self._answered, self._evicted
        sessions.on_registered = lambda session: None
        self.creators, self.devices = self._people()
        loads = [Load([], 0) for _ in range(options.edge_count * options.sessions_per_edge)]
        for device in self.creators + self.devices:
            self.prng.choice(loads).devices.append(device)
        for i, load in enumerate(loads):
            sessions.open(i % options.edge_count, load)
        self.schedule.after(self.options.tick_us, self._tick)

    def _people(self) -> tuple[list[Device], list[Device]]:
        """One creator a room, and the devices that talk in it."""
        creators: list[Device] = []
        devices: list[Device] = []
        for room in range(self.options.room_count):
            room_id = self.prng.bytes(16)
            creators.append(
                Device(
                    room,
                    client_id=self.prng.bytes(16),
                    room_id=room_id,
                    author_id=1,
                    kind=record.KIND_ROOM_CREATE,
                    limit=1,
                )
            )
            for _ in range(self.options.devices_per_room):
                devices.append(self._device(self.options.room_count + len(devices), room_id))
        return creators, devices

    def _device(self, index: int, room_id: bytes) -> Device:
        return Device(
            index,
            client_id=self.prng.bytes(16),
            room_id=room_id,
            author_id=1 + self.prng.below(AUTHORS if not self.options.newcomers else FEW_AUTHORS),
            kind=record.KIND_MESSAGE,
            limit=self.options.records_per_device,
            now_us=self._now_us if self.options.newcomers else None,
        )

    def _now_us(self) -> int:
        return EPOCH_US + self.schedule.now_us

    def _relieve(self, load: Load) -> None:
        """Those who are done go, and as many come, while there are any left to come."""
        for device in list(load.devices):
            if self.left and device.done and device.kind == record.KIND_MESSAGE:
                self.left -= 1
                self.gone.append(device)
                newcomer = self._device(len(self.creators) + len(self.devices), device.room_id)
                load.devices[load.devices.index(device)] = newcomer
                self.devices.append(newcomer)

    def on_life(self, replica: int, up: bool) -> None:
        """The sessions hear of it; nobody else here has to."""
        self.sessions.on_life(replica, up)

    def on_publish(self, replica: int, log_seq: int) -> None:
        """Nobody reads here."""

    def _tick(self) -> None:
        now = self.schedule.now_us
        self.sessions.tick()
        for session in list(self.sessions.all):
            if session.core.ready:
                self._ask(session, now)
            elif now - session.asked_us > self.options.session_patience_ticks * TICK_US:
                self._abandon(session)
        self.schedule.after(self.options.tick_us, self._tick)

    # --- asking

    def _ask(self, session: Session, now: int) -> None:
        """Let the session's devices fill a request, if it is time."""
        load: Load = session.load
        if now < load.next_us or load.last_request or load.in_flight:
            return
        records = self._batch(load)
        load.last_request = self.closing
        if not records:
            return
        load.floor = self.checkers.answers.on_request()
        session.asked_us = now
        self.requests += 1
        self.trace.add(
            now, kinds.REQUEST, EDGE + session.edge, len(records), load.floor, session.client_id
        )
        self.sessions.request(session, OPERATION_APPEND, b"".join(records), len(records))
        if self.prng.chance(self.options.session_kill, MILLION):
            self.killed += 1
            self._abandon(session)

    def _batch(self, load: Load) -> list[bytes]:
        records: list[bytes] = []
        devices = list(load.devices)
        self.prng.shuffle(devices)
        left = self.prng.between(1, self.options.batch_max)
        if self.gone and self.prng.chance(self.options.device_retry, MILLION):
            former = self.prng.choice(self.gone)
            if former.acknowledged:
                self.retried += 1
                again = 1 if self.prng.chance(1, 2) else former.acknowledged
                self._add(load, records, former, again)
                left -= 1
        for device in devices:
            if left <= 0:
                break
            if device.done and not self.closing or device.retired:
                continue
            if device.acknowledged and self.prng.chance(self.options.device_retry, MILLION):
                self.retried += 1
                again = max(1, device.acknowledged - self.prng.below(100))
                self._add(load, records, device, again)
                left -= 1
            if device.kind == record.KIND_ROOM_CREATE and device.acknowledged:
                continue
            count = self.prng.between(0, left) if records else left
            count = min(count, device.limit - device.acknowledged) if self.left else count
            if device.kind == record.KIND_ROOM_CREATE:
                count = min(count, 1)
            for client_seq in range(device.acknowledged + 1, device.acknowledged + 1 + count):
                self._add(load, records, device, client_seq)
                device.asked = max(device.asked, client_seq)
            left -= count
        return records

    def _add(self, load: Load, records: list[bytes], device: Device, client_seq: int) -> None:
        made = device.record(client_seq)
        self.checkers.rooms.on_ask(made)
        load.in_flight.append((device, client_seq))
        records.append(made)

    # --- being answered

    def _answered(self, session: Session, results: bytes, header: Header) -> None:
        load: Load = session.load
        if not load.in_flight:
            violated("answers", f"edge {session.edge}: {header} answers nothing")
        now = self.schedule.now_us
        self.trace.add(now, kinds.REPLY, EDGE + session.edge, header.op, len(results), header)
        self.checkers.answers.on_reply(session.edge, load.floor, header.op)
        if len(results) != len(load.in_flight) * RESULT_SIZE:
            violated(
                "answers",
                f"edge {session.edge}: {len(results)} bytes of results for "
                f"{len(load.in_flight)} records",
            )
        self.replies += 1
        in_flight, load.in_flight = load.in_flight, []
        load.next_us = now + exponential(self.prng, self.options.think_us)
        for i, (device, client_seq) in enumerate(in_flight):
            result = results[i * RESULT_SIZE : (i + 1) * RESULT_SIZE]
            key = Key(device.client_id, device.room_id, client_seq)
            assert key == key_of(device.record(client_seq))
            self.checkers.answers.on_result(session.edge, key, result)
            seq, _, _, code, _, _ = ses.RESULT_STRUCT.unpack(result)
            self._result(device, client_seq, code, seq)
        self._relieve(load)

    def _result(self, device: Device, client_seq: int, code: int, expected: int) -> None:
        if code in (ses.OK, ses.DUPLICATE):
            if client_seq == device.acknowledged + 1:
                device.acknowledged = client_seq
            elif client_seq > device.acknowledged:
                violated(
                    "answers",
                    f"device {device.index}: {client_seq} acknowledged after {device.acknowledged}",
                )
        elif code == ses.DUPLICATE_EXPIRED:
            if client_seq > device.acknowledged and not self._may_forget:
                violated("answers", f"device {device.index}: {client_seq} expired unanswered")
            self._forgotten(device, client_seq > device.acknowledged)
        elif code == ses.SEQUENCE_GAP and expected <= device.acknowledged:
            self._forgotten(device, retires=True)
        elif code == ses.STORAGE_FULL and self.options.keep_segments:
            pass  # there will be place again
        elif code in (ses.LIMIT, ses.STORAGE_FULL):
            device.retired = True
        elif code == ses.FORBIDDEN:
            violated("answers", f"device {device.index}: record {client_seq} is forbidden")
        # A gap or an unknown room follows from a record that was refused before it: ask again.

    def _forgotten(self, device: Device, retires: bool) -> None:
        """The shard does not remember the device any more, or has dropped what it had said."""
        if not self._may_forget:
            return
        self.forgotten += 1
        device.retired = device.retired or retires

    # --- sessions come and go

    def _evicted(self, session: Session) -> None:
        """The session registers anew; its request is lost with the old one."""
        session.load.in_flight = []

    def _abandon(self, session: Session) -> None:
        """Nobody answers, or the process is gone: another session goes on, perhaps elsewhere."""
        self.abandoned += 1
        old: Load = session.load
        load = Load(old.devices, self.schedule.now_us)
        load.last_request = old.last_request and not old.in_flight
        self.sessions.close(session)
        self.sessions.open(self.prng.below(self.options.edge_count), load)

    # --- the end

    @property
    def done(self) -> bool:
        """Every device has all its answers."""
        return all(device.done for device in self.devices)

    def close(self, core_machines: list[int]) -> None:
        """Let each session ask once more, after what it has in flight."""
        self.closing = True
        for session in self.sessions.all:
            session.load.next_us = 0
            session.load.last_request = False

    def waiting(self) -> str:
        """Who still waits for something, in words; empty when all have their last answers."""
        for session in self.sessions.all:
            load: Load = session.load
            if load.in_flight:
                return f"a request of edge {session.edge} is not answered"
            if load.devices and not load.last_request:
                return f"a session of edge {session.edge} has not asked its last request"
        return ""

    def faulted(self) -> dict[str, int]:
        """Faults of clients, by class."""
        return {
            "session_kill": self.killed,
            "session_abandoned": self.abandoned,
            "late_retry": self.retried,
            "window_forgotten": self.forgotten,
        }

    def counts(self) -> dict[str, Any]:
        """Figures for the summary."""
        return {
            "requests": self.requests,
            "replies": self.replies,
            "evictions": self.sessions.evictions,
            "abandoned": self.abandoned,
        }
