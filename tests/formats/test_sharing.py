"""Policies of shared rooms and bodies of federated records: what is written is read, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies._internal.core import DataObject

from appliance.base.limits import SHARING_SITES_MAX
from appliance.formats import event, sharing
from appliance.formats.sharing import Federated, SharedSite, Sharing

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=30)
sites = st.builds(
    SharedSite, names, st.binary(min_size=32, max_size=32), st.sampled_from([1, 2, 3])
)
shared = st.builds(
    Sharing,
    st.lists(sites, min_size=2, max_size=SHARING_SITES_MAX, unique_by=lambda site: site.name).map(
        lambda found: tuple(sorted(found))
    ),
    st.integers(1, 1000),
    st.integers(1001, 1 << 20),
    st.integers(1, 100),
)
TWO = Sharing((SharedSite("berlin", b"b" * 32), SharedSite("oslo", b"o" * 32, 1)))


@given(shared, st.sampled_from([0, event.POLICY_CLOSED]))
def test_a_policy_of_a_shared_room_is_read_as_it_was_written(value: Sharing, bits: int) -> None:
    body = event.encode_policy(bits, value)
    assert event.decode_policy(body) == event.Policy(bits | event.POLICY_SHARED, value)


@given(shared, st.data())
def test_no_policy_is_read_from_bytes_that_are_not_one(value: Sharing, data: DataObject) -> None:
    body = bytearray(event.encode_policy(0, value))
    cut = data.draw(st.integers(0, len(body) - 1))
    assert cut == 8 or event.decode_policy(bytes(body[:cut])) is None
    assert event.decode_policy(bytes(body) + b"\0") is None
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    found = event.decode_policy(bytes(body))
    assert found is None or event.encode_policy(found.bits, found.sharing) == bytes(body)


@pytest.mark.parametrize(
    "wrong",
    [
        TWO._replace(sites=(TWO.sites[0]._replace(right=4), TWO.sites[1])),
        TWO._replace(sites=(TWO.sites[0]._replace(name="Berlin"), TWO.sites[1])),
        TWO._replace(sites=(TWO.sites[0], TWO.sites[0])),
        TWO._replace(repair_ms_min=0),
        TWO._replace(repair_ms_max=TWO.repair_ms_min),
        TWO._replace(groups=0),
    ],
    ids=["right", "name", "twice", "no minimum", "no span", "no group"],
)
def test_a_policy_that_no_site_could_follow_is_none(wrong: Sharing) -> None:
    assert event.decode_policy(event.encode_policy(0, wrong)) is None


def test_a_number_follows_from_the_name_and_leaves_its_lowest_bit_to_the_right() -> None:
    assert sharing.site_number_of("berlin") == SharedSite("berlin", bytes(32)).number
    assert all(sharing.site_number_of(f"s{i}") % 2 == 0 != sharing.site_number_of(f"s{i}")
               for i in range(1000))  # fmt: skip
    words = sharing.site_words(TWO.sites)
    assert sharing.may_send(words, TWO.sites[0].number)
    assert not sharing.may_send(words, TWO.sites[1].number)  # it only reads
    assert not sharing.may_send(words, sharing.site_number_of("rome"))
    assert not sharing.may_send(words, TWO.sites[0].number | 1)
    assert not sharing.may_send((0,) * 8, 0)


@given(
    st.builds(
        Federated,
        st.integers(0, 2**32 - 1),
        st.integers(0, 3),
        st.just(4),
        st.integers(0, 2**63 - 1),
        st.integers(1, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.binary(min_size=32, max_size=32),
    ),
    st.binary(max_size=sharing.FEDERATED_TEXT_SIZE_MAX),
)
def test_a_federated_body_is_read_as_it_was_written(prefix: Federated, text: bytes) -> None:
    body = sharing.encode_federated(prefix, text)
    assert sharing.decode_federated(body) == prefix
    assert body[sharing.FEDERATED_PREFIX_SIZE :] == text
    assert sharing.decode_federated(body[: sharing.FEDERATED_PREFIX_SIZE - 1]) is None


@pytest.mark.parametrize(
    "change",
    [{"part": 4}, {"parts": 513}, {"seq": 0}, {"lamport": 2**63}],
    ids=["part", "parts", "seq", "lamport"],
)
def test_a_federated_body_out_of_bounds_is_none(change: dict[str, int]) -> None:
    prefix = Federated(2, 0, 4, 1, 1, 1, bytes(32))._replace(**change)
    assert sharing.decode_federated(sharing.encode_federated(prefix, b"")) is None
