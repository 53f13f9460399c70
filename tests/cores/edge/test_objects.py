"""Frames of topics, pins, reactions, read markers, profiles and presence, over real objects."""

from uuid import UUID

from appliance.base.errors import ObjectsError
from appliance.base.limits import PEOPLE_MAX, PRESENCE_MS_MAX, SESSION_OUT_MAX
from appliance.cores.edge.session import Session
from appliance.cores.metadata import product
from appliance.formats.client import objects as frames
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.sign_in import RefreshToken
from appliance.formats.client.subscribing import SubscribeRoom, UnsubscribeRoom
from appliance.formats.policy_bits import POLICY_CLOSED
from appliance.formats.room_name import room_id_of
from tests.cores.edge.objects_world import ROOM, ObjectsWorld
from tests.cores.edge.world import TICK_NS, errors, token

MESSAGE = UUID("0190b6d0-0000-7000-8000-000000000001")


def pair(**rights: list[str]) -> tuple[ObjectsWorld, Session, Session]:
    world = ObjectsWorld()
    anna = world.open(number=1, name="anna", rights=rights or None)
    bob = world.open(number=2, name="bob", binary=False)
    return world, anna, bob


def test_each_of_the_eight_is_acknowledged_and_told_to_followers_in_both_encodings() -> None:
    world, anna, bob = pair()
    for session in (anna, bob):
        world.follow(session)
    wishes = [
        (frames.Topic(room_id=world.room_id, text="Today"), ("topic", None, "Today", None, None)),
        (
            frames.Description(room_id=world.room_id, text="All of it"),
            ("description", None, "All of it", None, None),
        ),
        (frames.Pin(room_id=world.room_id, msg_id=MESSAGE), ("pin", None, None, MESSAGE, None)),
        (
            frames.Reaction(room_id=world.room_id, msg_id=MESSAGE, emoji="👍"),
            ("reaction", "anna", "👍", MESSAGE, None),
        ),
        (frames.ReadMarker(room_id=world.room_id, op=3), ("read_marker", "anna", None, None, 3)),
        (frames.Presence(state="online"), ("presence", "anna", "online", None, None)),
        (frames.Profile(name="Anna A."), ("profile", "anna", "Anna A.", None, None)),
    ]
    for frame, expected in wishes:
        answer = world.ask(anna, frame)
        assert type(answer) is frames.ObjectAck and answer.changed, frame
        world.tick(2)
        for session in (anna, bob):
            assert world.told(session) == [(*expected, True)], frame
        again = world.ask(anna, frame)
        assert type(again) is frames.ObjectAck and not again.changed
        world.tick(2)
        assert world.told(anna) == world.told(bob) == []
    assert world.ask(anna, frames.Typing(room_id=world.room_id)).changed
    assert world.told(bob) == [("typing", "anna", None, None, None, True)]
    assert world.told(anna) == []  # who types knows it
    for frame in (
        frames.Reaction(room_id=world.room_id, msg_id=MESSAGE, emoji="👍", present=False),
        frames.Pin(room_id=world.room_id, msg_id=MESSAGE, present=False),
    ):
        assert world.ask(anna, frame).changed
        (told,) = world.told(bob)
        assert told[3:] == (MESSAGE, None, False)


def test_the_present_state_stands_behind_subscribed() -> None:
    world, anna, bob = pair()
    world.follow(anna)
    world.ask(anna, frames.Topic(room_id=world.room_id, text="Today"))
    world.ask(anna, frames.Pin(room_id=world.room_id, msg_id=MESSAGE))
    world.ask(anna, frames.Reaction(room_id=world.room_id, msg_id=MESSAGE, emoji="+1"))
    world.ask(anna, frames.Profile(name="Anna A."))
    world.ask(anna, frames.Presence(state="away"))
    world.ask(bob, frames.ReadMarker(room_id=world.room_id, op=2))
    world.tick(2)
    items = {(one.kind, one.author): one for one in world.follow(bob)}
    assert items["topic", None].text == "Today" and items["pin", None].msg_id == MESSAGE
    assert items["reaction", "anna"].msg_id == MESSAGE
    assert items["profile", "anna"].text == "Anna A." and items["profile", "anna"].timestamp
    assert items["presence", "anna"].text == "away" and items["read_marker", "bob"].op == 2
    assert ("read_marker", "anna") not in items  # of others only what happens


