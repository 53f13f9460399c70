"""Who ships and how far: claims fence, a period closes when nothing can enter it any more."""

from typing import Any

import pytest

from appliance.formats import event
from appliance.formats.checkpoint import ShippingState
from appliance.formats.event import SHIP_ANNOUNCE, SHIP_CLAIM, SHIP_MANIFEST, Shipped
from appliance.formats.geometry import SMALL
from appliance.formats.record import KIND_RETAIN, KIND_SHIPPED
from appliance.formats.session import FORBIDDEN, OK
from tests.cores.rooms.shard import Shard, create, make, shard_record

START = 1_750_000_000_000_000
PERIOD = 2_000_000
HASH = b"h" * 32


class Shipping:
    """A shard with one room, and whoever writes shipped records into it."""

    def __init__(self) -> None:
        self.shard = Shard(SMALL)
        assert self.shard.one(create(0)).code == OK
        self.sent = 1
        self.number = 1

    def write(self, shipped: Shipped) -> int:
        """The code that the record is answered."""
        raw = shard_record(KIND_SHIPPED, self.number, event.encode_shipped(shipped))
        code = self.shard.one(raw).code
        self.number += code == OK
        return code

    def message(self) -> None:
        assert self.shard.one(make(0, 1, self.sent)).code == OK
        self.sent += 1

    def announcement(self, generation: int = 1, node: int = 0, **changes: int | bytes) -> Shipped:
        state, cursor = self.shard.rooms.shipping, self.shard.rooms.shipper_cursor
        newest = self.shard.rooms.log_seq
        return Shipped(
            SHIP_ANNOUNCE,
            node,
            generation,
            number=state.manifest_count,
            period_start_us=state.period_start_us or START,
            period_us=PERIOD,
            first_log_seq=cursor + 1,
            last_log_seq=newest,
            seen_log_seq=newest,
        )._replace(**changes)

    def manifest(self, announced: Shipped, **changes: int | bytes) -> Shipped:
        return announced._replace(
            action=SHIP_MANIFEST, seen_log_seq=0, manifest_hash=HASH
        )._replace(**changes)

    def pass_period(self) -> None:
        self.shard.timestamp = max(
            self.shard.timestamp, (self.shard.rooms.shipping.period_start_us or START) + PERIOD
        )


@pytest.fixture
def shipping() -> Shipping:
    return Shipping()


def test_a_period_is_announced_then_shipped_and_the_cursor_moves(shipping: Shipping) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 2, 1)) == OK
    shipping.pass_period()
    announced = shipping.announcement(node=2)
    assert shipping.write(announced) == OK
    assert shipping.shard.rooms.shipping == ShippingState(1, 2, 0, bytes(32), START, PERIOD, 3)
    assert shipping.shard.rooms.shipper_cursor == 0
    assert shipping.write(shipping.manifest(announced)) == OK
    assert shipping.shard.rooms.shipping == ShippingState(1, 2, 1, HASH, START + PERIOD, PERIOD, 0)
    assert shipping.shard.rooms.shipper_cursor == 2


def test_an_idle_period_moves_the_time_and_not_the_cursor(shipping: Shipping) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    shipping.shard.timestamp += 3 * PERIOD
    announced = shipping.announcement()
    assert shipping.write(announced) == OK
    assert shipping.write(shipping.manifest(announced)) == OK
    idle = shipping.announcement(last_log_seq=2)
    assert shipping.write(idle) == OK
    assert shipping.write(shipping.manifest(idle)) == OK
    assert shipping.shard.rooms.shipper_cursor == 2
    assert shipping.shard.rooms.shipping.manifest_count == 2


def test_nobody_ships_without_a_claim(shipping: Shipping) -> None:
    shipping.pass_period()
    assert shipping.write(shipping.announcement(generation=0)) == FORBIDDEN
    assert shipping.write(shipping.announcement()) == FORBIDDEN


@pytest.mark.parametrize("generation", [0, 2, 7])
def test_a_claim_names_the_next_generation(shipping: Shipping, generation: int) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, generation)) == FORBIDDEN
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1, seen_log_seq=1)) == FORBIDDEN


def test_of_two_claims_of_one_generation_the_first_holds(shipping: Shipping) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    assert shipping.write(Shipped(SHIP_CLAIM, 1, 1)) == FORBIDDEN
    assert shipping.shard.rooms.shipping.node == 0


def test_a_later_claim_fences_the_earlier_and_keeps_what_was_announced(shipping: Shipping) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    shipping.pass_period()
    announced = shipping.announcement()
    assert shipping.write(announced) == OK
    assert shipping.write(Shipped(SHIP_CLAIM, 1, 2)) == OK
    assert shipping.write(shipping.manifest(announced)) == FORBIDDEN
    assert shipping.write(shipping.announcement()) == FORBIDDEN
    assert shipping.write(shipping.announcement(generation=2, node=1)) == FORBIDDEN
    assert shipping.write(shipping.manifest(announced, generation=2)) == FORBIDDEN
    assert shipping.write(shipping.manifest(announced, generation=2, node=1)) == OK
    assert shipping.shard.rooms.shipper_cursor == announced.last_log_seq


def test_a_period_is_not_closed_a_microsecond_early(shipping: Shipping) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    shipping.shard.timestamp = START + PERIOD - 1 - 1000  # the record itself is 1 ms later
    assert shipping.write(shipping.announcement()) == FORBIDDEN
    shipping.shard.timestamp = START + PERIOD - 1000
    assert shipping.write(shipping.announcement()) == OK


