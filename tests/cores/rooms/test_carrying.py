"""What other sites made enters a room under the newest claim, of sites that may send, once."""

import pytest

from appliance.formats import event, sharing
from appliance.formats.event import CARRY_CLAIM, Shipped
from appliance.formats.geometry import SMALL
from appliance.formats.record import KIND_FEDERATED, KIND_ROOM_POLICY, KIND_SHIPPED, SHARD_ROOM_ID
from appliance.formats.session import DUPLICATE, FORBIDDEN, OK, ROOM_UNKNOWN, SEQUENCE_GAP
from appliance.formats.sharing import Federated, SharedSite, Sharing
from tests.cores.rooms.shard import Shard, create, make, shard_record

OURS, SENDS, READS, ATTACHED = "oslo", "berlin", "rome", "waku"
SHARING = Sharing(
    (
        SharedSite(OURS, b"o" * 32),
        SharedSite(SENDS, b"b" * 32),
        SharedSite(READS, b"r" * 32, sharing.RIGHT_READ),
        SharedSite(ATTACHED, b"w" * 32, sharing.RIGHT_ATTACHED),
    )
)


def claim(generation: int, *, node: int = 0, number: int = 0) -> bytes:
    body = event.encode_shipped(Shipped(CARRY_CLAIM, node, generation, number))
    return shard_record(KIND_SHIPPED, 1, body, client=700 + 10 * generation + node)


def policy(client_seq: int, value: Sharing | None, bits: int = 0) -> bytes:
    body = event.encode_policy(bits, value)
    return make(0, 600, client_seq, kind=KIND_ROOM_POLICY, body=body)


def foreign(
    client_seq: int,
    *,
    generation: int = 1,
    site: str = SENDS,
    room: int = 0,
    prefix: Federated | None = None,
) -> bytes:
    if prefix is None:
        number = sharing.site_number_of(site)
        prefix = Federated(number, 0, 1, 5, client_seq, 7, b"%32d" % client_seq)
    return make(
        room,
        sharing.carrier_client_id(generation),
        client_seq,
        author=77,
        kind=KIND_FEDERATED,
        body=sharing.encode_federated(prefix, b"from elsewhere"),
    )


def shared() -> Shard:
    """A room that three sites share, carried under the first claim."""
    shard = Shard(SMALL)
    for record in (create(0), policy(1, SHARING), claim(1)):
        assert shard.one(record).code == OK
    return shard


def test_a_record_of_a_site_that_may_send_is_taken_once() -> None:
    shard = shared()
    first = shard.one(foreign(1))
    assert (first.code, first.seq) == (OK, 3)
    assert shard.one(foreign(1)).code == DUPLICATE
    assert shard.one(foreign(3)).code == SEQUENCE_GAP
    assert shard.one(foreign(2)).seq == 4
    assert shard.one(foreign(3, site=ATTACHED)).seq == 5


@pytest.mark.parametrize("site", [READS, "paris"])
def test_a_site_that_may_not_send_is_refused(site: str) -> None:
    assert shared().one(foreign(1, site=site)).code == FORBIDDEN


def test_nothing_is_taken_before_a_claim_nor_under_another_one() -> None:
    shard = Shard(SMALL)
    for record in (create(0), policy(1, SHARING)):
        assert shard.one(record).code == OK
    assert shard.one(foreign(1, generation=0)).code == FORBIDDEN
    assert shard.one(foreign(1)).code == FORBIDDEN
    assert shard.one(claim(1)).code == OK
    assert shard.one(foreign(1)).code == OK
    assert shard.one(claim(2, node=1)).code == OK
    assert shard.rooms.carrying == (2, 1)
    assert shard.one(foreign(2)).code == FORBIDDEN  # of the carrier before
    assert shard.one(foreign(1, generation=2)).code == OK


@pytest.mark.parametrize(
    "wrong", [claim(1, node=1), claim(3), claim(2, number=1)], ids=["same", "skipped", "more"]
)
def test_a_claim_is_the_next_one_or_none(wrong: bytes) -> None:
    shard = shared()
    assert shard.one(wrong).code == FORBIDDEN
    assert shard.rooms.carrying == (1, 0)


def test_a_room_that_is_shared_takes_its_own_users_and_their_policies() -> None:
    shard = shared()
    assert shard.one(make(0, 1, 1)).code == OK
    assert shard.one(policy(2, None)).code == OK
    assert shard.one(foreign(1)).code == FORBIDDEN  # nobody shares it any more
    assert shard.one(policy(3, SHARING)).code == OK
    assert shard.one(foreign(1)).code == OK
    assert shard.one(policy(4, SHARING, event.POLICY_CLOSED)).code == OK
    assert shard.one(foreign(2)).code == FORBIDDEN
    assert shard.one(make(0, 1, 2)).code == FORBIDDEN


def test_rooms_that_are_not_shared_take_nothing_foreign() -> None:
    shard = shared()
    assert shard.one(create(1)).code == OK
    assert shard.one(foreign(1, room=1)).code == FORBIDDEN
    assert shard.one(foreign(1, room=2)).code == ROOM_UNKNOWN
    wrong = Federated(sharing.site_number_of(SENDS), 1, 1, 5, 1, 7, bytes(32))  # no such part
    assert shard.one(foreign(1, prefix=wrong)).code == FORBIDDEN
    body = sharing.encode_federated(wrong._replace(part=0), b"")
    in_shard = make(SHARD_ROOM_ID, sharing.carrier_client_id(1), 1, kind=KIND_FEDERATED, body=body)
    assert shard.one(in_shard).code == FORBIDDEN


def test_who_carries_and_who_shares_outlives_a_restart() -> None:
    shard = shared()
    shard.one(foreign(1))
    restored = shard.restarted(shard.checkpoint())
    assert restored.rooms.carrying == (1, 0)
    assert restored.one(foreign(2)).code == OK
    assert restored.one(foreign(3, site=READS)).code == FORBIDDEN
