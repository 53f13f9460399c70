"""A chat client: one device that talks in one room over connections to one edge after the other.

It creates its room, subscribes from where it stopped, sends a few messages, waits for their acks
and goes on; now and then it reads a page of what it has seen. It checks what it is told: each ack
against what was applied, that events come in order of op, from the first on, each once, whatever
broke in between, and that a page holds what was asked for.
"""

from typing import Any, Protocol

from appliance.base.prng import Prng
from appliance.cores.edge.session import Session
from appliance.formats.author import author_id_of
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.client.frame import Frame, encode_binary, encode_json
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest, StoredMessage
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom
from appliance.simulation.all_checkers import Checkers
from appliance.simulation.checkers.rooms import Key
from appliance.simulation.device import Device
from appliance.simulation.failure import violated
from appliance.simulation.options import Options
from appliance.simulation.schedule import TICK_US

NAME = "answers"
PAUSE_TICKS = 20  # after a refusal, before it is tried again
READS = 200_000  # per million of turns: a page is read before messages are sent
PAGE_MAX = 50  # messages
CREATE, SUBSCRIBE, PAGE = "create", "subscribe", "page"


class EntryPoint(Protocol):
    """What a talker sees of an edge."""

    def open(self, talker: "Talker") -> Session: ...
    def send(self, talker: "Talker", data: bytes) -> None: ...
    def on_left(self, talker: "Talker") -> None: ...


class Company(Protocol):
    """What a talker sees of the chat."""

    options: Options
    prng: Prng
    checkers: Checkers
    closing: bool
    requests: int
    replies: int
    events: int
    abandoned: int
    retried: int
    pages: int
    refusals: dict[str, int]

    def edge_for(self, talker: "Talker") -> EntryPoint | None: ...
    def think(self) -> int: ...