def test_nothing_is_told_twice_while_the_state_is_on_its_way() -> None:
    world, anna, bob = pair()
    world.follow(anna)
    world.held = []
    world.send(bob, SubscribeRoom(room_id=world.room_id))
    (asked,) = world.held
    world.objects.set_topic(ROOM, "before")
    world.write()  # told to anna, not to bob: his state will hold it
    world.held = None
    world.answer(asked)
    world.objects.set_topic(ROOM, "after")
    world.write()
    received = world.take(bob)
    assert [one.text for one in received[1].items if one.kind == "topic"] == ["before"]
    assert [e.text for e in received if type(e) is frames.ObjectEvent] == ["after"]
    assert [row[2] for row in world.told(anna)] == ["before", "after"]


def test_rights_are_those_of_the_token_and_of_the_last_policy() -> None:
    world, anna, bob = pair(**{"*": ["read"]})
    eve = world.open(number=3, name="eve", rights={"*": ["read", "send"]})
    blind = world.open(number=4, name="max", rights={"other": ["read", "send", "moderate"]})
    topic = frames.Topic(room_id=world.room_id, text="x")
    pin = frames.Pin(room_id=world.room_id, msg_id=MESSAGE)
    reaction = frames.Reaction(room_id=world.room_id, msg_id=MESSAGE, emoji="+1")
    typing = frames.Typing(room_id=world.room_id)
    marker = frames.ReadMarker(room_id=world.room_id, op=1)
    older = frames.ObjectRequest(room_id=world.room_id, before=MESSAGE)
    table = {
        anna: (topic, pin, reaction, typing),
        eve: (topic, pin),
        blind: (topic, pin, reaction, typing, marker, older),
    }
    every = (topic, pin, reaction, typing, marker, older)
    for session, refused in table.items():
        for frame in every:
            answer = world.ask(session, frame)
            is_refused = type(answer) is ErrorFrame and answer.name == "forbidden"
            assert is_refused == (frame in refused), (session.number, frame, answer)
    # the room is closed: only what one does for oneself goes on
    room = world.edge.lookup.catalogue.rooms[room_id_of(ROOM)]
    room.policy = POLICY_CLOSED
    for frame in (topic, pin, reaction, typing):
        assert world.ask(bob, frame).name == "room_closed"
    assert type(world.ask(bob, marker)) is frames.ObjectAck


def test_who_may_read_no_more_gets_no_state_that_was_asked_for_before() -> None:
    world, _, bob = pair()
    world.held = []
    frame = frames.ObjectRequest(room_id=world.room_id, before=MESSAGE, request="r")
    world.send(bob, frame)
    (asked,) = world.held
    world.send(bob, RefreshToken(token=token("bob", rights={"other": ["read"]})))
    world.take(bob)
    world.held = None
    world.answer(asked)
    assert errors(world.take(bob)) == ["forbidden"]


def test_what_the_objects_refuse_is_answered_by_a_code_and_the_connection_lives() -> None:
    world, anna, _ = pair()
    unknown = UUID(int=5)
    answers = [
        (frames.Topic(room_id=world.room_id, text="ä" * 4096), "object_refused"),
        (frames.ReadMarker(room_id=world.room_id, op=99), "object_refused"),
        (frames.ReadMarker(room_id=world.room_id, op=0), "object_refused"),
        (frames.Topic(room_id=UUID(int=0), text="x"), "room_unknown"),
    ]
    for frame, name in answers:
        assert world.ask(anna, frame).name == name
    world.send(anna, frames.Topic(room_id=unknown, text="x", request="u"))
    world.settle()
    assert errors(world.take(anna)) == ["room_unknown"]
    number, answer = 10**6, {"error": 3105, "reason": "full"}
    world.held = []
    world.send(anna, frames.Topic(room_id=world.room_id, text="x", request="f"))
    ((_, number, _),) = world.held
    world.edge.objects.on_answer(number, answer)
    (error,) = world.take(anna)
    assert (error.name, error.temporary, error.request) == ("objects_full", True, "f")


