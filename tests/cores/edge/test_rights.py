"""What a user may do: each user, room, frame and moment, one cell each, against a table by hand.

What a session gets is seen twice: in what it is answered, and in what somebody else in the room
hears of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.cores.edge.session import Session
from appliance.formats.client import objects
from appliance.formats.client.connection import Ping, Pong
from appliance.formats.client.directory import DirectoryAnswer, DirectoryRequest
from appliance.formats.client.federation import FederationEvent, FederationRequest
from appliance.formats.client.fields import id_of
from appliance.formats.client.finding import FindMessage, MessageFound
from appliance.formats.client.frame import Frame
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.rooms import (
    CloseRoom,
    CreateRoom,
    ListRooms,
    RenameRoom,
    RoomAnswer,
    RoomRightsAnswer,
    RoomRightsRequest,
    RoomsPage,
    RoomState,
    RoomStateRequest,
)
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, RefreshToken, Welcome
from appliance.formats.client.subscribing import (
    MessageEvent,
    Subscribed,
    SubscribeRoom,
    Unsubscribed,
    UnsubscribeRoom,
)
from appliance.formats.client.table import FRAMES_CLIENT, FRAMES_EDGE
from appliance.formats.record import MSG_ID
from appliance.formats.room_name import room_id_of
from tests.cores.edge.objects_world import ObjectsWorld
from tests.cores.edge.world import KEY, World, device, errors, token

ALL = {"*": ["admin"]}
ROOMS = ("team-a", "public")
IDS = {name: id_of(room_id_of(name)) for name in ROOMS}
USERS: dict[str, dict[str, Any]] = {
    "nobody": {},
    "reader": {"*": ["read"]},
    "writer": {"*": ["send"]},
    "maker": {"*": ["moderate"]},
    "admin": ALL,
    "team": {"team-*": ["read", "send"]},
    "mixed": {"team-*": ["send"], "*-a": ["moderate"], "public": ["read"]},
}
# user -> room -> what is allowed there; r reading in all its forms, s sending, m making, and
# - what everybody may who has a token
MAY = {
    "nobody": {"team-a": "-", "public": "-"},
    "reader": {"team-a": "-r", "public": "-r"},
    "writer": {"team-a": "-s", "public": "-s"},
    "maker": {"team-a": "-m", "public": "-m"},
    "admin": {"team-a": "-rsm", "public": "-rsm"},
    "team": {"team-a": "-rs", "public": "-"},
    "mixed": {"team-a": "-sm", "public": "-r"},
}
EVENTS = (MessageEvent, objects.ObjectEvent)
MOMENTS = ("before", "after refresh", "after key removal")


class Cell(NamedTuple):
    """A session of a user that is about to ask for something in a room."""

    room: str
    room_id: UUID
    name: str  # of the user
    rights: dict[str, Any]
    session: Session
    seq: int  # of its next message
    msg_id: UUID  # of a message in the room


class Row(NamedTuple):
    """A frame: the right that it takes, how it is asked, and by what its success is known."""

    needs: str
    frame: type[Frame]
    ask: Callable[[Cell], Frame]
    answer: type[Frame]
    event: str | None = None  # what somebody else in the room hears of it


MESSAGE = UUID("0190b6d0-0000-7000-8000-000000000001")
OLD_KEY, NEW_KEY = KEY, Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
ROWS = (
    Row("-", Hello, lambda cell: Hello(token=own_token(cell), client_id=device(7)), Welcome),
    Row("-", RefreshToken, lambda cell: RefreshToken(token=own_token(cell)), Welcome),
    Row("-", Ping, lambda cell: Ping(), Pong),
    Row("-", DirectoryRequest, lambda cell: DirectoryRequest(), DirectoryAnswer),
    Row("r", SubscribeRoom, lambda cell: SubscribeRoom(room_id=cell.room_id), Subscribed),
    Row("r", UnsubscribeRoom, lambda cell: UnsubscribeRoom(room_id=cell.room_id), Unsubscribed),
    Row("r", SnapshotRequest, lambda cell: SnapshotRequest(room_id=cell.room_id), SnapshotChunk),
    Row("r", ListRooms, lambda cell: ListRooms(), RoomsPage),
    Row(
        "s",
        SendMessage,
        lambda cell: SendMessage(room_id=cell.room_id, client_seq=cell.seq, body="said"),
        MessageAck,
        "message",
    ),
    Row("r", FindMessage, lambda cell: FindMessage(msg_id=cell.msg_id), MessageFound),
    Row("r", RoomStateRequest, lambda cell: RoomStateRequest(room_id=cell.room_id), RoomState),
    Row(
        "m",
        CloseRoom,
        lambda cell: CloseRoom(room_id=cell.room_id, closed=False),
        RoomState,
        "message",
    ),
    Row(
        "m",
        RenameRoom,
        lambda cell: RenameRoom(room_id=cell.room_id, name=cell.room),
        RoomState,
    ),
    Row(
        "r",
        RoomRightsRequest,
        lambda cell: RoomRightsRequest(room_id=cell.room_id),
        RoomRightsAnswer,
    ),
    Row("m", CreateRoom, lambda cell: CreateRoom(name=cell.room), RoomAnswer),
    Row(
        "m",
        objects.Topic,
        lambda cell: objects.Topic(room_id=cell.room_id, text=f"of {cell.name}"),
        objects.ObjectAck,
        "topic",
    ),
    Row(
        "m",
        objects.Description,
        lambda cell: objects.Description(room_id=cell.room_id, text=f"of {cell.name}"),
        objects.ObjectAck,
        "description",
    ),
    Row(
        "m",
        objects.Pin,
        lambda cell: objects.Pin(room_id=cell.room_id, msg_id=MESSAGE),
        objects.ObjectAck,
        "pin",
    ),
    Row(
        "s",
        objects.Reaction,
        lambda cell: objects.Reaction(room_id=cell.room_id, msg_id=MESSAGE, emoji="+1"),
        objects.ObjectAck,
        "reaction",
    ),
    Row(
        "r",
        objects.ReadMarker,
        lambda cell: objects.ReadMarker(room_id=cell.room_id, op=2),
        objects.ObjectAck,
        "read_marker",
    ),
    Row("-", objects.Profile, lambda cell: objects.Profile(name="A"), objects.ObjectAck),
    Row("-", objects.Presence, lambda cell: objects.Presence(state="away"), objects.ObjectAck),
    Row(
        "s",
        objects.Typing,
        lambda cell: objects.Typing(room_id=cell.room_id),
        objects.ObjectAck,
        "typing",
    ),
    Row(
        "r",
        objects.ObjectRequest,
        lambda cell: objects.ObjectRequest(room_id=cell.room_id, before=MESSAGE),
        objects.ObjectState,
    ),
    Row(
        "r",
        FederationRequest,
        lambda cell: FederationRequest(room_id=cell.room_id, from_op=1, until_op=2),
        FederationEvent,
    ),
)


def own_token(cell: Cell) -> str:
    return token(cell.name, rights=cell.rights)


class Rooms(ObjectsWorld):
    """Both rooms; somebody whose key nobody takes away follows them, and hears what is done."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens.keys = {"k1": OLD_KEY.public_key(), "k2": NEW_KEY.public_key()}
        self.watcher = self.edge.on_open("10.0.0.2", self.admin.encoding)
        signed = token("watcher", rights=ALL, key=NEW_KEY, headers={"kid": "k2"})
        self.send(self.watcher, Hello(token=signed, client_id=device(900)))
        for room in ROOMS:
            self.room(self.watcher, room)
            self.say(self.watcher, IDS[room], 1, 2)
            self.send(self.watcher, SubscribeRoom(room_id=IDS[room]))
        self.settle()
        self.take(self.watcher)
        self.said_count = dict.fromkeys(IDS.values(), 2)
        self.numbers = 0

    def cell(self, user: str, room: str, moment: str) -> Cell:
        """A session of its own, at that moment but for the removal of its key."""
        self.numbers += 1
        name, rights = f"user-{self.numbers}", USERS[user]
        session = self.open(
            number=self.numbers, name=name, rights=ALL if moment == "after refresh" else rights
        )
        for room_id in IDS.values():
            self.send(session, SubscribeRoom(room_id=room_id))
        seq = 1
        if moment == "after refresh":
            self.use(session)
            seq = 2
            self.send(session, RefreshToken(token=token(name, rights=rights)))
        self.settle()
        self.take(session)
        msg_id = id_of(self.ops(IDS[room])[-1][MSG_ID : MSG_ID + 16])
        return Cell(room, IDS[room], name, rights, session, seq, msg_id)

    def use(self, session: Session) -> None:
        """Everything the session could have remembered of both rooms, it has."""
        for room_id in IDS.values():
            self.send(session, SnapshotRequest(room_id=room_id))
            self.send(session, SendMessage(room_id=room_id, client_seq=1, body="x"))
            self.send(session, objects.ReadMarker(room_id=room_id, op=1))
        self.settle()
        assert not errors(self.take(session))

    def says(self, room_id: UUID) -> None:
        """The watcher, so that who follows the room hears it."""
        self.said_count[room_id] += 1
        self.say(self.watcher, room_id, self.said_count[room_id], 1)

    def heard(self, name: str, room_id: UUID) -> set[str]:
        """What the watcher has heard of that user."""
        kinds = set()
        for frame in self.take(self.watcher):
            if getattr(frame, "room_id", None) == room_id:
                if type(frame) is MessageEvent and frame.author == name:
                    kinds.add("message")
                elif type(frame) is objects.ObjectEvent and frame.author in (name, None):
                    kinds.add(frame.kind)
        return kinds


