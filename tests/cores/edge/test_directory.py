"""The directory as an edge hands it to clients, and a node that the operator keeps out of it."""

import pytest

from appliance.formats.client.connection import ErrorFrame, NextNode, Ping, Pong
from appliance.formats.client.directory import DirectoryAnswer, DirectoryRequest
from appliance.formats.client.sign_in import Hello
from tests.cores.edge.world import ENCODINGS, World, device, errors, token

SIGNED = '{"content":{"words":"grüße \\" \\\\ \\n"},"signature":"00"}'
PLACES = ("wss://10.0.0.2:1/v1", "wss://10.0.0.3:1/v1")


@pytest.mark.parametrize("binary", [True, False])
def test_a_client_gets_the_signed_bytes_unchanged_in_both_encodings(binary: bool) -> None:
    world = World()
    session = world.open(binary=binary)
    world.send(session, DirectoryRequest(request="before"))
    assert world.take(session) == [DirectoryAnswer(version=0, signed="", request="before")]
    world.edge.on_directory(SIGNED.encode(), 7, ())
    world.send(session, DirectoryRequest(request="d"))
    (answer,) = world.take(session)
    assert answer == DirectoryAnswer(version=7, signed=SIGNED, request="d")
    assert answer.signed.encode() == SIGNED.encode()


def test_a_large_directory_costs_more_than_one_message_and_one_too_large_is_refused() -> None:
    world = World(rates={"user_rate": 40})
    session = world.open()
    world.edge.on_directory(b'"' * 400_000, 7, ())
    world.send(session, DirectoryRequest())
    world.send(session, *[DirectoryRequest()])
    answers = world.take(session)
    while type(answers[-1]) is DirectoryAnswer:
        world.send(session, DirectoryRequest())
        answers += world.take(session)
    assert len(answers) < 10 and errors(answers[-1:]) == ["rate_limited"]
    world = World()
    session = world.open()
    world.edge.on_directory(b"x" * 600_000, 8, ())
    world.send(session, DirectoryRequest())
    assert errors(world.take(session)) == ["limit_reached"]


def test_clients_of_an_excluded_node_are_sent_to_others_until_it_is_let_in_again() -> None:
    world = World()
    there = [world.open(number=number) for number in (1, 2)]
    world.edge.on_directory(b"{}", 7, PLACES)
    world.step()
    told = [world.take(session) for session in there]
    assert [errors(frames[1:]) for frames in told] == [["go_elsewhere"]] * 2
    named = {(first.url, error.detail.split()[-1], first.spread) for first, error in told}
    assert named == {(place, place, 4) for place in PLACES}  # not all to the same one
    assert {world.closed[session.number] for session in there} == {"go_elsewhere"}
    comer = world.edge.on_open("10.0.0.1", ENCODINGS[True])
    world.send(comer, Hello(token=token(), client_id=device(3), request="h"))
    sent_to, refusal = world.take(comer)
    assert isinstance(sent_to, NextNode) and sent_to.url in PLACES and not sent_to.spread
    assert isinstance(refusal, ErrorFrame) and refusal.name == "go_elsewhere"
    assert refusal.temporary and refusal.request == "h"
    assert world.closed[comer.number] == "go_elsewhere"
    world.edge.on_directory(b"{}", 8, ())
    session = world.open(number=4)
    world.send(session, Ping())
    assert world.take(session) == [Pong()]


def test_a_stranger_is_not_told_where_to_go() -> None:
    world = World()
    world.edge.on_directory(b"{}", 7, PLACES)
    comer = world.edge.on_open("10.0.0.1", ENCODINGS[True])
    world.send(comer, Hello(token="no token", client_id=device(3)))
    assert errors(world.take(comer)) == ["token_invalid"]
