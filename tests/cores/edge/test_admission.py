"""Rate limits: how many pass, who stopped the others, when to come again."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import RATE_BURST_MS, RATE_UNLIMITED
from appliance.cores.edge.admission import Admission, Buckets
from appliance.formats.client.connection import ErrorFrame, Ping
from appliance.formats.client.fields import id_of
from appliance.formats.client.sign_in import Hello
from tests.cores.edge.world import ENCODINGS, UNLIMITED, World, errors

SECOND_NS = 1_000_000_000


def test_a_burst_passes_then_the_rate() -> None:
    buckets = Buckets("device", 100)
    burst = 100 * RATE_BURST_MS // 1000
    assert buckets.room_for("a", 0, 10_000) == burst
    buckets.take("a", 0, burst)
    assert buckets.room_for("a", 0, 1) == 0
    assert buckets.retry_after_ms("a", 0) == 10
    assert buckets.room_for("a", SECOND_NS // 2, 10_000) == 50
    assert buckets.room_for("b", 0, 10_000) == burst


def test_one_a_second_still_passes_one() -> None:
    buckets = Buckets("room", 1)
    assert buckets.room_for("a", 0, 5) >= 1


def test_the_unlimited_rate_keeps_no_state() -> None:
    buckets = Buckets("device", RATE_UNLIMITED)
    buckets.take("a", 0, 1_000_000)
    assert buckets.room_for("a", 0, 1_000_000) == 1_000_000
    assert len(buckets) == 0


def test_buckets_are_bounded_and_the_longest_unused_goes() -> None:
    buckets = Buckets("device", 10, buckets_max=3)
    for key in "abcad":
        buckets.take(key, 0, 20)
    assert len(buckets) == 3
    assert buckets.room_for("b", 0, 1) == 1  # forgotten
    assert buckets.room_for("a", 0, 1) == 0


@given(
    st.lists(st.tuples(st.integers(0, SECOND_NS), st.integers(1, 500)), max_size=60),
    st.integers(1, 1000),
)
def test_never_more_than_burst_and_rate_pass_and_waiting_helps(
    steps: list[tuple[int, int]], rate: int
) -> None:
    buckets, now, passed = Buckets("device", rate), 0, 0
    burst = max(RATE_BURST_MS * rate // 1000, 1)
    for pause, count in steps:
        now += pause
        granted = buckets.room_for("k", now, count)
        assert 0 <= granted <= count
        buckets.take("k", now, granted)
        passed += granted
        assert passed <= burst + rate * now // SECOND_NS + 1
        if granted < count:
            later = now + buckets.retry_after_ms("k", now) * 1_000_000
            assert buckets.room_for("k", later, 1) == 1


def test_the_tightest_limit_counts_and_is_named() -> None:
    admission = Admission(**(UNLIMITED | {"room_rate": 10, "user_rate": 8}))
    assert admission.admit(0, 100, device=b"d", user=1, address="a", room=b"r") == (16, "user", 125)
    assert admission.admit(0, 100, device=b"e", user=2, address="a", room=b"r") == (4, "room", 100)


def test_messages_over_a_limit_are_refused_with_a_time_and_pass_later() -> None:
    for name in ("device", "user", "room", "address"):
        world = World(rates={f"{name}_rate": 50})
        session = world.open(binary=False)
        room = world.room(session)
        seq = 1
        while not any(
            type(frame) is ErrorFrame for frame in world.received.get(session.number, [])
        ):
            world.say(session, room, seq, 1)
            world.process()
            seq += 1
        assert 90 <= seq - 1 <= 101
        error = [frame for frame in world.take(session) if type(frame) is ErrorFrame][0]
        assert (error.name, error.client_seq, error.temporary) == ("rate_limited", seq - 1, True)
        assert name in error.detail
        world.tick(error.retry_after // 10 + 1)
        world.say(session, room, seq - 1, 1)
        world.settle()
        assert errors(world.take(session)) == []


def test_other_frames_are_limited_too() -> None:
    world = World(rates={"device_rate": 10})
    session = world.open()
    for _ in range(30):
        world.send(session, Ping())
    names = errors(world.take(session))
    assert names == ["rate_limited"] * 10


def test_hellos_of_an_address_are_limited_and_others_are_not() -> None:
    world = World(rates={"address_rate": 5})
    for number in range(10):
        world.open(number=number, address="10.0.0.9")
    session = world.edge.on_open("10.0.0.9", ENCODINGS[True])
    world.send(session, Hello(token="x", client_id=id_of(b"c" * 16)))
    assert errors(world.take(session)) == ["rate_limited"]
    assert world.closed[session.number] == "rate_limited"
    world.open(address="10.0.0.8")
