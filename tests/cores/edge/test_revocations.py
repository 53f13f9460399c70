"""Tokens that an operator takes back: at once, and also by an edge that begins later."""

import os
from typing import Any

import pytest

from appliance.base import limits
from appliance.cores.edge.revocations import Revocations
from appliance.cores.edge.session import Session
from appliance.formats import record as rec
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client_errors import TokenInvalid, TokenRevoked
from appliance.formats.geometry import SMALL
from appliance.formats.revocation import Revocation, decode_revocation, encode_revocation
from tests.cores.edge.world import ENCODINGS, START_US, World, device, errors, token

LIFE_S = limits.TOKEN_LIFE_S_DEFAULT


def world() -> World:
    made = World(revocations=Revocations(LIFE_S))
    made.tick()
    return made


def audit(world: World, body: bytes, seq: int) -> None:
    """An audit record is committed; the edge has not heard of it yet."""
    shard = world.shard
    empty = {"count": 0, "head": bytes(32), "created": 0, "sealed": 0}
    shard.rooms.setdefault(rec.SHARD_ROOM_ID, empty)
    raw = rec.encode(
        room_id=rec.SHARD_ROOM_ID,
        msg_id=os.urandom(16),
        author_id=0,
        body=body,
        client_id=bytes(15) + b"o",
        client_seq=seq,
        kind=rec.KIND_AUDIT,
    )
    shard.apply(raw)


def revoke(world: World, claim: str, value: str, seq: int = 1) -> None:
    audit(world, encode_revocation(Revocation(claim, value), node="node0", at_us=0), seq)


def hello(world: World, sent: str) -> Session:
    session = world.edge.on_open("10.0.0.1", ENCODINGS[False])
    world.send(session, Hello(token=sent, client_id=device(9)))
    return session


