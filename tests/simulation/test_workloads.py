"""Workloads deal what was asked for, repeat themselves, and notice wrong answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import WINDOW_LENGTH
from appliance.simulation.workloads.audience import Audience
from appliance.simulation.workloads.chatter import Ack, Chatter


@given(st.integers(1, 20), st.integers(1, 12), st.integers(1, 2048))
def test_chatter_deals_all_in_flight_and_never_more_than_is_remembered(
    rooms, devices, in_flight
) -> None:
    devices = min(devices, in_flight)
    in_flight = min(in_flight, rooms * devices * WINDOW_LENGTH)
    chatter = Chatter(rooms=rooms, devices=devices, in_flight=in_flight, body_size=10)
    assert sum(flow.depth for flow in chatter.flows) == in_flight
    assert all(1 <= flow.depth <= WINDOW_LENGTH for flow in chatter.flows)
    assert len({(flow.device, flow.room) for flow in chatter.flows}) == len(chatter.flows)
    assert len(chatter.start()) == devices and len(chatter.setup()) == rooms


def test_chatter_bodies_have_the_size_asked_for() -> None:
    chatter = Chatter(rooms=2, devices=2, in_flight=4, body_size=256)
    assert {len(chatter.body(flow)) for flow in chatter.flows} == {256}


def test_chatter_accepts_right_answers_and_names_wrong_ones() -> None:
    chatter = Chatter(rooms=1, devices=2, in_flight=2, body_size=10)
    one, two = chatter.flows
    good = [Ack(one, 1, 1), Ack(two, 1, 2), Ack(one, 2, 3)]
    assert chatter.check(good) == []
    assert "follows 1" in chatter.check([good[0], Ack(one, 3, 4)])[0]
    assert "op 1 follows 1" in chatter.check([good[0], Ack(one, 2, 1)])[0]
    assert "told to" in chatter.check([good[0], Ack(two, 1, 1)])[0]


@pytest.mark.parametrize(
    ("ops", "complaint"),
    [
        ([4, 5], "2 of 3"),
        ([4, 6, 5], "out of order"),
        ([4, 4, 5], "out of order"),
    ],
)
def test_audience_names_a_listener_that_missed_something(ops: list[int], complaint: str) -> None:
    audience = Audience(listeners=2, messages=3, window=2, body_size=10)
    assert audience.check([[4, 5, 6], [4, 5, 6]]) == []
    assert complaint in audience.check([[4, 5, 6], ops])[0]


def test_audience_holds_the_speaker_back() -> None:
    audience = Audience(listeners=2, messages=10, window=4, body_size=10)
    assert [audience.allowed(n) for n in (0, 3, 8)] == [4, 7, 10]