def test_without_objects_frames_are_refused_and_while_they_are_away_one_may_ask_again() -> None:
    world, anna, bob = pair()
    world.follow(bob)
    world.held = []
    world.send(anna, frames.Topic(room_id=world.room_id, text="lost?", request="t"))
    world.edge.objects.on_detached()
    assert errors(world.take(anna)) == ["unavailable"]
    assert world.ask(anna, frames.Presence(state="online")).name == "unavailable"
    world.held = None
    world.objects.set_topic(ROOM, "meanwhile")
    world.replica.write()
    world.edge.objects.on_attached()
    world.tick(2)
    (state,) = [one for one in world.take(bob) if type(one) is frames.ObjectState]
    assert [one.text for one in state.items if one.kind == "topic"] == ["meanwhile"]
    world.edge.objects.exists = False
    assert world.ask(anna, frames.Profile(name="x")).name == "object_refused"


def test_a_follower_who_does_not_keep_up_is_given_the_state_anew() -> None:
    world, anna, bob = pair()
    world.follow(anna)
    world.follow(bob)
    world.edge.on_blocked(bob)
    for text in ("one", "two", "three"):
        world.objects.set_topic(ROOM, text)
        world.write()
    assert [row[2] for row in world.told(anna)] == ["one", "two", "three"]
    assert world.take(bob) == []
    world.edge.on_writable(bob)
    world.tick(2)
    (state,) = world.take(bob)
    assert [one.text for one in state.items if one.kind == "topic"] == ["three"]
    assert SESSION_OUT_MAX > 0


def test_who_leaves_is_told_no_more_and_who_may_not_read_any_more_neither() -> None:
    world, anna, bob = pair()
    for session in (anna, bob):
        world.follow(session)
    world.send(anna, UnsubscribeRoom(room_id=world.room_id))
    world.send(bob, RefreshToken(token=token("bob", rights={"other": ["read"]})))
    world.take(anna)
    world.take(bob)
    world.objects.set_topic(ROOM, "x")
    world.write()
    assert world.take(anna) == world.take(bob) == []
    assert not world.edge.objects.rooms


