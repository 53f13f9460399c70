"""What a node's processes agree on: identifiers, reset tokens, Retry tokens."""

import pytest

from appliance.base.limits import QUIC_RETRY_S_MAX
from appliance.drivers.network.quic.keys import PortKeys

SECRET, OTHER = bytes(32), bytes([1]) * 32
ADDRESS, RETRY_ID, ORIGINAL = b"\x7f\x00\x00\x01\x12\x34", b"retry-id", b"original identifier"
NOW = 1_800_000_000.5


def token(keys: PortKeys, at_s: float = NOW) -> bytes:
    return keys.retry_token(ADDRESS, RETRY_ID, ORIGINAL, at_s)


def test_a_token_of_one_process_is_good_for_another_of_the_node() -> None:
    made = token(PortKeys(SECRET, 0))
    assert PortKeys(SECRET, 5).open_retry(made, ADDRESS, RETRY_ID, NOW + 1) == ORIGINAL
    assert PortKeys(OTHER, 0).open_retry(made, ADDRESS, RETRY_ID, NOW + 1) is None


@pytest.mark.parametrize(
    ("address", "retry_id", "after_s"),
    [
        (ADDRESS[:-1] + b"\x35", RETRY_ID, 1),
        (b"\x7f\x00\x00\x02\x12\x34", RETRY_ID, 1),
        (ADDRESS, b"other-id", 1),
        (ADDRESS, RETRY_ID, QUIC_RETRY_S_MAX + 0.1),
        (ADDRESS, RETRY_ID, -2),
    ],
    ids=["port", "address", "identifier", "old", "future"],
)
def test_a_token_is_bound_to_address_identifier_and_time(
    address: bytes, retry_id: bytes, after_s: float
) -> None:
    keys = PortKeys(SECRET, 0)
    assert keys.open_retry(token(keys), address, retry_id, NOW + after_s) is None
    assert keys.open_retry(token(keys), ADDRESS, RETRY_ID, NOW + QUIC_RETRY_S_MAX) == ORIGINAL


def test_a_token_outlives_the_hour_and_no_bit_of_it_may_change() -> None:
    keys = PortKeys(SECRET, 0)
    end = 3600 * 500_000 - 5.0
    made = token(keys, end)
    assert token(keys, end + 10)[0] != made[0]
    assert keys.open_retry(made, ADDRESS, RETRY_ID, end + 10) == ORIGINAL
    for place in range(len(made)):
        changed = bytearray(made)
        changed[place] ^= 1
        assert keys.open_retry(bytes(changed), ADDRESS, RETRY_ID, end + 10) is None
    assert keys.open_retry(made[:20], ADDRESS, RETRY_ID, end + 10) is None
    assert keys.open_retry(b"", ADDRESS, RETRY_ID, end + 10) is None


def test_identifiers_name_their_process_and_reset_tokens_survive_it() -> None:
    keys = PortKeys(SECRET, 7)
    made = {keys.new_id() for _ in range(1000)}
    assert len(made) == 1000
    assert {PortKeys.owner_of(one) for one in made} == {7}
    one = made.pop()
    assert PortKeys(SECRET, 7).reset_token(one) == keys.reset_token(one)
    assert PortKeys(OTHER, 7).reset_token(one) != keys.reset_token(one)
    assert keys.reset_token(made.pop()) != keys.reset_token(one)