def is_done(world: Rooms, cell: Cell, row: Row) -> bool:
    """Whether the session gets what the frame asks for."""
    session = cell.session
    if row.frame is Hello:
        session = world.edge.on_open("10.0.0.1", world.admin.encoding)
    world.take(world.watcher)
    world.take(session)
    world.send(session, row.ask(cell))
    world.settle()
    answers = [frame for frame in world.take(session) if type(frame) is row.answer]
    if row.frame is ListRooms and answers:
        return cell.room in [item.name for item in answers[0].rooms]
    if row.event is not None:
        assert (row.event in world.heard(cell.name, cell.room_id)) == bool(answers), row.frame
    return bool(answers)


def follows(world: Rooms, cell: Cell) -> set[str]:
    """What the session hears of what the watcher does in the room now."""
    world.take(cell.session)
    world.says(cell.room_id)
    world.send(
        world.watcher,
        objects.Topic(room_id=cell.room_id, text=f"{cell.name} {world.said_count[cell.room_id]}"),
    )
    world.settle()
    told = [one for one in world.take(cell.session) if type(one) in EVENTS]
    return {type(one).__name__ for one in told if one.room_id == cell.room_id}


def is_present(world: Rooms, cell: Cell) -> bool:
    """Whether the others in the room are told that the user is there."""
    world.take(world.watcher)
    world.send(cell.session, objects.Presence(state="online"))
    world.settle()
    return "presence" in world.heard(cell.name, cell.room_id)