def test_a_revoked_user_leaves_at_once_and_nobody_else() -> None:
    one = world()
    anna, other, bert = one.open(), one.open(number=2), one.open(number=3, name="bert")
    revoke(one, "sub", "anna")
    one.publish()
    for session in (anna, other):
        assert errors(one.take(session)) == ["token_revoked"]
        assert one.closed[session.number] == "token_revoked"
    assert one.take(bert) == [] and not one.closed[bert.number]
    assert one.closed[hello(one, token("anna")).number] == "token_revoked"
    one.now_us += 2 * limits.CLOCK_SKEW_US
    one.tick()
    later = hello(one, token("anna", iat=one.now_us // 1_000_000))
    assert [type(frame) for frame in one.take(later)] == [Welcome]


NOW_S, SKEW_S = START_US // 1_000_000, limits.CLOCK_SKEW_US // 1_000_000
# what the token says of its beginning, and whether it may have been there
ISSUED: dict[str, tuple[dict[str, Any], bool]] = {
    "an hour before": ({"iat": NOW_S - 3600}, True),
    "before": ({"iat": NOW_S - 1}, True),
    "at once": ({"iat": NOW_S}, True),
    "in parts of a second": ({"iat": NOW_S + 0.75}, True),
    "by a clock ahead": ({"iat": NOW_S + 1}, True),
    "by a clock ahead as far as is allowed": ({"iat": NOW_S + SKEW_S}, True),
    "by a clock ahead, to begin earlier": ({"iat": NOW_S + SKEW_S, "nbf": NOW_S - 10}, True),
    "nobody says when": ({"iat": None, "nbf": None}, True),
    "nobody says when, to begin late": ({"iat": None, "nbf": NOW_S + 2 * SKEW_S}, True),
    "a minute later": ({"iat": NOW_S + SKEW_S + 1}, False),
    "an hour later, to begin earlier": ({"iat": NOW_S + 3600, "nbf": NOW_S - 10}, False),
}


@pytest.mark.parametrize("when", ISSUED)
def test_of_a_user_each_token_is_meant_that_may_have_been_there(when: str) -> None:
    """At once, and for as long as it lives; by an edge that begins later, too."""
    claims, is_meant = ISSUED[when]
    sent = token("anna", exp=NOW_S + LIFE_S - 3600, **claims)
    one = world()
    revoke(one, "sub", "anna")
    one.publish()
    for now_s in (NOW_S, NOW_S + SKEW_S, NOW_S + 3 * SKEW_S, NOW_S + 3600, NOW_S + LIFE_S - 3601):
        one.now_us = now_s * 1_000_000
        one.tick()
        if max(claims.get("iat") or 0, claims.get("nbf") or 0) > now_s + SKEW_S:
            continue  # not valid yet
        frames = one.take(hello(one, sent))
        if is_meant:
            assert errors(frames) == ["token_revoked"], now_s
        else:
            assert [type(frame) for frame in frames] == [Welcome], now_s


def test_a_revocation_is_remembered_until_the_last_token_that_it_means_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("appliance.cores.edge.revocations.REVOCATIONS_MAX", 10)
    sent = token("anna", iat=NOW_S + SKEW_S, exp=NOW_S + SKEW_S + LIFE_S)
    revocations = Revocations(LIFE_S)
    one = World(revocations=revocations)
    one.tick()
    revoke(one, "sub", "anna")
    one.publish()
    end_us = START_US + LIFE_S * 1_000_000 + limits.CLOCK_SKEW_US - 10_000_000
    for number in range(10):  # others crowd it, just before that end, and older ones go first
        revocations._note(("sub", f"user{number}"), end_us if number > 1 else START_US - 1)
    one.now_us = end_us
    one.tick()
    assert len(revocations) == 9
    assert errors(one.take(hello(one, sent))) == ["token_revoked"]


def test_an_edge_that_begins_late_reads_as_far_back_as_a_token_lives() -> None:
    past = world()
    revoke(past, "sub", "anna")
    for seq in range(2, 2 * limits.REVOCATIONS_PAGE):
        audit(past, b"{}", seq)
    sent = token("anna", iat=NOW_S + SKEW_S, exp=NOW_S + SKEW_S + LIFE_S)
    fresh = World(revocations=Revocations(LIFE_S), attached=False)
    fresh.shard = past.shard
    fresh.now_us = START_US + LIFE_S * 1_000_000 + limits.CLOCK_SKEW_US - 10_000_000
    fresh.attach()
    fresh.tick(5)
    assert fresh.closed[hello(fresh, sent).number] == "token_revoked"


def test_a_token_is_revoked_by_its_name_and_others_of_its_user_stay() -> None:
    one = world()
    stolen, kept = hello(one, token(jti="stolen")), hello(one, token(jti="kept"))
    one.take(stolen), one.take(kept)
    revoke(one, "jti", "stolen")
    one.publish()
    assert errors(one.take(stolen)) == ["token_revoked"]
    assert not one.closed[kept.number]
    with pytest.raises(TokenRevoked):
        one.edge.admit("10.0.0.1", token(jti="stolen"))


def test_an_edge_that_begins_reads_what_was_said_before_it() -> None:
    past = world()
    bert = past.open(name="bert")
    room = past.room(bert)
    revoke(past, "sub", "anna")
    seqs = iter(range(2, 10_000))
    while len(past.shard.log) < 3 * SMALL.segment_records:  # in a sealed segment, pages ago
        audit(past, b'{"act":{"do":"something else"}}', next(seqs))
    past.say(bert, room, 1, 20)
    past.settle()
    revocations = Revocations(LIFE_S)
    fresh = World(revocations=revocations, attached=False)
    fresh.shard = past.shard
    fresh.attach()
    fresh.tick(2 + len(past.shard.log) // limits.REVOCATIONS_PAGE)
    room_read = fresh.edge.lookup.shard_room
    assert room_read is not None and room_read.is_read and len(revocations) == 1
    assert fresh.closed[hello(fresh, token("anna")).number] == "token_revoked"


def test_what_was_revoked_before_any_token_was_issued_is_not_looked_for() -> None:
    past = world()
    for seq in range(1, 4 * limits.REVOCATIONS_PAGE):
        audit(past, b"{}", seq)
    fresh = World(revocations=Revocations(LIFE_S), attached=False)
    fresh.shard, fresh.now_us = past.shard, START_US + 2 * LIFE_S * 1_000_000
    fresh.attach()
    fresh.tick(3)
    room = fresh.edge.lookup.shard_room
    assert room is not None and room.is_read
    assert room._next_op > limits.REVOCATIONS_PAGE


def test_a_replica_that_has_no_tables_is_asked_again() -> None:
    past = world()
    revoke(past, "sub", "anna")
    revocations = Revocations(LIFE_S)
    fresh = World(revocations=revocations, attached=False)
    fresh.shard, fresh.rooms_here = past.shard, False
    fresh.attach()
    fresh.tick(30)
    room = fresh.edge.lookup.shard_room
    assert room is not None and not room.is_read
    fresh.rooms_here = True
    fresh.tick(30)
    assert room.is_read and len(revocations) == 1


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.cores.edge.revocations.REVOCATIONS_MAX", 100)
    revocations = Revocations(LIFE_S)
    one = World(revocations=revocations)
    one.tick()
    for seq in range(1, 1000):
        revoke(one, "jti", f"t{seq}", seq)
        one.publish()
    assert 80 <= len(revocations) <= 100
    with pytest.raises(TokenRevoked):
        one.edge.admit("10.0.0.1", token(jti="t999"))  # the newest stay


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"{}", b'{"act":5}', b'{"act":{"do":"revoke_token"}}',
        b'{"act":{"do":"revoke_token","sub":5}}', b'{"act":{"do":"revoke_token","sub":""}}',
        b'{"act":{"do":"revoke_token","sub":"' + b"x" * 129 + b'"}}', b"\xff", b"[" * 5000,
        b'{"act":{"do":"exclude","sub":"anna"}}',
    ],
)  # fmt: skip
def test_any_other_audit_record_revokes_nothing(body: bytes) -> None:
    assert decode_revocation(body) is None


def test_a_name_of_a_token_is_text() -> None:
    for jti in (5, ["x"], "x" * 129):
        with pytest.raises(TokenInvalid, match="jti"):
            world().edge.admit("10.0.0.1", token(jti=jti))
