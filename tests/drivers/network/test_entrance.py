"""Strangers at the entrance, by a clock that is told: who is served, who waits, who gives way."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import (
    HELLO_MS_MAX,
    STRANGER_STEP_MS,
    STRANGERS_MAX,
    STRANGERS_SILENT_MAX,
    STRANGERS_WAITING_MAX,
    TURNED_AWAY_MAX,
    TURNED_AWAY_RATE,
)
from appliance.drivers.network import entrance as entrance_module
from appliance.drivers.network.entrance import Entrance, Visitor, address_of

STEP_S = STRANGER_STEP_MS / 1000


class Someone(Visitor):
    """Who notes what becomes of him."""

    def __init__(self, entrance: Entrance, address: str) -> None:
        self._entrance, self.address = entrance, address
        self.is_served = self.is_expelled = False

    def enter(self) -> None:
        assert not self.is_served and not self.is_expelled
        self.is_served = True

    def expel(self) -> None:
        assert not self.is_expelled
        self.is_expelled = True
        self._entrance.forget(self)  # as a transport does, soon


class Port:
    """An entrance and its clock."""

    def __init__(self, address_rate: int = 250) -> None:
        self.counters: Counter[str] = Counter()
        self.entrance = Entrance(
            visitors_max=10**6,
            visitors_per_address_max=10**6,
            address_rate=address_rate,
            counters=self.counters,
        )
        self.now_s = 0.0

    def arrives(self, address: str = "a") -> Someone:
        one = Someone(self.entrance, address)
        assert self.entrance.arrive(one, self.now_s)
        return one

    def speaks(self, address: str = "a") -> Someone:
        one = self.arrives(address)
        self.entrance.speak(one, one.enter, self.now_s)
        return one

    def check(self) -> None:
        """What holds at any time."""
        entrance = self.entrance
        assert entrance._served.count <= STRANGERS_MAX
        assert entrance._silent.count <= STRANGERS_SILENT_MAX
        assert entrance._waiting.count <= STRANGERS_WAITING_MAX
        assert set(entrance._enter) == {
            one for row in entrance._waiting._rows.values() for one in row
        }
        for stage in (entrance._silent, entrance._waiting, entrance._served):
            assert stage.count == sum(map(len, stage._rows.values()))
            assert all(stage._rows.values())
            for row in stage._rows.values():
                assert row.keys() <= entrance.visitors.keys()
                assert list(row.values()) == sorted(row.values())


def test_a_crowd_of_one_address_waits_for_its_turn_and_nobody_of_it_gives_way() -> None:
    port = Port()
    crowd = [port.speaks() for _ in range(1000)]
    assert [one.is_served for one in crowd] == [True] * STRANGERS_MAX + [False] * 744
    for number, one in enumerate(crowd):  # each says hello a while after it was served
        assert one.is_served and not one.is_expelled, number
        port.now_s += 0.002
        port.entrance.welcome(one)
        port.check()
    assert port.entrance.strangers == 0 and not port.counters["stranger_displaced"]


def test_who_has_sent_nothing_is_displaced_by_who_has_sent_nothing() -> None:
    port = Port(address_rate=10**6)
    spoken = [port.speaks() for _ in range(STRANGERS_MAX + 10)]
    silent = [port.arrives() for _ in range(STRANGERS_SILENT_MAX + 100)]
    assert [one.is_expelled for one in silent] == [True] * 100 + [False] * STRANGERS_SILENT_MAX
    assert not any(one.is_expelled for one in spoken)
    port.check()


def test_of_those_who_say_nothing_the_address_with_most_gives_way() -> None:
    port = Port(address_rate=10**6)
    lone = port.arrives("lone")
    crowd = [port.arrives() for _ in range(STRANGERS_SILENT_MAX)]
    assert not lone.is_expelled
    assert [one.is_expelled for one in crowd] == [True] + [False] * (len(crowd) - 1)


def test_somebody_of_another_address_is_served_at_once() -> None:
    port = Port()
    crowd = [port.speaks() for _ in range(STRANGERS_MAX + 50)]
    lone = port.speaks("b")
    assert lone.is_served
    assert [number for number, one in enumerate(crowd) if one.is_expelled] == [0]
    port.check()


def test_addresses_that_both_have_a_crowd_share_and_then_wait() -> None:
    port = Port()
    for _ in range(STRANGERS_MAX):
        port.speaks("a")
    others = [port.speaks("b") for _ in range(STRANGERS_MAX)]
    assert sum(one.is_served for one in others) == STRANGERS_MAX // 2
    assert port.entrance._served.of("a") == STRANGERS_MAX // 2
    assert not any(one.is_expelled for one in others)
    port.check()


def test_who_makes_no_step_gives_way_to_who_waits_and_who_does_stays() -> None:
    port = Port()
    served = [port.speaks() for _ in range(STRANGERS_MAX)]
    waiting = [port.speaks() for _ in range(5)]
    port.now_s += STEP_S - 0.1
    for one in served[:10]:
        port.entrance.advance(one, port.now_s)
    assert port.entrance.relieve(port.now_s)
    assert not any(one.is_served for one in waiting)
    port.now_s += 0.2
    assert not port.entrance.relieve(port.now_s)
    assert all(one.is_served for one in waiting)
    assert [number for number, one in enumerate(served) if one.is_expelled] == [*range(10, 15)]
    port.check()


def test_when_too_many_wait_the_newest_of_the_largest_crowd_is_turned_away() -> None:
    port = Port(address_rate=10**6)
    crowd = [port.speaks() for _ in range(STRANGERS_MAX + STRANGERS_WAITING_MAX)]
    assert not any(one.is_expelled for one in crowd)
    late = port.speaks()
    assert late.is_expelled and not late.is_served
    for _ in range(STRANGERS_MAX // 2):
        port.speaks("b")  # until both have as many
    waiting = [one for one in crowd if not one.is_served and not one.is_expelled]
    other = port.speaks("b")
    assert not other.is_expelled
    assert waiting[-1].is_expelled and not waiting[0].is_expelled
    port.check()


@pytest.mark.parametrize(
    ("rate", "share"), [(1, 10), (10, 100), (25, 250), (26, STRANGERS_MAX), (250, STRANGERS_MAX)]
)
def test_an_address_is_served_as_often_as_it_may_come_within_the_time_of_a_hello(
    rate: int, share: int
) -> None:
    assert share == min(STRANGERS_MAX, rate * HELLO_MS_MAX // 1000)
    port = Port(rate)
    while port.entrance.strangers < share + 1:
        port.now_s += 0.0001 + max(0.0, port.entrance._paces.get("a", 0.0) - port.now_s)
        for row in port.entrance._served._rows.values():
            for one in row:
                row[one] = port.now_s  # they are not late
        one = port.speaks()
    assert port.entrance._served.count == share and not one.is_served
    assert port.speaks("b").is_served
    port.check()


def test_when_all_places_of_strangers_are_taken_the_address_with_most_gives_one_up() -> None:
    port = Port()
    entrance = port.entrance
    crowd = [Someone(entrance, f"crowd-{i % 5}") for i in range(250)] + [
        Someone(entrance, "crowd-0") for _ in range(6)
    ]
    lone = Someone(entrance, "lone")
    for visitor in (*crowd, lone):
        assert entrance.admit(visitor, 0.0)
    assert [visitor.address for visitor in crowd if visitor.is_expelled] == ["crowd-0"]
    assert not lone.is_expelled
    entrance.welcome(lone)
    entrance.forget(lone)
    for visitor in crowd:
        entrance.forget(visitor)
    assert (entrance.visitors, entrance.strangers) == ({}, 0)
    assert not entrance._per_address


def test_of_those_for_whom_there_is_no_room_so_many_a_second_are_told() -> None:
    port = Port()
    port.entrance.visitors_max = 0
    told = []
    for now_s in (0.0, 1 / TURNED_AWAY_RATE, 100.0):
        came = [Someone(port.entrance, f"{now_s} {number}") for number in range(100)]
        for one in came:
            assert not port.entrance.arrive(one, now_s)
            one.is_served = port.entrance.turn_away(one, now_s)
            port.entrance.forget(one)  # it has heard it
        told.append(sum(one.is_served for one in came))
    assert told == [TURNED_AWAY_MAX, 1, TURNED_AWAY_MAX]
    assert port.entrance.refusals.told() == {"tcp": {"node_full": 300}}
    assert not port.entrance.turned_away and not port.entrance.visitors


def test_an_address_opens_connections_at_its_pace_and_others_at_theirs() -> None:
    port = Port()
    entrance = port.entrance
    came = [Someone(entrance, "a") for _ in range(1100)]
    admitted = sum(entrance.admit(visitor, 5.0) for visitor in came)
    assert admitted in (1000, 1001)
    assert port.counters["too_fast_of_address"] == len(came) - admitted
    assert entrance.admit(Someone(entrance, "b"), 5.0)
    assert entrance.admit(Someone(entrance, "a"), 6.0)


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
    ],
)
def test_who_has_many_addresses_of_one_network_counts_once(host: str, counted: str) -> None:
    assert address_of(host) == counted


def test_addresses_whose_pace_is_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance_module, "_ADDRESSES_MAX", 3)
    entrance = Port().entrance
    for i in range(10):
        entrance.admit(Someone(entrance, str(i)), 0.0)
    assert len(entrance._paces) <= 3


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "speak", "admit", "advance", "welcome", "forget", "relieve"]),
        st.sampled_from("abc"),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.01, STEP_S]),
    ),
    max_size=60,
)


@given(ACTS)
def test_whatever_they_do_the_bounds_hold_and_who_can_be_served_does_not_wait(
    acts: list[tuple[str, str, int, float]],
) -> None:
    """With few places, so that they are taken."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STRANGERS_MAX", "STRANGERS_SILENT_MAX", "STRANGERS_WAITING_MAX"):
            patch.setattr(entrance_module, name, 3)
        port = Port(address_rate=10**6)
        came: list[Someone] = []
        for act, address, number, later_s in acts:
            port.now_s += later_s
            entrance, one = port.entrance, came[number % len(came)] if came else None
            if act == "arrive":
                came.append(port.arrives(address))
            elif act == "admit":
                came.append(Someone(entrance, address))
                assert entrance.admit(came[-1], port.now_s)
            elif act == "relieve":
                entrance.relieve(port.now_s)
                served = entrance._served
                if entrance.waiting:  # all that are served had no time yet
                    assert port.now_s - served.oldest(served.crowd())[1] < STEP_S
            elif one is not None and act == "speak":
                entrance.speak(one, one.enter, port.now_s)
            elif one is not None and act == "advance":
                entrance.advance(one, port.now_s)
            elif one is not None:
                (entrance.welcome if act == "welcome" else entrance.forget)(one)
            port.check()
            assert not entrance.waiting or entrance._served.count == 3
            for stage in (entrance._silent, entrance._waiting, entrance._served):
                assert stage.count <= 3
        for one in came:
            port.entrance.forget(one)
        assert port.entrance.strangers == 0
        assert not port.entrance.visitors and not port.entrance._per_address
