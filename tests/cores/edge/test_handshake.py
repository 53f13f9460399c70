"""A token that came with the handshake: judged before there is a connection, and again at hello."""

import pytest

from appliance.cores.edge.session import Session
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client_errors import RateLimited, TokenExpired, TokenInvalid
from tests.cores.edge.world import ENCODINGS, START_US, World, device, token

ADDRESS = "10.0.0.1"
SECOND_US = 1_000_000


def opened(world: World, brought: str) -> Session:
    """A connection whose handshake brought this token."""
    claims = world.edge.admit(ADDRESS, brought)
    return world.edge.on_open(ADDRESS, ENCODINGS[True], claims)


def said(world: World, session: Session, brought: str | None = None) -> str:
    """What hello is answered with: the class, or the name of the error."""
    world.send(session, Hello(token=brought, client_id=device(1)))
    (frame,) = world.take(session)
    return frame.name if type(frame) is ErrorFrame else type(frame).__name__


def test_hello_needs_no_token_behind_a_handshake_that_brought_one() -> None:
    world = World()
    assert said(world, opened(world, token())) == Welcome.__name__
    assert said(world, opened(world, token()), token()) == Welcome.__name__


def test_hello_without_a_token_is_refused_where_the_handshake_brought_none() -> None:
    world = World()
    session = world.edge.on_open(ADDRESS, ENCODINGS[True])
    assert said(world, session) == "token_invalid"
    assert world.closed[session.number] == "token_invalid"


def test_a_bad_token_is_refused_at_the_handshake_and_counted() -> None:
    world = World()
    with pytest.raises(TokenInvalid):
        world.edge.admit(ADDRESS, token(iss="another"))
    with pytest.raises(TokenExpired):
        world.edge.admit(ADDRESS, token(exp=START_US // SECOND_US - 1))
    assert world.edge.counters["error_token_invalid"] == 1
    assert world.edge.counters["error_token_expired"] == 1


def test_a_token_that_ended_between_handshake_and_hello_opens_nothing() -> None:
    world = World()
    session = opened(world, token(exp=START_US // SECOND_US + 1))
    world.tick(100)
    assert said(world, session) == "token_expired"


def test_a_key_that_went_between_handshake_and_hello_opens_nothing() -> None:
    world = World()
    session = opened(world, token())
    world.tokens.keys = {}
    world.edge.on_keys()
    assert said(world, session) == "token_key_unknown"


def test_the_token_of_hello_is_of_the_author_of_the_handshake() -> None:
    world = World()
    session = opened(world, token("anna"))
    assert said(world, session, token("bert")) == "token_invalid"


def test_tokens_at_the_handshake_count_against_the_rate_of_their_address() -> None:
    world = World(rates={"address_rate": 1})
    with pytest.raises(RateLimited):
        while True:
            world.edge.admit(ADDRESS, token())
    assert world.edge.counters["error_rate_limited"] == 1


def test_one_token_counts_once_whether_it_comes_with_the_handshake_or_with_hello() -> None:
    world = World(rates={"address_rate": 1})
    session = opened(world, token())
    with pytest.raises(RateLimited):
        while True:
            world.edge.admit(ADDRESS, token())
    assert said(world, session) == Welcome.__name__
