"""What followers of a shared room are told, in both encodings, and what is asked for them."""

from typing import Any

from appliance.base.limits import POSITIONS_ASKED_MAX
from appliance.cores.edge.session import Session
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.federation import FederationEvent, FederationRequest, PlacedMessage
from appliance.formats.client.fields import id_bytes
from appliance.formats.client.objects import ObjectEvent
from tests.cores.edge.objects_world import ObjectsWorld

ID = "ab" * 32
PLACE = [3, "oslo", 1_800_000_000_123, ID, 1_800_000_000_000_000, 0, 1, True, False, []]
OWN = [
    2,
    "paris",
    1_800_000_000_122,
    "cd" * 32,
    1_700_000_000_000_000,
    0,
    1,
    False,
    False,
    ["oslo"],
]


def shared_room() -> tuple[ObjectsWorld, Session, Session]:
    """Anna and Bob, in binary and in JSON, follow a room that is shared."""
    world = ObjectsWorld()
    sessions = world.open(number=1, name="anna"), world.open(number=2, name="bob", binary=False)
    for session in sessions:
        world.follow(session)
    world.edge.lookup.catalogue.rooms[id_bytes(world.room_id)].is_shared = True
    return world, *sessions


def told(world: ObjectsWorld, **others: Any) -> dict[str, Any]:
    said = {"kind": "places", "room": id_bytes(world.room_id).hex(), "site": "paris", "edge": ""}
    return said | {"sites": ["oslo", "rome"], "places": [PLACE, OWN]} | others


def test_followers_are_told_order_site_and_acknowledgements_in_both_encodings() -> None:
    world, anna, bob = shared_room()
    world.edge.on_live(told(world))
    for session in (anna, bob):
        (event,) = world.take(session)
        assert isinstance(event, FederationEvent)
        assert (event.room_id, event.site, event.sites) == (world.room_id, "paris", "oslo rome")
        foreign, own = event.messages
        assert foreign == PlacedMessage(
            op=3,
            site="oslo",
            lamport=1_800_000_000_123,
            message_id=ID,
            timestamp=1_800_000_000_000_000,
            gap=True,
        )
        assert (own.op, own.site, own.acknowledged) == (2, "paris", "oslo")


def test_what_another_edge_asked_for_and_rooms_that_nobody_follows_are_not_told() -> None:
    world, anna, _ = shared_room()
    world.edge.on_live(told(world, edge="another"))
    world.edge.on_live(told(world, room="00" * 16))
    assert world.take(anna) == []
    world.edge.on_live(told(world, edge=world.edge.objects.name))
    assert len(world.take(anna)) == 1


def test_a_request_is_said_to_the_carrying_node_once_and_within_what_the_room_has() -> None:
    world, anna, bob = shared_room()
    before = len(world.said)
    asked = FederationRequest(room_id=world.room_id, from_op=0, until_op=10**6)
    world.send(bob, asked, asked)
    (said,) = [one for one in world.said[before:] if one["kind"] == "places_wanted"]
    head = world.edge.lookup.catalogue.rooms[id_bytes(world.room_id)].head
    assert (said["first"], said["last"]) == (max(1, head - POSITIONS_ASKED_MAX + 1), head)
    assert said["edge"] == world.edge.objects.name
    assert world.take(anna) == []
    stranger = world.open(number=9, name="eve", rights={"other": ["read"]})
    world.send(stranger, asked)
    (refusal,) = world.take(stranger)
    assert isinstance(refusal, ErrorFrame) and refusal.name == "forbidden"


def test_of_a_room_that_is_not_shared_nothing_is_said_and_the_client_hears_so() -> None:
    world, anna, _ = shared_room()
    world.edge.lookup.catalogue.rooms[id_bytes(world.room_id)].is_shared = False
    before = len(world.said)
    world.send(anna, FederationRequest(room_id=world.room_id, from_op=1, until_op=9))
    assert world.take(anna) == [FederationEvent(room_id=world.room_id, messages=[])]
    assert not [one for one in world.said[before:] if one["kind"] == "places_wanted"]


def test_who_types_at_another_site_is_told_as_author_at_site() -> None:
    world, anna, bob = shared_room()
    said = {"kind": "typing_afar", "room": id_bytes(world.room_id).hex(), "author": "ola@oslo"}
    world.edge.on_live(said | {"types": True})
    for session in (anna, bob):
        (event,) = world.take(session)
        assert isinstance(event, ObjectEvent)
        assert (event.kind, event.author, event.present) == ("typing", "ola@oslo", True)