class Talker:
    """States: closed -> hello -> ready -> closed. `link` names the connection; 0 = none."""

    def __init__(
        self, device: Device, *, name: str, room_name: str, binary: bool, chat: Company
    ) -> None:
        self.device, self.name, self.room_name, self.binary = device, name, room_name, binary
        self.chat = chat
        assert device.author_id == author_id_of(name)
        self.edge: EntryPoint | None = None
        self.session: Session | None = None
        self.link = 0  # of the connection; grows with each
        self.ready = self.created = self.subscribed = False
        self.awaits = ""  # the request that is not answered yet
        self.page = SnapshotRequest(room_id=id_of(device.room_id))  # the last one
        self.next_op = 1  # of the event that must come next
        self.asked: dict[int, int] = {}  # client_seq -> log_seq answered to anybody when asked
        self.early: dict[int, None] = {}  # acknowledged before one that was said before
        self.heard_us = 0  # when something came, or was first asked
        self.next_us = 0  # no new message before
        self.arrival_us = 0  # of the last frame on its way here: a connection keeps order
        self.sending_us = 0  # the same, of the last frame on its way to the edge
        self.last_said = False  # in the end: what had to be said is said

    # --- time

    def on_tick(self, now: int) -> None:
        """Say what is to be said; leave an edge that does not answer."""
        if self.edge is None:
            if now >= self.next_us:
                self._open(now)
            return
        patience = self.chat.options.session_patience_ticks * TICK_US
        waiting = self.asked or self.awaits or not self.subscribed
        if waiting and now - self.heard_us > patience:
            self.chat.abandoned += 1
            self.leave(now)
        elif self.ready and now >= self.next_us and not self.asked and not self.awaits:
            self._say(now)

    def _open(self, now: int) -> None:
        self.edge = self.chat.edge_for(self)
        if self.edge is None:
            return
        self.link += 1
        self.ready = self.created = self.subscribed = False
        self.awaits = ""
        self.heard_us = now
        self.session = self.edge.open(self)
        self._send(Hello(token=self.name, client_id=id_of(self.device.client_id)))

    def leave(self, now: int) -> None:
        """End the connection from here."""
        if self.edge is not None:
            self.edge.on_left(self)
            self.on_closed(self.link, now)

    def on_closed(self, link: int, now: int) -> None:
        """The connection is gone."""
        if link == self.link:
            self.edge = self.session = None
            self.asked.clear()
            self.next_us = now + PAUSE_TICKS * TICK_US

    def _say(self, now: int) -> None:
        """The next thing: the room, the subscription, or messages."""
        self.heard_us = now
        if not self.created:
            self.awaits = CREATE
            self._send(CreateRoom(name=self.room_name, request=CREATE))
        elif not self.subscribed:
            self.awaits = SUBSCRIBE
            self._send(
                SubscribeRoom(
                    room_id=id_of(self.device.room_id),
                    since_op=self.next_op - 1,
                    request=SUBSCRIBE,
                )
            )
        elif not self.last_said and (self.chat.closing or not self.device.done):
            if self.next_op > 1 and self.chat.prng.chance(READS, 1_000_000):
                self._read()
                return
            if not self.device.retired:
                self._speak()
            self.last_said = self.chat.closing

    def _read(self) -> None:
        """A page of what was seen of the room, forward or backward."""
        prng = self.chat.prng
        first = prng.between(1, self.next_op - 1)
        self.awaits = PAGE
        self.page = SnapshotRequest(
            room_id=id_of(self.device.room_id),
            from_op=first,
            until_op=prng.between(first, self.next_op - 1),
            limit=prng.between(1, PAGE_MAX),
            backward=prng.chance(1, 2),
            request=PAGE,
        )
        self._send(self.page)

    def _speak(self) -> None:
        """A few messages at once, now and then one that was answered long ago."""
        chat, device = self.chat, self.device
        seqs = [
            device.acknowledged + 1 + i for i in range(chat.prng.between(1, chat.options.batch_max))
        ]
        if device.acknowledged and chat.prng.chance(chat.options.device_retry, 1_000_000):
            chat.retried += 1
            seqs.insert(0, max(1, device.acknowledged - chat.prng.below(100)))
        for client_seq in seqs:
            chat.checkers.rooms.on_ask(device.record(client_seq))
            first = client_seq > device.asked
            self.asked[client_seq] = chat.checkers.answers.log_seq_answered if first else 0
            device.asked = max(device.asked, client_seq)
        chat.requests += 1
        frames = [
            SendMessage(
                room_id=id_of(device.room_id),
                client_seq=client_seq,
                msg_id=id_of(device.msg_id(client_seq)),
                body=device.body(client_seq).decode(),
            )
            for client_seq in seqs
        ]
        if self.binary:
            self._send(*frames)
        else:
            for frame in frames:
                self._send(frame)

    def _send(self, *frames: Frame) -> None:
        assert self.edge is not None
        data = encode_binary(*frames) if self.binary else encode_json(frames[0])
        self.edge.send(self, data)

    # --- what comes

    def on_frames(self, link: int, payloads: list[bytes], now: int) -> None:
        """Frames of the edge, in order."""
        for payload in payloads:
            frames = parse_binary_edge(payload) if self.binary else [parse_json_edge(payload)]
            for frame in frames:
                if link != self.link or self.edge is None:
                    return
                self.heard_us = now
                self._on_frame(frame, now)

    def _on_frame(self, frame: Any, now: int) -> None:
        if isinstance(frame, MessageEvent):
            self._on_event(frame)
        elif isinstance(frame, MessageAck):
            self._on_ack(frame, now)
        elif isinstance(frame, ErrorFrame):
            self._on_error(frame, now)
        elif isinstance(frame, Subscribed):
            if frame.status != "recovered" or frame.next_op != self.next_op:
                violated(NAME, f"{self.name} subscribes from op {self.next_op}: {frame}")
            self.subscribed, self.awaits, self.next_us = True, "", now
        elif isinstance(frame, SnapshotChunk):
            self._on_page(frame, now)
        elif isinstance(frame, RoomAnswer):
            self.created, self.awaits, self.next_us = True, "", now
        elif isinstance(frame, Welcome):
            self.ready, self.next_us = True, now
        else:
            violated(NAME, f"{self.name} did not expect {frame}")

    def _on_ack(self, frame: MessageAck, now: int) -> None:
        device, chat = self.device, self.chat
        key = Key(device.client_id, id_bytes(frame.room_id), frame.client_seq)
        floor = self.asked.pop(frame.client_seq, None)
        if floor is None:
            violated(NAME, f"{self.name} is acknowledged what it did not ask: {frame}")
        chat.replies += 1
        chat.checkers.answers.on_ack(
            self.name,
            key,
            floor,
            op=frame.op,
            timestamp=frame.timestamp,
            digest=bytes.fromhex(frame.hash),
        )
        if id_bytes(frame.msg_id) != device.msg_id(frame.client_seq):
            violated(NAME, f"{self.name}: an ack names another message: {frame}")
        # The first ack of what is a duplicate may have to wait for the replica beside the edge.
        if frame.client_seq > device.acknowledged:
            self.early[frame.client_seq] = None
        while device.acknowledged + 1 in self.early:
            device.acknowledged += 1
            del self.early[device.acknowledged]
        self.next_us = now + chat.think()

    def _on_event(self, frame: MessageEvent) -> None:
        room = self.chat.checkers.rooms.rooms[self.device.room_id]
        if frame.op != self.next_op or frame.op > room.count:
            violated(NAME, f"{self.name} gets op {frame.op} after {self.next_op - 1}")
        self._check(frame)
        self.next_op += 1
        self.chat.events += 1

    def _on_page(self, frame: SnapshotChunk, now: int) -> None:
        """The first or the last messages of what was asked for. What this client has seen at
        another edge may be missing at the end."""
        ops = [message.op for message in frame.messages]
        if frame.request != self.awaits or not answers(self.page, frame, ops):
            violated(
                NAME,
                f"{self.name} asked for {self.page} and gets ops {ops}, "
                f"has_more {frame.has_more}, cursor {frame.cursor}",
            )
        for message in frame.messages:
            self._check(message)
        self.awaits, self.next_us = "", now
        self.chat.pages += 1

    def _check(self, message: MessageEvent | StoredMessage) -> None:
        """Whether it is the record that was applied as this op."""
        rooms = self.chat.checkers.rooms
        key = rooms.rooms[self.device.room_id].keys[message.op - 1]
        told = (id_bytes(message.client_id), message.client_seq, message.timestamp)
        if told != (key.client_id, key.client_seq, rooms.applied[key].timestamp):
            violated(NAME, f"{self.name} gets another record as op {message.op}: {message}")

    def _on_error(self, frame: ErrorFrame, now: int) -> None:
        """Refused: try again later, unless it can never be."""
        device = self.device
        self.chat.refusals[frame.name] = self.chat.refusals.get(frame.name, 0) + 1
        self.next_us = max(self.next_us, now + PAUSE_TICKS * TICK_US)
        if frame.name in ("limit_reached", "storage_full"):
            device.retired = True
        elif frame.name == "duplicate_expired":
            if frame.client_seq is None or frame.client_seq > device.acknowledged:
                violated(NAME, f"{self.name}: unanswered, and expired: {frame}")
        elif not frame.temporary and frame.name != "sequence_gap":  # its room exists: it made it
            violated(NAME, f"{self.name} is refused: {frame}")
        if frame.request == self.awaits:
            self.awaits = ""
        if frame.client_seq is not None:
            self.asked.pop(frame.client_seq, None)

    # --- the end

    def lacks(self) -> str:
        """What is still to come, in words."""
        if self.asked or not self.last_said:
            return f"{self.name} has not said its last"
        room = self.chat.checkers.rooms.rooms.get(self.device.room_id)
        if room is None or not self.subscribed or self.next_op <= room.count:
            return f"{self.name} has seen {self.next_op - 1} of its room"
        return ""


def answers(asked: SnapshotRequest, page: SnapshotChunk, ops: list[int]) -> bool:
    """Whether a page with these ops is an answer: dense, from the right end, as long as allowed."""
    first, last = asked.from_op, asked.until_op
    assert first is not None and last is not None
    if not ops:
        return not page.has_more
    start, end = ops[0], ops[-1]
    if not first <= start <= end <= last or ops != list(range(start, end + 1)):
        return False
    if asked.backward:
        ends = page.cursor == start - 1 and page.has_more == (start > first)
    else:
        ends = start == first and page.cursor == end + 1 and page.has_more <= (end < last)
    return ends and len(ops) <= asked.limit
