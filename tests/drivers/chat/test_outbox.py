"""The outbox against a site that loses connections, is busy, and forgets nothing it
acknowledged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.base.limits import WINDOW_LENGTH
from appliance.drivers.chat.outbox import Outbox


class Room:
    """What a site does with one device's messages to one room."""

    def __init__(self) -> None:
        self.stored = []

    def on_message(self, client_seq, item, busy):
        if client_seq <= len(self.stored):
            assert self.stored[client_seq - 1] == item  # the same number, the same message
            return "ack"
        if busy or client_seq > len(self.stored) + 1:
            return "error"
        self.stored.append(item)
        return "ack"


EVENTS = st.sampled_from(
    ["add", "add", "send", "send", "answer", "answer", "answer", "busy", "lost"]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(EVENTS, max_size=120), st.integers(1, 5))
def test_outbox_stores_every_message_once_and_in_order(events, count_max) -> None:
    outbox, room = Outbox(), Room()
    added, acked, pipe = 0, 0, []  # pipe: (client_seq, answer) on this connection

    def step(event) -> None:
        nonlocal added, acked, pipe
        if event == "add" and not outbox.full:
            added += 1
            assert outbox.add(f"m{added}") == added
        elif event in {"send", "busy"}:
            for client_seq, item in outbox.take(count_max):
                pipe.append((client_seq, room.on_message(client_seq, item, event == "busy")))
        elif event == "answer" and pipe:
            client_seq, answer = pipe.pop(0)
            if answer == "ack":
                acked += outbox.on_answer(client_seq) is not None
            else:
                outbox.on_passing_error()
        elif event == "lost":
            pipe = []
            outbox.on_lost()
        outbox.check()

    for event in events:
        step(event)
    for _ in range(4 * added + 4):  # no more faults: everything arrives
        step("send")
        while pipe:
            step("answer")
    assert acked == added and len(outbox) == 0
    assert room.stored == [f"m{i}" for i in range(1, added + 1)]


def test_outbox_is_full_where_the_site_would_forget_an_ack() -> None:
    outbox = Outbox()
    for _ in range(WINDOW_LENGTH - 1):
        outbox.add("x")
    assert not outbox.full
    outbox.add("x")
    assert outbox.full


def test_outbox_starts_where_an_interrupted_import_ended() -> None:
    outbox = Outbox(first=41)
    assert outbox.add("x") == 41 and outbox.take(9) == [(41, "x")]
    assert outbox.on_answer(41) == "x" and outbox.on_answer(41) is None


class ForgetfulRoom:
    """A site that may forget a device's numbers, but knows by a message's id that it is old."""

    def __init__(self) -> None:
        self.stored, self.newest, self.forgot_up_to = [], [], 0

    def forget(self, told) -> None:
        self.newest, self.forgot_up_to = [], told

    def on_message(self, client_seq, item):
        if client_seq <= len(self.newest):
            return "ack" if self.newest[client_seq - 1] == item else "other"
        if client_seq > len(self.newest) + 1:
            return len(self.newest) + 1  # sequence_gap, expected
        if client_seq == 1 and item <= self.forgot_up_to:
            return "expired"
        self.newest.append(item)
        self.stored.append(item)
        return "ack"


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(["add", "add", "send", "answer", "answer", "lost", "forget"])))
def test_after_a_site_has_forgotten_numbers_each_message_is_stored_once_or_said_to_be_old(
    events,
) -> None:
    outbox, room, pipe, told = Outbox(), ForgetfulRoom(), [], {}
    added = 0

    def step(event) -> None:
        nonlocal added, pipe
        if event == "add" and not outbox.full:
            added += 1
            outbox.add(added)
        elif event == "send":
            pipe += [(seq, room.on_message(seq, item)) for seq, item in outbox.take(3)]
        elif event == "answer" and pipe:
            client_seq, answer = pipe.pop(0)
            assert answer != "other"
            if answer in ("ack", "expired"):
                item = outbox.on_answer(client_seq)
                if item is not None:
                    told[item] = answer
            elif answer < outbox.first:
                outbox.on_forgotten(answer)
            else:
                outbox.on_passing_error()
        elif event == "lost":
            pipe = []
            outbox.on_lost()
        elif event == "forget" and not pipe:  # ten minutes pass: all was answered, or was lost
            outbox.on_lost()
            room.forget(added)
        outbox.check()

    for event in events:
        step(event)
    for _ in range(20 * added + 20):
        step("send")
        step("answer")
    assert sorted(told) == list(range(1, added + 1))
    assert len(set(room.stored)) == len(room.stored)
    assert all(item in room.stored for item, answer in told.items() if answer == "ack")
