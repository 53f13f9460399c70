"""Following a room: first stored, then live, in order, no gap, no duplicate, whatever happens
meanwhile."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base import limits
from appliance.cores.edge.subscription import SUBSCRIPTION
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_bytes, id_of
from appliance.formats.client.subscribing import (
    Subscribed,
    SubscribeRoom,
    Unsubscribed,
    UnsubscribeRoom,
)
from appliance.formats.geometry import SMALL
from appliance.formats.record import encode
from tests.cores.edge.world import EPOCH, World, device, errors, events


def subscribed(frames: list[Any]) -> list[tuple[str, int]]:
    return [(frame.status, frame.next_op) for frame in frames if type(frame) is Subscribed]


def grown(world: World, count: int) -> tuple[Any, ...]:
    """A sender and a room with `count` records, the creating one included."""
    sender = world.open(number=99)
    room = world.room(sender)
    at = 1
    while at < count:
        world.say(sender, room, at, min(28, count - at))
        at += min(28, count - at)
        world.settle()
    world.take(sender)
    return sender, room


def test_events_are_the_stored_records_then_the_live_ones() -> None:
    world = World()
    sender, room = grown(world, 30)
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room, since_op=10, request="r"))
    world.say(sender, room, 30, 5)
    world.settle()
    frames = world.take(follower)
    assert subscribed(frames) == [("recovered", 11)]
    assert (frames[0].epoch, frames[0].request) == (EPOCH, "r")
    assert events(frames) == list(range(11, 36))


def test_both_encodings_tell_the_same() -> None:
    world = World()
    sender, room = grown(world, 12)
    followers = [world.open(number=1), world.open(number=2, binary=False)]
    for follower in followers:
        world.send(follower, SubscribeRoom(room_id=room, since_op=0))
    world.say(sender, room, 12, 3)
    world.settle()
    first, second = (world.take(follower) for follower in followers)
    assert first == second
    assert events(first) == list(range(1, 16))


def test_last_starts_so_many_before_the_end_and_nothing_starts_after_it() -> None:
    world = World()
    sender, room = grown(world, 20)
    for last, next_op in ((5, 16), (0, 21), (100, 1), (None, 21)):
        follower = world.open()
        world.send(follower, SubscribeRoom(room_id=room, last=last))
        frames = world.take(follower)
        assert subscribed(frames) == [("recovered", next_op)]
        assert events(frames) == list(range(next_op, 21))


def test_another_epoch_resets_to_the_start() -> None:
    world = World()
    _, room = grown(world, 5)
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room, since_op=4000, epoch=EPOCH + 1))
    frames = world.take(follower)
    assert subscribed(frames) == [("reset", 1)]
    assert events(frames) == [1, 2, 3, 4, 5]


def test_freed_segments_are_told_as_a_gap() -> None:
    world = World()
    _, room = grown(world, 250)
    world.shard.files.oldest = 1
    world.shard.fetch()
    world.shard.fetched()  # only the open segment is in the ring
    world.attach()
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room, since_op=20))
    world.tick(3)
    frames = world.take(follower)
    assert subscribed(frames) == [("gap", 101)]
    assert events(frames) == list(range(101, 251))


def test_a_node_behind_the_client_delivers_nothing_it_has_and_misses_nothing() -> None:
    world = World()
    sender, room = grown(world, 5)
    world.say(sender, room, 5, 6)
    world.process()  # committed elsewhere, not yet heard of here
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room, since_op=8))
    assert events(world.take(follower)) == []
    world.publish(7)
    world.publish()
    world.tick()
    assert events(world.take(follower)) == [9, 10, 11]


def test_a_second_subscription_replaces_the_first() -> None:
    world = World()
    sender, room = grown(world, 5)
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room, since_op=4))
    world.send(follower, SubscribeRoom(room_id=room, since_op=2))
    world.say(sender, room, 5, 1)
    world.settle()
    assert events(world.take(follower)) == [5, 3, 4, 5, 6]


def test_after_unsubscribe_nothing_comes() -> None:
    world = World()
    sender, room = grown(world, 3)
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room))
    world.send(follower, UnsubscribeRoom(room_id=room, request="u"))
    world.send(follower, UnsubscribeRoom(room_id=room))
    world.say(sender, room, 3, 1)
    world.settle()
    frames = world.take(follower)
    assert [type(frame) for frame in frames] == [
        Subscribed,
        Unsubscribed,
        ErrorFrame,
    ]
    assert errors(frames) == ["subscription_unknown"]


def test_a_blocked_client_costs_others_nothing_and_gets_everything_later() -> None:
    world = World()
    sender, room = grown(world, 3)
    slow, fast = world.open(number=1), world.open(number=2)
    for follower in (slow, fast):
        world.send(follower, SubscribeRoom(room_id=room, since_op=3))
    world.edge.on_blocked(slow)
    for at in range(3, 303, 20):
        world.say(sender, room, at, 20)
        world.settle()
    assert events(world.take(fast)) == list(range(4, 304))
    assert events(world.take(slow)) == []
    assert slow.out_size == 0  # nothing is kept for it but a number
    world.edge.on_writable(slow)
    assert events(world.take(slow)) == list(range(4, 304))
    world.say(sender, room, 303, 1)
    world.settle()
    assert events(world.take(slow)) == events(world.take(fast)) == [304]


def test_output_of_one_wake_up_is_bounded() -> None:
    world = World()
    sender, room = grown(world, 3)
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room, since_op=3))
    world.take(follower)
    for seq in range(1, 701):  # commits, and no beat that writes
        world.shard.apply(
            encode(
                room_id=id_bytes(room),
                msg_id=bytes(16),
                author_id=1,
                body=b"x" * 2048,
                client_id=b"d" * 16,
                client_seq=seq,
            )
        )
        if seq % 50 == 0:
            world.edge.on_committed(0, len(world.shard.log))
    assert follower.out_size < limits.SESSION_OUT_MAX + 50 * 2200
    assert events(world.take(follower)) == list(range(4, 704))


def test_past_the_second_bound_the_connection_ends_with_a_cursor() -> None:
    world = World()
    sender, room = grown(world, 3)
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room, since_op=1))
    world.take(follower)
    world.edge.on_blocked(follower)
    world.say(sender, room, 3, 5)
    world.settle()
    world.now_ns += limits.LAG_MS_MAX * 1_000_000
    world.tick()
    world.edge.close_stuck()
    (frame,) = world.take(follower)
    assert (frame.name, frame.room_id, frame.cursor) == ("subscription_too_slow", room, 3)
    assert world.closed[follower.number] == "subscription_too_slow"


def test_a_client_may_follow_so_many_rooms_and_no_more() -> None:
    world = World()
    _, room = grown(world, 2)
    follower = world.open()
    follower.subscriptions = dict.fromkeys(range(limits.SESSION_SUBSCRIPTIONS_MAX))
    world.send(follower, SubscribeRoom(room_id=room))
    assert errors(world.take(follower)) == ["subscriptions_too_many"]


def test_one_encoding_is_shared_by_all_followers() -> None:
    world = World()
    sender, room = grown(world, 2)
    followers = [world.open(number=number) for number in range(10)]
    for follower in followers:
        world.send(follower, SubscribeRoom(room_id=room))
        world.take(follower)
    world.say(sender, room, 2, 1)
    world.process()
    world.edge.on_committed(0, len(world.shard.log))
    assert len({id(follower.out[0]) for follower in followers}) == 1


def test_states_are_only_those_of_the_table() -> None:
    assert {event for events_ in SUBSCRIPTION.values() for event in events_} == {
        "caught_up",
        "full",
        "leave",
    }
    assert all(
        following in SUBSCRIPTION for row in SUBSCRIPTION.values() for following in row.values()
    )


STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 30)),
    st.tuples(st.just("process"), st.integers(1, 4)),
    st.tuples(st.just("publish"), st.integers(0, 40)),
    st.tuples(st.just("tick"), st.integers(1, 3)),
    st.tuples(st.just("block"), st.integers(0, 3)),
    st.tuples(st.just("unblock"), st.integers(0, 3)),
    st.tuples(st.just("follow"), st.integers(0, 400)),
    st.tuples(st.just("detach"), st.just(0)),
    st.tuples(st.just("attach"), st.just(0)),
    st.tuples(st.just("fetch"), st.just(0)),
    st.tuples(st.just("fetched"), st.just(0)),
    st.tuples(st.just("other"), st.integers(1, 60)),
)


@settings(max_examples=60)
@given(st.integers(1, 230), st.lists(STEPS, max_size=40))
def test_stored_and_live_interleave_without_gap_or_duplicate(
    stored: int, steps: list[tuple[str, int]]
) -> None:
    world = World(log_sessions=2)
    sender, room = grown(world, stored)
    chatter = world.open(number=98)
    noise = world.room(chatter, "noise")
    followers = [world.open(number=number, binary=number % 2 == 0) for number in range(4)]
    since = {follower.number: 0 for follower in followers}
    seen: dict[int, list[int]] = {follower.number: [] for follower in followers}
    for follower in followers:
        world.send(follower, SubscribeRoom(room_id=room, since_op=0))
    sent, noisy, published, turn = stored, 1, len(world.shard.log), 0
    for name, value in steps:
        follower = followers[value % 4]
        if name == "say":
            world.say(sender, room, sent, value)
            sent += value - len(errors(world.take(sender)))
        elif name == "other":
            world.say(chatter, noise, noisy, value)
            noisy += value - len(errors(world.take(chatter)))
        elif name == "process":
            world.process(value)
        elif name == "publish":
            if 0 in world.edge.logs and not world.shard.fetching:
                published = min(len(world.shard.log), max(published, len(world.shard.log) - value))
                world.publish(published)
        elif name == "tick":
            world.tick(value)
        elif name == "block":
            world.edge.on_blocked(follower)
        elif name == "unblock":
            world.edge.on_writable(follower)
        elif name == "detach":
            world.edge.on_detached(0)
        elif name == "attach":
            world.shard.fetched()
            published = len(world.shard.log)
            world.attach()
        elif name == "fetch":
            world.shard.fetch()
        elif name == "fetched":
            world.shard.fetched()
            published = len(world.shard.log)
            if 0 in world.edge.logs:
                world.publish()
        elif name == "follow" and 0 in world.edge.logs and not world.shard.fetching:
            follower, turn = followers[turn % 4], turn + 1
            seen[follower.number] += events(world.take(follower))
            since[follower.number] = min(value, max(seen[follower.number], default=0))
            world.send(follower, SubscribeRoom(room_id=room, since_op=since[follower.number]))
            seen[follower.number] = []
            world.received[follower.number] = frames = world.take(follower)
            assert not errors(frames)
    world.shard.fetched()
    if 0 in world.edge.logs:
        world.publish()
    else:
        world.attach()
    for follower in followers:
        world.edge.on_writable(follower)
    world.settle()
    world.tick(60)
    total = len(world.ops(room))
    for follower in followers:
        frames = world.take(follower)
        assert "gap" not in [status for status, _ in subscribed(frames)]
        seen[follower.number] += events(frames)
        assert seen[follower.number] == list(range(since[follower.number] + 1, total + 1))


def test_the_ring_that_moved_on_without_the_edge_is_read_from_segments() -> None:
    world = World()
    sender, room = grown(world, 10)
    follower = world.open()
    world.send(follower, SubscribeRoom(room_id=room, since_op=10))
    world.take(follower)
    for at in range(10, 410, 28):
        world.say(sender, room, at, min(28, 410 - at))
        world.process()
    world.publish()  # 400 records at once; the ring holds 200
    world.tick(3)
    assert world.edge.counters["ring_lost"] == 1
    assert events(world.take(follower)) == list(range(11, 411))
    assert SMALL.segment_records == 100
    assert device(1) == id_of(follower.client_id)