def test_who_is_there_is_said_by_each_edge_and_forgotten_when_it_is_not_said_again() -> None:
    world, anna, bob = pair()
    second = world.open(number=5, name="anna")  # another device of hers
    for session in (anna, second, bob):
        world.follow(session)
    world.ask(anna, frames.Presence(state="away"))
    world.ask(second, frames.Presence(state="online"))
    world.tick(2)
    assert world.told(bob) == [("presence", "anna", "online", None, None, True)]
    assert world.said[-1]["users"] == {"anna@1": "online"}
    world.edge.on_close(second)
    world.tick(2)
    assert world.told(bob) == [("presence", "anna", "away", None, None, True)]
    world.edge.objects.on_live(
        {"kind": "present", "room": ROOM, "edge": "1.2.0", "users": {"carl@2": "online"}}
    )
    assert world.told(bob) == [("presence", "carl@2", "online", None, None, True)]
    world.edge.objects.on_live({"kind": "typing", "room": ROOM, "user": "carl@2", "types": True})
    assert world.told(bob) == [("typing", "carl@2", None, None, None, True)]
    count = len(world.said)
    world.tick(2 * PRESENCE_MS_MAX * 1_000_000 // TICK_NS)
    assert world.told(bob) == [("presence", "carl@2", "offline", None, None, True)]
    assert len(world.said) > count + 2  # ours are said again and again
    world.edge.on_close(anna)
    world.tick(2)
    assert world.told(bob) == [("presence", "anna", "offline", None, None, True)]
    assert world.said[-1]["users"] == {}
    assert world.objects.seen_ms("anna@1") > 0


def test_reactions_to_older_messages_are_asked_for() -> None:
    world, anna, _ = pair()
    messages = [UUID(f"0190b6d0-0000-7000-8000-{number:012x}") for number in range(1203)]
    for message in messages:
        world.objects.react(str(message), "bob@1", "+1", present=True, room=ROOM)
    world.replica.write()
    self_send = world.follow(anna)
    found = [one.msg_id for one in self_send if one.kind == "reaction"]
    assert found == messages[: -len(found) - 1 : -1]
    while found != messages[::-1]:
        answer = world.ask(anna, frames.ObjectRequest(room_id=world.room_id, before=found[-1]))
        assert type(answer) is frames.ObjectState and answer.before == found[-1]
        assert answer.items
        found += [one.msg_id for one in answer.items]
    assert answer.cursor is None


def test_a_profile_that_overtakes_the_presence_is_told_behind_it() -> None:
    world, anna, bob = pair()
    for session in (anna, bob):
        world.follow(session)

    def hear(**users: str) -> None:
        said = {"kind": "present", "room": ROOM, "edge": "1.2.0"}
        world.edge.objects.on_live(said | {"users": {f"{u}@2": s for u, s in users.items()}})

    # on its way the profile is faster than the word that carl is there; dora has none
    world.objects.set_profile("carl@2", product.SHOWN_NAME, "Carl C.")
    world.write()
    assert world.told(bob) == []
    hear(carl="online", dora="online")
    world.tick(2)
    presence = [("presence", f"{user}@2", "online", None, None, True) for user in ("carl", "dora")]
    profile = ("profile", "carl@2", "Carl C.", None, None, True)
    for session in (anna, bob):
        assert world.told(session) == [*presence, profile]
    # who only does something else is no newcomer
    hear(carl="away", dora="online")
    world.tick(2)
    assert [row[0] for row in world.told(bob)] == ["presence"]
    # a change that comes while he is asked for is told once
    hear()
    world.take(bob)
    world.held = []
    hear(carl="online")
    world.tick(2)
    (asked,) = [one for one in world.held if one[2]["do"] == "profiles"]
    world.held = None
    world.objects.set_profile("carl@2", product.SHOWN_NAME, "Carl D.")
    world.write()
    world.answer(asked)
    assert [row[:3] for row in world.told(bob)] == [
        ("presence", "carl@2", "online"),
        ("profile", "carl@2", "Carl D."),
    ]


def test_profiles_are_asked_for_in_batches_and_again_where_the_objects_are_busy() -> None:
    world, anna, _ = pair()
    world.follow(anna)
    users = {f"user{number:03}@2": "online" for number in range(PEOPLE_MAX + 1)}
    for user in users:
        world.objects.set_profile(user, product.SHOWN_NAME, f"of {user}")
    world.write()
    world.held = []
    world.edge.objects.on_live({"kind": "present", "room": ROOM, "edge": "2", "users": users})
    world.tick(3)
    asked = [one for one in world.held if one[2]["do"] == "profiles"]
    assert [len(one[2]["people"]) for one in asked] == [PEOPLE_MAX, 1]
    world.held = None
    world.edge.objects.on_answer(asked[0][1], {"error": ObjectsError.code, "reason": "busy"})
    world.answer(asked[1])
    world.tick(2)
    told = [row[1] for row in world.told(anna) if row[0] == "profile"]
    assert sorted(told) == sorted(users)


def test_who_follows_a_room_is_told_the_own_profile_also_before_being_there() -> None:
    world, anna, _ = pair()
    users = {f"a{number:03}@2": "online" for number in range(PEOPLE_MAX)}
    world.edge.objects.on_live({"kind": "present", "room": ROOM, "edge": "2", "users": users})
    assert world.ask(anna, frames.Profile(name="Anna A.")).changed
    items = world.follow(anna)
    assert [item.text for item in items if (item.kind, item.author) == ("profile", "anna")] == [
        "Anna A."
    ]
    assert [item.author for item in items if item.kind == "presence"] == sorted(users)