def state_comes(world: Rooms, cell: Cell) -> bool:
    """Whether the present state of the room comes when the objects were away."""
    world.take(cell.session)
    world.edge.objects.on_detached()
    world.edge.objects.on_attached()
    world.settle()
    return cell.room_id in [
        frame.room_id for frame in world.take(cell.session) if type(frame) is objects.ObjectState
    ]


PRESENCE_TOLD = "presence told"
FOR_ALL = {"error", "node_state", "next_node"}  # what every session is told, whatever its rights
TOLD: dict[str, Callable[[Rooms, Cell], Any]] = {
    "message_event": lambda world, cell: "MessageEvent" in follows(world, cell),
    "object_event": lambda world, cell: "ObjectEvent" in follows(world, cell),
    "object_state": state_comes,
    PRESENCE_TOLD: is_present,
}


def test_every_frame_that_a_client_may_send_has_cells() -> None:
    assert {row.frame for row in ROWS} == set(FRAMES_CLIENT)
    assert len(ROWS) == len(FRAMES_CLIENT)


def test_every_frame_that_an_edge_may_send_has_cells_or_is_for_all() -> None:
    answers = {row.answer.__struct_config__.tag for row in ROWS}
    assert answers | set(TOLD) - {PRESENCE_TOLD} | FOR_ALL == {
        frame.__struct_config__.tag for frame in FRAMES_EDGE
    }
    assert not FOR_ALL & (answers | set(TOLD))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("user", USERS)
def test_each_user_may_do_what_the_table_says(user: str, moment: str) -> None:
    world = Rooms()
    asked: dict[tuple[str, str], tuple[str, Cell, Callable[[Cell], bool]]] = {}
    for room in ROOMS:
        for row in ROWS:
            label = str(row.frame.__struct_config__.tag)
            cell = world.cell(user, room, moment)
            asked[room, label] = row.needs, cell, lambda cell, row=row: is_done(world, cell, row)
        for label, told in TOLD.items():
            cell = world.cell(user, room, moment)
            asked[room, label] = "r", cell, lambda cell, told=told: told(world, cell)
    if moment == "after key removal":
        del world.tokens.keys["k1"]
        world.edge.on_keys()
        world.settle()
    allowed = {
        (room, label): needs in MAY[user][room] and moment != "after key removal"
        for (room, label), (needs, _, _) in asked.items()
    }
    assert {where: ask(cell) for where, (_, cell, ask) in asked.items()} == allowed
    assert len(allowed) == len(ROOMS) * (len(ROWS) + len(TOLD))


def test_at_a_refresh_subscriptions_to_rooms_that_were_taken_away_end_and_it_is_told() -> None:
    world = World()
    session = world.open(rights=ALL)
    for room in ROOMS:
        world.room(session, room)
    for room_id in IDS.values():
        world.send(session, SubscribeRoom(room_id=room_id))
    world.settle()
    assert not errors(world.take(session))
    world.send(session, RefreshToken(token=token(rights={"public": ["read"]})))
    welcome, refused = world.take(session)
    assert type(welcome) is Welcome
    assert (refused.name, refused.room_id) == ("forbidden", id_of(room_id_of("team-a")))
    assert [subscription.room.name for subscription in session.subscriptions.values()] == ["public"]


def test_what_waits_for_a_room_is_judged_by_the_rights_of_the_moment_it_goes_on() -> None:
    world = World()
    maker = world.open(number=99, name="maker", rights=ALL)
    world.room(maker, "public")
    room_id = id_of(room_id_of("public"))
    session = world.open(rights=ALL)
    world.edge.on_blocked(session)
    world.send(session, RefreshToken(token=token(rights={})))
    world.send(session, SnapshotRequest(room_id=room_id))
    world.edge.on_writable(session)
    assert errors(world.take(session)) == ["forbidden"]
