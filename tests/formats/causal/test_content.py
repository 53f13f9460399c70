"""What a room's message carries across sites, and that a relay cannot change it."""

from dataclasses import replace
from typing import Any

import pytest

from appliance.base.errors import CausalRefused
from appliance.base.signature import SigningKey
from appliance.formats.causal import content
from appliance.formats.causal.content import RoomMessage

KEY = SigningKey(bytes(range(32)))
PLACE = {"channel": "general", "site": "north", "lamport": 1700000000123}
MESSAGE = RoomMessage(
    kind=0,
    msg_id=bytes(range(16)),
    author_id=42,
    author="Zoë",
    time_us=1700000000123456,
    seq=7,
    body="Grüße".encode(),
    parent_id=bytes(16),
    part=1,
    parts=3,
)


def refused(data: bytes, **changed: object) -> str:
    with pytest.raises(CausalRefused) as caught:
        content.open_content(data, KEY.public, **(PLACE | changed))
    return caught.value.reason


def test_a_sealed_message_is_opened_as_it_was() -> None:
    sealed = content.seal(MESSAGE, KEY, **PLACE)
    assert content.open_content(sealed, KEY.public, **PLACE) == MESSAGE
    named = replace(MESSAGE, message_id=bytes(range(32)))
    again = content.open_content(content.seal(named, KEY, **PLACE), KEY.public, **PLACE)
    assert again == named
    assert sealed == content.seal(MESSAGE, KEY, **PLACE)


def test_no_other_channel_site_or_place_in_the_order_is_accepted() -> None:
    sealed = content.seal(MESSAGE, KEY, **PLACE)
    assert refused(sealed, channel="other") == "content_signature"
    assert refused(sealed, site="south") == "content_signature"
    assert refused(sealed, lamport=1700000000124) == "content_signature"


def test_a_changed_octet_anywhere_is_refused() -> None:
    sealed = content.seal(MESSAGE, KEY, **PLACE)
    for at in range(len(sealed)):
        forged = bytearray(sealed)
        forged[at] ^= 1
        assert refused(bytes(forged)) in ("content", "content_signature")


def test_another_sites_key_is_refused() -> None:
    other = SigningKey(bytes(32))
    assert refused(content.seal(MESSAGE, other, **PLACE)) == "content_signature"


@pytest.mark.parametrize(
    "wrong",
    [
        {"msg_id": b"x"},
        {"parent_id": b"x"},
        {"author": "a" * 300},
        {"part": 3},
        {"parts": 0},
        {"parts": 10_000},
        {"seq": 0},
        {"body": bytes(2049)},
        {"message_id": bytes(31)},
    ],
    ids=str,
)
def test_a_field_out_of_range_is_refused_though_the_site_signed_it(wrong: dict[str, Any]) -> None:
    sealed = content.seal(replace(MESSAGE, **wrong), KEY, **PLACE)
    assert refused(sealed) == "content_field"


def test_more_than_its_cap_is_refused_before_it_is_read() -> None:
    assert refused(bytes(5000)) == "content_size"
