"""A device on the network: see the package's theory of operation."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

import msgspec

from appliance.base.limits import SPREAD_MS_MAX
from appliance.drivers.chat.backoff import Backoff
from appliance.drivers.chat.carrier import Carrier, Dial
from appliance.drivers.chat.connection import dial as dial_websocket
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import ConnectionLost, Refused, SiteUnreachable, TurnedAway
from appliance.drivers.chat.itinerary import Guide, Itinerary
from appliance.drivers.chat.origins import Origins
from appliance.drivers.chat.outbox import Outbox
from appliance.drivers.chat.subscription import EVENTS_LOW, EVENTS_MAX, Subscription
from appliance.formats.client.connection import ErrorFrame, NextNode, NodeState, Ping
from appliance.formats.client.directory import DirectoryAnswer, DirectoryRequest
from appliance.formats.client.federation import FederationEvent, FederationRequest
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, Frame, encode_binary, encode_json
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.objects import (
    ObjectAck,
    ObjectEvent,
    ObjectRequest,
    ObjectState,
    ObjectWish,
)
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.rooms import (
    CloseRoom,
    CreateRoom,
    ListRooms,
    RenameRoom,
    RoomAnswer,
    RoomItem,
    RoomRightsAnswer,
    RoomRightsRequest,
    RoomsPage,
    RoomState,
    RoomStateRequest,
)
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom
from appliance.formats.client.unfolding import unfolded
from appliance.formats.client_errors import (
    DuplicateExpired,
    FieldInvalid,
    FrameMalformed,
    FrameUnknown,
    RoomUnknown,
    SequenceGap,
    TokenExpired,
)
from appliance.formats.record_kind import KIND_MESSAGE

SILENCE_S = 2.0  # without a frame although one is due: ping
SILENCE_MAX_S = 6.0  # no answer to that either: another node
STUCK_S = 5.0  # frames come, but no answer to what was asked: another node
STALE_PAUSE_S = 5.0  # between two times that a node is left because it is cut off
DIRECTORY_S = 60.0  # between two looks at the directory, also asked for at each welcome
FRAME_ITEMS_MAX = 400  # messages in one binary frame: below 1 MiB whatever their bodies
RETRY_DEFAULT_MS = 50
REQUESTS_MAX = 1024  # open requests; one more waits for nothing and is an error of the caller

Answer = TypeVar("Answer", bound=Frame)


def new_message_id() -> UUID:
    """A UUIDv7 of now. It stays with its message: a site that has forgotten the message's number
    sees by it whether the message may have been stored."""
    milliseconds = time.time_ns() // 1_000_000 & (1 << 48) - 1
    chance = random.getrandbits(74)
    return UUID(
        int=milliseconds << 80 | 7 << 76 | chance >> 62 << 64 | 2 << 62 | chance & (1 << 62) - 1
    )


class _Post(NamedTuple):
    """One message on its way."""

    body: str
    parent_id: UUID | None
    msg_id: UUID
    kind: int
    done: "asyncio.Future[MessageAck]"


class _Flow:
    """The messages of this device to one room."""

    def __init__(self, room_id: UUID, first: int) -> None:
        self.room_id = room_id
        self.outbox: Outbox[_Post] = Outbox(first)
        self.not_before = 0.0  # loop time before which nothing is sent
        self.space = asyncio.Event()
        self.broken: BaseException | None = None


class Client:
    """Use `async with`; entering waits for the first welcome."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        token: Callable[[], str],
        *,
        client_id: UUID | None = None,
        subprotocol: str = SUBPROTOCOL_BINARY,
        patience_s: float = 30.0,
        first_endpoint: int = 0,
        guide: Guide | None = None,
        dial: Dial = dial_websocket,
    ) -> None:
        """`guide` reads the farm's directory, if the device is to go by it; `dial` opens a
        connection, by the one transport or another."""
        assert endpoints
        self.endpoints = list(endpoints)
        self.client_id = client_id or uuid4()
        self.welcome: Welcome | None = None
        self.connects = 0  # welcomes so far
        self.origins = Origins()
        self.closed: set[UUID] = set()  # rooms that are said to be, of those listed or followed
        self.stale_since: int | None = None  # us: since when the node may lack what was committed
        self._spread_s = 0.0  # over which those come whom the node sends to another one
        self._left_stale = -STALE_PAUSE_S  # loop time at which a node was left for that
        self._token = token
        self._subprotocol = subprotocol
        self._binary = subprotocol == SUBPROTOCOL_BINARY
        self._dial = dial
        self._patience_s = patience_s
        self._way, self._backoff = (
            Itinerary(endpoints, first_endpoint, guide),
            Backoff(len(endpoints)),
        )
        self._connection: Carrier | None = None
        self._hello: asyncio.Future[Welcome] | None = None
        self._flows: dict[UUID, _Flow] = {}
        self._requests: dict[str, tuple[Frame, asyncio.Future[Frame]]] = {}
        self._subscriptions: dict[UUID, Subscription] = {}
        self._labels = itertools.count(1)
        self._flush_due = False
        self._heard = 0.0  # loop time of the newest frame
        self._progress = 0.0  # loop time of the newest answer, or of when the first became due
        self._timers: dict[object, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self._first_welcome: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None

    async def __aenter__(self) -> "Client":
        self._first_welcome = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())
        try:
            await self._first_welcome
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End in good order; what is unanswered is given up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        self._fail(ConnectionLost("the client was closed"))

    # --- what the user asks for

    async def create_room(self, name: str) -> RoomAnswer:
        """The room of that name, made if there was none."""
        return await self._ask(CreateRoom(name=name, request=self._label()), RoomAnswer)

    async def close_room(self, room_id: UUID, *, closed: bool) -> RoomState:
        """Have the room closed, or open, whichever it was; told when the log has it."""
        wish = CloseRoom(room_id=room_id, closed=closed, request=self._label())
        return await self._ask(wish, RoomState)

    async def rename_room(self, room_id: UUID, name: str) -> RoomState:
        """Have the room called so; told when this node shows it."""
        wish = RenameRoom(room_id=room_id, name=name, request=self._label())
        return await self._ask(wish, RoomState)

    async def room_rights(
        self,
        room_id: UUID,
        *,
        read: str | None = None,
        send: str | None = None,
        moderate: str | None = None,
    ) -> RoomRightsAnswer:
        """What the room itself allows, each right in words of `room_limits.whom_text`; what is
        given is set before."""
        wish = RoomRightsRequest(
            room_id=room_id, read=read, send=send, moderate=moderate, request=self._label()
        )
        return await self._ask(wish, RoomRightsAnswer)

    async def room_state(self, room_id: UUID) -> RoomState:
        """What the room is called, whether it is closed, and what may be done there. A node also
        finds it by the id that follows from a name which the room was given."""
        return await self._ask(RoomStateRequest(room_id=room_id, request=self._label()), RoomState)

    async def rooms(self) -> list[RoomItem]:
        """All rooms the token may read; `closed` has those of them that are closed, then."""
        found: list[RoomItem] = []
        after: int | None = None
        while True:
            wish = ListRooms(after=after, limit=1000, request=self._label())
            answer = await self._ask(wish, RoomsPage)
            found += answer.rooms
            if answer.next is None:
                return found
            after = answer.next

    async def snapshot(
        self,
        room_id: UUID,
        *,
        from_op: int | None = None,
        until_op: int | None = None,
        limit: int = 100,
        backward: bool = False,
    ) -> SnapshotChunk:
        """One page of history."""
        answer = await self._ask(
            SnapshotRequest(
                room_id=room_id,
                from_op=from_op,
                until_op=until_op,
                limit=limit,
                backward=backward,
                request=self._label(),
            ),
            SnapshotChunk,
        )
        answer.messages = [unfolded(message) for message in answer.messages]
        return answer

    async def subscribe(
        self,
        room_id: UUID,
        *,
        since_op: int | None = None,
        last: int | None = None,
        objects: bool = False,
    ) -> Subscription:
        """Events of a room; one subscription for a room at a time. `objects`: it keeps what is told
        of its topic, pins and reactions too."""
        wish = SubscribeRoom(room_id=room_id, since_op=since_op, last=last, request=self._label())
        subscription = Subscription(wish, self._reading, objects=objects)
        self._subscriptions[room_id] = subscription
        try:
            await self._ask(wish, Subscribed)
        except BaseException:
            del self._subscriptions[room_id]
            raise
        return subscription

    async def ask_origins(self, room_id: UUID, ops: list[int], within_s: float) -> bool:
        """Whether `origins` knows these rising ops in time, of a room that is subscribed."""
        if await self.origins.told(room_id, ops, 0):
            return True
        if self._connection is not None:
            self._send(FederationRequest(room_id=room_id, from_op=ops[0], until_op=ops[-1]))
        return await self.origins.told(room_id, ops, within_s)

    async def change(self, wish: ObjectWish) -> ObjectAck:
        """Change what people share beside messages; acknowledged when it is durable on a node. No
        quorum is asked. Wished again on a new connection: twice is as once."""
        return await self._ask(msgspec.structs.replace(wish, request=self._label()), ObjectAck)

    async def older_reactions(self, room_id: UUID, before: UUID) -> ObjectState:
        """Reactions to messages older than `before`, the newest first."""
        wish = ObjectRequest(room_id=room_id, before=before, request=self._label())
        return await self._ask(wish, ObjectState)

    def start_at(self, room_id: UUID, client_seq: int) -> None:
        """Number this device's messages to a room from `client_seq`; before the first `post`."""
        assert room_id not in self._flows
        self._flows[room_id] = _Flow(room_id, client_seq)

    async def post(
        self,
        room_id: UUID,
        body: str,
        *,
        parent_id: UUID | None = None,
        msg_id: UUID | None = None,
        kind: int = KIND_MESSAGE,
    ) -> "asyncio.Future[MessageAck]":
        """Queue a message; its acknowledgement. Waits while too many of the room are unanswered.

        The future fails with Refused; then all later messages of the room fail too, since the
        number of the refused one stays unused.
        """
        flow = self._flows.get(room_id)
        if flow is None:
            flow = self._flows[room_id] = _Flow(room_id, 1)
        while flow.outbox.full and self._stopped(flow) is None:
            flow.space.clear()
            await flow.space.wait()
        stopped = self._stopped(flow)
        if stopped is not None:
            raise stopped
        self._note_due()
        done: asyncio.Future[MessageAck] = asyncio.get_running_loop().create_future()
        flow.outbox.add(_Post(body, parent_id, msg_id or new_message_id(), kind, done))
        self._flush_soon()
        return done

    async def send(
        self, room_id: UUID, body: str, *, parent_id: UUID | None = None, msg_id: UUID | None = None
    ) -> MessageAck:
        """Send a message and wait until it is stored."""
        return await (await self.post(room_id, body, parent_id=parent_id, msg_id=msg_id))

    def next_seq(self, room_id: UUID) -> int:
        """The client_seq that the next message to this room gets."""
        flow = self._flows.get(room_id)
        return flow.outbox.next if flow else 1

    @property
    def node(self) -> int | None:
        """Index of the node that answers now; None while there is none."""
        return self.welcome.node if self._connection and self.welcome else None

    def _stopped(self, flow: _Flow) -> BaseException | None:
        return flow.broken or self._failure

    def _note_due(self) -> None:
        if not self._answers_due():
            self._progress = asyncio.get_running_loop().time()

    def _label(self) -> str:
        return str(next(self._labels))

    async def _ask(self, frame: Frame, kind: type[Answer]) -> Answer:
        """Send a request, again on each new connection, until it is answered by a frame of that
        kind. ConnectionLost by another one: whoever made it does not speak as we do."""
        if self._failure is not None:
            raise self._failure
        assert len(self._requests) < REQUESTS_MAX
        label: str = frame.request  # type: ignore[attr-defined]
        self._note_due()
        done: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._requests[label] = (frame, done)
        try:
            self._send(frame)
            answer = await done
        finally:
            self._requests.pop(label, None)
        if not isinstance(answer, kind):
            raise ConnectionLost(
                f"a node answered {type(frame).__name__} with {type(answer).__name__}: ask another "
                "one, or use a client of its version"
            )
        return answer

    # --- connections

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        reached = loop.time()
        turned_away: TurnedAway | None = None  # by the node that answered last
        while True:
            endpoint = self._way.next()
            try:
                connection = await self._connect(endpoint)
            except ConnectionLost as error:
                turned_away = error if isinstance(error, TurnedAway) else turned_away
                if loop.time() - reached > self._patience_s:
                    unheard = SiteUnreachable(f"no node answers: {error}")
                    self._fail(Refused(turned_away.answer) if turned_away else unheard)
                    return
                await asyncio.sleep(self._backoff.pause_s(error))
                continue
            except Refused as error:
                self._fail(error)
                return
            turned_away = None
            self._backoff.on_welcome()
            await self._watch(connection)
            reached = loop.time()
            self._on_lost()
            await asyncio.sleep(random.uniform(0.0, self._spread_s))
            self._spread_s = 0.0

    async def _connect(self, endpoint: Endpoint) -> Carrier:
        """A connection on which the node said welcome. Raises ConnectionLost, Refused."""
        loop = asyncio.get_running_loop()
        holder: list[Carrier] = []

        def on_data(data: bytes) -> None:
            if holder and self._connection is holder[0]:
                self._on_data(data)

        timeout_s = self._backoff.timeout_s
        connection = await self._dial(endpoint, self._subprotocol, on_data, timeout_s)
        holder.append(connection)
        self._connection, self._hello = connection, loop.create_future()
        self._send(Hello(token=self._token(), client_id=self.client_id, request="hello"))
        waited: list[asyncio.Future[Any]] = [self._hello, connection.lost]
        await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._hello.done():
            self._connection = None
            connection.abort()
            raise ConnectionLost(f"{endpoint.url}: no welcome")
        try:
            self.welcome = self._hello.result()
        except (Refused, ConnectionLost):
            self._connection = None
            connection.abort()
            raise
        self._on_welcome()
        return connection

    def _on_welcome(self) -> None:
        self.connects += 1
        self.stale_since = None  # the node says so right after its welcome
        assert self._first_welcome is not None
        if not self._first_welcome.done():
            self._first_welcome.set_result(None)
        self._heard = self._progress = asyncio.get_running_loop().time()
        for frame, _ in self._requests.values():
            if not isinstance(frame, SubscribeRoom):
                self._send(frame)
        for subscription in self._subscriptions.values():
            self._send(subscription.resume())
        self._ask_directory()
        self._flush_soon()

    def _ask_directory(self) -> None:
        if self._way.guide is not None:
            self._send(DirectoryRequest(request="directory"))

    async def _watch(self, connection: Carrier) -> None:
        """Until the connection is lost, or silent, or without an answer for too long."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        while not connection.lost.done():
            await asyncio.wait([connection.lost], timeout=SILENCE_S / 2)
            silence = 0.0 if connection.paused else loop.time() - self._heard
            stuck = self._answers_due() and loop.time() - self._progress > STUCK_S
            if silence > SILENCE_MAX_S or stuck:
                connection.abort()
                await connection.lost
            elif silence > SILENCE_S:
                self._send(Ping(request="ping"))
            if loop.time() - asked > DIRECTORY_S:
                asked = loop.time()
                self._ask_directory()

    def _answers_due(self) -> bool:
        return bool(self._requests) or any(len(flow.outbox) for flow in self._flows.values())

    def _on_lost(self) -> None:
        self._connection = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for flow in self._flows.values():
            flow.outbox.on_lost()
            flow.not_before = 0.0

    def _fail(self, error: BaseException) -> None:
        """Nothing will be answered any more."""
        if self._failure is not None:
            return
        self._failure = error
        if self._first_welcome is not None and not self._first_welcome.done():
            self._first_welcome.set_exception(error)
        for _, done in self._requests.values():
            if not done.done():
                done.set_exception(error)
        for flow in self._flows.values():
            self._break(flow, error)
        for subscription in self._subscriptions.values():
            subscription.end(error)

    # --- frames out

    def _send(self, frame: Frame) -> None:
        if self._connection is None:
            return
        encode = encode_binary if self._binary else encode_json
        self._connection.send(encode(frame))

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send what may be sent, many messages a frame."""
        self._flush_due = False
        if self._connection is None or self.welcome is None or not self.connects:
            return
        if self._hello is None or not self._hello.done():
            return
        now = asyncio.get_running_loop().time()
        batch: list[SendMessage] = []
        for flow in self._flows.values():
            if flow.not_before > now:
                continue
            for client_seq, post in flow.outbox.take(FRAME_ITEMS_MAX):
                batch.append(
                    SendMessage(
                        room_id=flow.room_id,
                        client_seq=client_seq,
                        parent_id=post.parent_id,
                        msg_id=post.msg_id,
                        kind=post.kind,
                        body=post.body,
                    )
                )
        if self._binary:
            for start in range(0, len(batch), FRAME_ITEMS_MAX):
                self._connection.send(encode_binary(*batch[start : start + FRAME_ITEMS_MAX]))
        else:
            for frame in batch:
                self._connection.send(encode_json(frame))

    # --- frames in

    def _on_data(self, data: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        try:
            if self._binary:
                received = parse_binary_edge(data)
            else:
                received = [parse_json_edge(data)]
        except FrameUnknown:
            return  # of a newer node
        except (FrameMalformed, FieldInvalid):
            assert self._connection is not None
            self._connection.abort()
            return
        for frame in received:
            self._on_frame(frame)

    def _on_frame(self, frame: Frame) -> None:
        if isinstance(frame, MessageAck):
            self._on_ack(frame)
        elif isinstance(frame, MessageEvent):
            self._on_event(frame)
        elif isinstance(frame, ErrorFrame):
            self._on_error(frame)
        elif isinstance(frame, Welcome):
            if self._hello is not None and not self._hello.done():
                self._hello.set_result(frame)
        elif isinstance(frame, DirectoryAnswer):
            self._way.learn(frame.signed.encode())
        elif isinstance(frame, NodeState):
            self._on_node_state(frame)
        elif isinstance(frame, NextNode):
            if self._way.go_to(frame.url):
                self._spread_s = min(frame.spread, SPREAD_MS_MAX) / 1000
        elif isinstance(frame, FederationEvent):
            self.origins.learn(frame)
        elif isinstance(frame, ObjectState | ObjectEvent):
            self._on_objects(frame)
        elif isinstance(frame, RoomState) and frame.request is None:
            (self.closed.add if frame.closed else self.closed.discard)(frame.room_id)
        else:
            if isinstance(frame, Subscribed) and frame.room_id in self._subscriptions:
                self._subscriptions[frame.room_id].on_subscribed(frame)
            self._on_result(frame, frame)

    def _on_node_state(self, state: NodeState) -> None:
        """A node that is cut off serves the past: go to another one, but not round in circles
        when all of them are."""
        self.stale_since = state.stale_since
        now = asyncio.get_running_loop().time()
        if state.stale_since is None or len(self.endpoints) < 2 or self._connection is None:
            return
        if now - self._left_stale >= STALE_PAUSE_S:
            self._left_stale = now
            self._connection.abort()

    def _on_result(self, frame: Frame, result: Frame | BaseException) -> None:
        label = getattr(frame, "request", None) or ""
        _, done = self._requests.get(label, (None, None))
        if done is None or done.done():
            return
        self._progress = asyncio.get_running_loop().time()
        if isinstance(result, BaseException):
            done.set_exception(result)
        else:
            done.set_result(result)

    def _on_event(self, event: MessageEvent) -> None:
        subscription = self._subscriptions.get(event.room_id)
        if subscription is None:
            return
        if not subscription.on_event(unfolded(event)):
            assert self._connection is not None
            self._connection.abort()  # an event is missing: resume elsewhere
        self._reading()

    def _on_objects(self, frame: ObjectState | ObjectEvent) -> None:
        if isinstance(frame, ObjectState) and frame.request:  # an answer, not everything
            self._on_result(frame, frame)
            return
        subscription = None if frame.room_id is None else self._subscriptions.get(frame.room_id)
        if subscription is not None:
            subscription.on_objects(frame)
            self._reading()

    def _reading(self) -> None:
        """Stop reading while a subscription is full; go on when all have room again."""
        if self._connection is None:
            return
        waiting = max((item.waiting for item in self._subscriptions.values()), default=0)
        if waiting >= EVENTS_MAX:
            self._connection.pause()
        elif waiting <= EVENTS_LOW and self._connection.paused:
            self._heard = asyncio.get_running_loop().time()
            self._connection.resume()

    def _on_ack(self, ack: MessageAck) -> None:
        flow = self._flows.get(ack.room_id)
        if flow is None:
            return
        post = flow.outbox.on_answer(ack.client_seq)
        if post is not None and not post.done.done():
            post.done.set_result(ack)
        self._after_answer(flow)

    def _after_answer(self, flow: _Flow) -> None:
        self._progress = asyncio.get_running_loop().time()
        flow.space.set()
        self._flush_soon()

    def _on_error(self, error: ErrorFrame) -> None:
        if self._hello is not None and not self._hello.done() and error.request == "hello":
            passing = error.temporary
            problem = TurnedAway(error) if passing else Refused(error)
            self._hello.set_exception(problem)
        elif error.client_seq is not None and error.room_id is not None:
            self._on_send_error(error)
        elif error.request:
            self._on_request_error(error)
        elif not error.temporary and error.room_id in self._subscriptions:
            self._subscriptions[error.room_id].end(Refused(error))  # a refresh took the right away
        elif error.error == TokenExpired.code:
            assert self._connection is not None
            self._connection.abort()  # the next hello brings a new token

    def _on_request_error(self, error: ErrorFrame) -> None:
        frame, _ = self._requests.get(error.request or "", (None, None))
        if frame is None:
            self._on_resume_error(error)
        elif error.temporary:
            self._after(error.request, error.retry_after or RETRY_DEFAULT_MS, self._send, frame)
        else:
            self._on_result(error, Refused(error))

    def _on_resume_error(self, error: ErrorFrame) -> None:
        """A node does not let us go on with a room. One that is behind may not know the room yet,
        though it was followed before: that passes too."""
        for subscription in self._subscriptions.values():
            if subscription.wish.request == error.request:
                if error.temporary or error.error == RoomUnknown.code:
                    delay_ms = error.retry_after or RETRY_DEFAULT_MS
                    self._after(error.request, delay_ms, self._resume, subscription)
                else:
                    subscription.end(Refused(error))

    def _resume(self, subscription: Subscription) -> None:
        if not subscription.done:
            self._send(subscription.resume())

    def _on_send_error(self, error: ErrorFrame) -> None:
        assert error.room_id is not None and error.client_seq is not None
        flow = self._flows.get(error.room_id)
        if flow is None:
            return
        if error.error == DuplicateExpired.code:
            post = flow.outbox.on_answer(error.client_seq)
            if post is not None and not post.done.done():
                post.done.set_exception(Refused(error))
            self._after_answer(flow)
        elif error.temporary or self._gap_passes(flow, error):
            if error.expected is not None and error.expected < flow.outbox.first:
                flow.outbox.on_forgotten(error.expected)
            else:
                flow.outbox.on_passing_error()
            delay_ms = error.retry_after or (RETRY_DEFAULT_MS if error.temporary else 0)
            loop = asyncio.get_running_loop()
            now = loop.time()
            flow.not_before = max(flow.not_before, now + delay_ms / 1000)
            self._after(flow, 1000 * (flow.not_before - now), self._flush_soon)
        else:
            self._break(flow, Refused(error))

    def _gap_passes(self, flow: _Flow, error: ErrorFrame) -> bool:
        """Whether a sequence_gap only says that an earlier message was not taken, or was, or that
        the site has forgotten the numbers of this device."""
        if error.error != SequenceGap.code or not error.expected:
            return False
        return error.expected <= flow.outbox.next

    def _break(self, flow: _Flow, error: BaseException) -> None:
        flow.broken = error
        for post in flow.outbox.drop_all():
            if not post.done.done():
                post.done.set_exception(error)
                post.done.exception()  # whoever waits gets it; nobody has to
        flow.space.set()

    def _after(
        self, key: object, delay_ms: float, call: Callable[..., None], *arguments: object
    ) -> None:
        """Call once, after a delay, unless the connection is lost before."""
        old = self._timers.pop(key, None)
        if old is not None:
            old.cancel()
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(delay_ms / 1000, call, *arguments)