def test_a_record_that_the_shipper_has_not_seen_refuses_its_announcement(
    shipping: Shipping,
) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    shipping.pass_period()
    announced = shipping.announcement()
    shipping.message()
    assert shipping.write(announced) == FORBIDDEN
    newest = shipping.shard.rooms.log_seq
    seen = shipping.announcement(last_log_seq=newest - 1, seen_log_seq=newest)
    shipping.message()  # later than what was seen: it cannot belong to it
    assert shipping.write(seen) == OK


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 1},
        {"period_start_us": START + 1},
        {"period_start_us": 0},
        {"period_us": 0},
        {"period_us": 1_500_000},
        {"period_us": 367 * 86_400 * 10**6},
        {"first_log_seq": 2},
        {"last_log_seq": 3},
        {"seen_log_seq": 3},
        {"seen_log_seq": 1},
        {"manifest_hash": HASH},
        {"generation": 2},
        {"node": 1},
        {"period_start_us": START + PERIOD},
        {"last_log_seq": 1 << 63},
    ],
)
def test_an_announcement_that_fits_not_is_refused(
    shipping: Shipping, changes: dict[str, Any]
) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    shipping.pass_period()
    assert shipping.write(shipping.announcement(**changes)) == FORBIDDEN
    assert shipping.write(shipping.announcement()) == OK


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 1},
        {"period_start_us": START + PERIOD},
        {"period_us": 3_000_000},
        {"first_log_seq": 2},
        {"last_log_seq": 1},
        {"seen_log_seq": 1},
        {"manifest_hash": bytes(32)},
    ],
)
def test_a_manifest_of_something_else_than_was_announced_is_refused(
    shipping: Shipping, changes: dict[str, Any]
) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    shipping.pass_period()
    announced = shipping.announcement()
    assert shipping.write(shipping.manifest(announced)) == FORBIDDEN
    assert shipping.write(announced) == OK
    assert shipping.write(shipping.announcement()) == FORBIDDEN
    assert shipping.write(shipping.manifest(announced, **changes)) == FORBIDDEN
    assert shipping.write(shipping.manifest(announced)) == OK
    assert shipping.write(shipping.manifest(announced)) == FORBIDDEN


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(88),
        bytes(48),
        event.encode_shipped(Shipped(1, 0, 1)) + b"\0",
        b"\5" + event.encode_shipped(Shipped(1, 0, 1))[1:],
    ],
)
def test_a_body_that_is_no_shipped_record_is_refused(shipping: Shipping, body: bytes) -> None:
    assert shipping.shard.one(shard_record(KIND_SHIPPED, 1, body)).code == FORBIDDEN


def test_the_state_survives_a_restart_in_the_middle_of_a_period(shipping: Shipping) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 2, 1)) == OK
    shipping.pass_period()
    announced = shipping.announcement(node=2)
    assert shipping.write(announced) == OK
    again = shipping.shard.restarted(shipping.shard.checkpoint())
    assert again.rooms.shipping == shipping.shard.rooms.shipping
    assert again.rooms.shipper_cursor == 0
    shipping.shard = again
    assert shipping.write(shipping.manifest(announced)) == OK
    assert again.restarted(again.checkpoint()).rooms.shipping == again.rooms.shipping
    again.rooms.reset()
    assert again.rooms.shipping == ShippingState()


def test_where_shipping_is_off_what_is_not_shipped_may_go_but_not_the_open_segment(
    shipping: Shipping,
) -> None:
    shipping.shard.fill(0, 1, 250)

    def retain(number: int, oldest: int) -> int:
        body = event.encode_retain(oldest, unshipped=True)
        return shipping.shard.one(shard_record(KIND_RETAIN, number, body, client=7)).code

    assert retain(1, 3) == FORBIDDEN
    assert retain(1, 2) == OK
    assert retain(2, 1) == FORBIDDEN
    rooms = shipping.shard.rooms
    assert (rooms.oldest_segment, rooms.shipper_cursor) == (2, 200)
    again = shipping.shard.restarted(shipping.shard.checkpoint())
    assert (again.rooms.oldest_segment, again.rooms.shipper_cursor) == (2, 200)


def test_what_was_announced_to_be_shipped_is_not_given_up(shipping: Shipping) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    shipping.shard.fill(0, 1, 250)
    shipping.pass_period()
    assert shipping.write(shipping.announcement(last_log_seq=199, seen_log_seq=252)) == OK
    body = event.encode_retain(1, unshipped=True)
    assert shipping.shard.one(shard_record(KIND_RETAIN, 1, body, client=7)).code == FORBIDDEN


def test_retention_never_passes_the_cursor(shipping: Shipping) -> None:
    assert shipping.write(Shipped(SHIP_CLAIM, 0, 1)) == OK
    shipping.shard.fill(0, 1, 250)
    shipping.pass_period()
    announced = shipping.announcement(last_log_seq=199, seen_log_seq=252)
    assert shipping.write(announced) == OK
    retain = [shard_record(KIND_RETAIN, 1, event.encode_retain(n), client=7) for n in range(3)]
    assert shipping.shard.one(retain[1]).code == FORBIDDEN
    assert shipping.write(shipping.manifest(announced)) == OK
    assert shipping.shard.one(retain[2]).code == FORBIDDEN
    assert shipping.shard.one(retain[1]).code == OK
