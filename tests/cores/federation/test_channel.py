"""One participant of a channel: what it sends, accepts, waits for, asks for and forgets."""

import random
import time
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from appliance.base.errors import ChannelFull
from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.cores.federation.opening import LogRecord
from appliance.cores.federation.parameters import Parameters
from appliance.formats.causal import bloom, rows
from appliance.formats.causal import message as sds
from appliance.formats.causal.message import HistoryEntry
from tests.cores.federation.participants import CHANNEL, DATAGRAMS, NOW, Participant, content, sync

SECOND, MINUTE = 1_000, 60_000


def chain(count: int, sender: str = "bob", width: int = 1) -> list[Any]:
    """Messages of one sender, each after the `width` before."""
    made = []
    for number in range(count):
        after = made[-width:]
        made.append(content(sender, b"%d" % number, NOW + number, after))
    return made


# --- sending --------------------------------------------------------------------------------------


def test_a_local_message_names_the_newest_of_the_log_oldest_first() -> None:
    me = Participant(parameters=Parameters(causal_entries=2))
    sent = [sds.decode(me.say(b"%d" % i)) for i in range(4)]
    named = [[entry.message_id for entry in message.causal_history] for message in sent]
    ids = [message.message_id for message in sent]
    assert named == [[], ids[:1], ids[:2], ids[1:3]]
    assert all(e.sender_id == "me" for m in sent for e in m.causal_history)


def test_the_filter_of_a_message_does_not_contain_the_message_itself() -> None:
    me = Participant()
    first, second = (sds.decode(me.say(text)) for text in (b"a", b"b"))
    places = bloom.positions(first.message_id, bloom.DEFAULT_GEOMETRY)
    assert first.bloom_filter == bytes(18_752)
    assert bloom.contains(second.bloom_filter, places)


def test_own_timestamps_strictly_increase_also_when_the_clock_goes_back() -> None:
    me = Participant()
    stamps = []
    for step in (0, 5, -1000, 0, 3):
        me.now = NOW + step
        stamps.append(sds.decode(me.say(b"%d" % len(stamps))).lamport)
    assert stamps == sorted(set(stamps))
    me.now = NOW - MINUTE
    me.open()
    assert sds.decode(me.say(b"later")).lamport > stamps[-1]


def test_equal_contents_are_two_messages() -> None:
    me = Participant()
    assert sds.decode(me.say(b"same")).message_id != sds.decode(me.say(b"same")).message_id


def test_a_full_outgoing_buffer_refuses_and_nothing_has_happened() -> None:
    me = Participant(parameters=Parameters(outgoing_max=2, refuse_when_full=True))
    me.say(b"a")
    me.say(b"b")
    rows = dict(me.store.rows)
    with pytest.raises(ChannelFull):
        me.say(b"c")
    assert me.store.rows == rows and me.state.finish() == []
    me.hear(sync(after=[sds.decode(me.out[0].data)]))
    me.say(b"c")


def test_without_refusal_messages_wait_in_the_store_and_follow_when_there_is_room() -> None:
    me = Participant(parameters=Parameters(outgoing_max=2))
    for number in range(6):
        me.take(me.channel.on_local(b"%d" % number, me.now))
    assert len(me.out) == 2 and me.channel.statistics().backlog == 4
    me.open()
    assert me.channel.statistics().backlog == 4
    seen = {}
    for _ in range(6):
        me.wait(MINUTE)
        seen |= {m.message_id: m for m in (sds.decode(b.data) for b in me.out) if m.content}
        me.hear(sync(after=[m for m in seen.values() if m.content]))
    assert sorted(m.content for m in seen.values()) == [b"%d" % n for n in range(6)]
    assert me.channel.statistics().outgoing == me.channel.statistics().backlog == 0
    me.channel.check()


def test_unacknowledged_messages_are_sent_again_with_growing_pauses_and_the_same_bytes() -> None:
    me = Participant(parameters=Parameters(filter=False, sync_interval_ms=3_600_000))
    first = me.say()
    me.wait(10 * MINUTE)
    again = [b.data for b in me.out[1:] if b.kind == "content"]
    assert 10 <= len(again) <= 14  # after 5, 10, 20, 40, 60, 60 ... seconds
    assert set(again) == {first}


def test_where_attempts_are_limited_the_message_is_reported_never_called_sent() -> None:
    parameters = replace(DATAGRAMS, sync_interval_ms=3_600_000)
    me = Participant(parameters=parameters)
    me.say()
    me.wait(60 * MINUTE)
    assert len(me.of(told.Unconfirmed)) == 1
    assert not me.of(told.Acknowledged)
    assert len([b for b in me.out if b.kind == "content"]) == 11


def test_a_batch_at_most_is_sent_again_at_once() -> None:
    me = Participant(parameters=Parameters(filter=False))
    for number in range(100):
        me.say(b"%d" % number)
    before = len(me.out)
    me.take(me.channel.on_link_up(me.now))
    me.take(me.channel.on_tick(me.now))
    assert len([b for b in me.out[before:] if b.kind == "content"]) == 32
    me.wait(200)
    assert len([b for b in me.out[before:] if b.kind == "content"]) == 100


# --- acknowledgement ------------------------------------------------------------------------------


def filter_with(*ids: str) -> bytes:
    made = bloom.BloomFilter()
    for message_id in ids:
        made.insert(message_id)
    return bytes(made)


def test_who_is_named_in_a_causal_history_is_acknowledged() -> None:
    me = Participant()
    mine = sds.decode(me.say())
    events = me.hear(sync(after=[mine]))
    assert [e.how for e in events if isinstance(e, told.Acknowledged)] == ["causal"]
    assert not me.state.outgoing.entries


def test_two_filters_of_the_only_other_sender_acknowledge_one_does_not() -> None:
    me = Participant()
    mine = sds.decode(me.say())
    me.hear(sync(bloom_filter=filter_with(mine.message_id)))
    assert me.of(told.PossiblyAcknowledged) and not me.of(told.Acknowledged)
    me.hear(sync(bloom_filter=filter_with(mine.message_id)))
    assert [e.how for e in me.of(told.Acknowledged)] == ["filter"]


def test_with_two_other_senders_the_filters_of_both_are_needed() -> None:
    me = Participant()
    mine = sds.decode(me.say())
    me.hear(sync("bob"))
    me.hear(sync("carol"))
    for _ in range(5):
        me.hear(sync("bob", bloom_filter=filter_with(mine.message_id)))
    assert not me.of(told.Acknowledged)
    me.hear(sync("carol", bloom_filter=filter_with(mine.message_id)))
    assert me.of(told.Acknowledged)


def test_a_filter_that_lacks_the_id_says_nothing_and_a_saturated_one_neither() -> None:
    me = Participant()
    me.say()
    for data in (filter_with("other"), b"\xff" * 18_752, b"\xff" * 40_000):
        for _ in range(3):
            me.hear(sync(bloom_filter=data))
    assert not me.of(told.Acknowledged) and not me.of(told.PossiblyAcknowledged)
    assert me.state.counts["filter_saturated"] == 6


@pytest.mark.parametrize("data", [None, b"", b"\x01" * 10, bytes(18_752), b"\xff" * 18_752])
def test_a_message_is_delivered_alike_whatever_its_filter_is(data: bytes | None) -> None:
    me = Participant()
    raw = sds.encode(content()) if data != b"" else sds.encode(content()) + b"\x62\x00"
    if data:
        raw = sds.encode(content(bloom_filter=data))
    me.hear(raw)
    assert me.ids() == [content().message_id]
    kept = me.store.rows[b"L" + NOW.to_bytes(8, "big") + me.ids()[0].encode()]
    assert rows.decode_log(kept).wire == sds.encode(content())


# --- receiving ------------------------------------------------------------------------------------


def test_any_permutation_with_any_repetition_gives_the_same_log_and_each_event_once() -> None:
    messages = chain(4, width=2) + [content("carol", b"aside", NOW + 1)]
    expected = sorted((m.lamport, m.message_id) for m in messages)
    for order in permutations(messages):
        me = Participant()
        for message in [*order, *order[::2]]:
            me.hear(message)
            me.channel.check()
        assert me.channel.order() == expected
        assert sorted(e.message_id for e in me.of(told.Delivered)) == sorted(me.ids())
        seen = set()
        for event in me.of(told.Delivered):
            message = next(m for m in messages if m.message_id == event.message_id)
            assert {e.message_id for e in message.causal_history} <= seen
            seen.add(event.message_id)


def test_a_dependency_that_merely_waits_meets_nothing() -> None:
    first, second, third = chain(3)
    me = Participant()
    me.hear(second)
    me.hear(third)
    assert not me.ids() and list(me.state.wanted.rows) == [first.message_id]
    me.hear(first)
    assert me.ids() == [m.message_id for m in (first, second, third)]
    assert not me.state.wanted.rows and not me.state.incoming.dependents


def test_the_clock_rises_on_delivery_not_on_reception_and_not_by_a_sync_message() -> None:
    first = content(text=b"0", at=NOW + 50)
    second = content(text=b"1", at=NOW + 90, after=[first])
    me = Participant()
    me.hear(second)
    me.hear(sync(lamport=NOW + 70))
    assert me.state.clock == NOW
    me.hear(first)
    assert me.state.clock == NOW + 90
    assert sds.decode(me.say()).lamport == NOW + 91


def test_a_timestamp_far_ahead_moves_the_clock_by_its_bound_only_and_sorts_as_stamped() -> None:
    me = Participant()
    far = content(at=NOW + 11 * MINUTE)
    me.hear(far)
    assert me.state.clock == NOW + 10 * MINUTE
    assert me.state.counts["lamport_lead"] == 1
    mine = sds.decode(me.say())
    assert me.ids() == [mine.message_id, far.message_id]


def test_a_message_that_names_itself_is_delivered() -> None:
    message = content()
    me = Participant()
    me.hear(replace(message, causal_history=(HistoryEntry(message.message_id),)))
    assert me.ids() == [message.message_id]


def test_own_messages_come_back_to_nothing_but_lost_ones_are_recovered() -> None:
    me = Participant()
    mine = me.say()
    assert me.hear(mine) == [told.Dropped("own")]
    wiped = Participant()
    wiped.hear(mine)
    assert len(wiped.of(told.RecoveredOwn)) == 1 and len(wiped.ids()) == 1


def test_other_content_under_a_known_id_is_counted_and_the_first_stays() -> None:
    first = content()
    me = Participant()
    me.hear(first)
    assert me.hear(replace(first, content=b"forged"))[-1] == told.Dropped("id_conflict")
    assert me.hear(first)[-1] == told.Dropped("duplicate")
    assert [e.content for e in me.of(told.Delivered)] == [b"x"]


@pytest.mark.parametrize("waits", [False, True])
def test_a_known_id_at_another_place_or_of_another_sender_is_refused(waits: bool) -> None:
    """Ids that follow from the content alone, as others make them, may have two places."""
    before = content("ann", b"before", NOW)
    first = replace(content("x", b"same", NOW + 5, [before]), message_id="D")
    between = replace(content("z", b"between", NOW + 7), message_id="E")
    me = Participant()
    me.hear(between)
    if not waits:
        me.hear(before)
    me.hear(first)
    for other in ({"lamport": NOW + 9}, {"sender_id": "y"}):
        assert me.hear(replace(first, **other))[-1] == told.Dropped("id_conflict"), other
    me.hear(before)
    assert me.hear(first)[-1] == told.Dropped("duplicate")
    assert me.ids() == [before.message_id, "D", "E"]
    assert me.state.dropped["id_conflict"] == 2


def test_between_our_own_sites_ids_are_verified() -> None:
    me = Participant(parameters=Parameters(verify_ids=True))
    assert me.hear(content(message_id="chosen")) == [told.Dropped("id_mismatch")]
    assert not me.ids()
    me.hear(content())
    assert len(me.ids()) == 1


def test_sync_and_ephemeral_messages_are_stored_nowhere() -> None:
    me = Participant()
    missing = content(text=b"elsewhere")
    me.hear(sync(after=[missing]))
    me.hear(sds.Message("bob", "e1", CHANNEL, content=b"typing"))
    assert me.of(told.Ephemeral) == [told.Ephemeral("bob", b"typing")]
    assert not me.ids() and not len(me.state.incoming) and me.state.filter.count == 0
    assert list(me.state.wanted.rows) == [missing.message_id]
    assert not any(b"sync-1" in key or b"e1" in key for key in me.store.rows)


def test_nothing_enters_the_log_before_the_site_has_committed_it() -> None:
    first, second = chain(2)
    me = Participant(quorum=False)
    me.hear(first)
    me.hear(second)
    assert [a.message_id for a in me.pending] == [first.message_id, second.message_id]
    assert not me.ids() and me.state.clock == NOW
    assert sds.decode(me.say()).causal_history == ()
    me.quorum = True
    me.take([])
    assert len(me.ids()) == 3


# --- what is missing ------------------------------------------------------------------------------


def test_a_missing_message_is_asked_of_the_store_after_a_second_then_with_growing_pauses() -> None:
    first, second = chain(2)
    me = Participant()
    me.hear(second)
    times = []
    for _ in range(200):
        start = me.now
        if any(isinstance(e, told.Retrieve) for e in me.wait(500)):
            times.append((start - NOW) // SECOND)
    assert times[:5] == [0, 1, 3, 7, 15]
    retrieve = me.of(told.Retrieve)[0]
    assert retrieve.entries == (HistoryEntry(first.message_id, None, "bob"),)


def test_a_message_that_was_asked_for_has_its_own_dependencies_asked_for_at_once() -> None:
    messages = chain(4)
    me = Participant()
    me.hear(messages[3])
    me.wait(1_100)
    me.hear(messages[2])
    events = me.wait(1)
    assert [e.message_id for r in events if isinstance(r, told.Retrieve) for e in r.entries] == [
        messages[1].message_id
    ]


def test_a_repair_request_goes_out_at_its_time_and_again_until_the_message_comes() -> None:
    first, second = chain(2)
    me = Participant(parameters=Parameters(store=False, lost_timeout_ms=10**9))
    me.hear(second)
    me.wait(29 * SECOND)
    assert not me.of(told.RepairRequested)
    me.wait(91 * SECOND)
    assert me.of(told.RepairRequested) == [told.RepairRequested((first.message_id,))]
    carrier = [sds.decode(b.data) for b in me.out if sds.decode(b.data).repair_requests]
    assert carrier[0].repair_requests == (HistoryEntry(first.message_id, None, "bob"),)
    me.wait(60 * MINUTE)
    assert len(me.of(told.RepairRequested)) >= 4
    me.hear(first)
    asked = len(me.of(told.RepairRequested))
    me.wait(300 * MINUTE)
    assert len(me.of(told.RepairRequested)) == asked


def test_somebody_elses_request_puts_ours_off_but_does_not_replace_it() -> None:
    first, second = chain(2)
    me = Participant(parameters=Parameters(store=False, lost_timeout_ms=10**9))
    me.hear(second)
    me.hear(sync("carol", repair_requests=(HistoryEntry(first.message_id, None, "bob"),)))
    me.wait(2 * MINUTE)
    assert not me.of(told.RepairRequested)
    me.wait(3 * MINUTE)
    assert me.of(told.RepairRequested)


def test_a_request_is_answered_byte_for_byte_without_filter_unless_a_copy_is_seen_first() -> None:
    asked = content(
        bloom_filter=bytes(18_752), repair_requests=(HistoryEntry("zz", b"\1", "carol"),)
    )
    request = sync("carol", repair_requests=(HistoryEntry(asked.message_id, None, "bob"),))
    me = Participant()
    me.hear(asked)
    me.hear(request)
    at = me.of(told.RepairScheduled)[0].at_ms
    assert NOW <= at < NOW + 120_000
    me.wait(at - NOW)
    repeated = [b.data for b in me.out if b.repeated]
    assert repeated == [sds.encode(replace(asked, bloom_filter=None))]
    me.hear(request)
    me.hear(asked)
    me.wait(2 * MINUTE)
    assert [b.data for b in me.out if b.repeated] == repeated


def test_a_request_without_sender_or_for_what_only_waits_is_not_answered() -> None:
    first, second = chain(2)
    me = Participant()
    me.hear(second)
    for entry in (HistoryEntry(second.message_id), HistoryEntry(second.message_id, None, "bob")):
        me.hear(sync("carol", repair_requests=(entry,)))
    assert not me.of(told.RepairScheduled)


def test_what_is_lost_is_delivered_around_with_the_gap_said_and_taken_late() -> None:
    first, second, third = chain(3)
    me = Participant()
    me.hear(second)
    me.hear(third)
    me.wait(11 * MINUTE)
    assert me.of(told.Lost) == [told.Lost((first.message_id,))]
    delivered = {e.message_id: e for e in me.of(told.Delivered)}
    assert delivered[second.message_id].gap == (first.message_id,)
    assert delivered[third.message_id].gap == ()
    me.hear(first)
    assert me.ids() == [m.message_id for m in (first, second, third)]
    assert me.of(told.Delivered)[-1].late


def test_what_no_store_has_is_delivered_around_at_once_and_taken_late() -> None:
    first, second = chain(2)
    me = Participant()
    me.hear(second)
    me.take(me.channel.on_not_held([first.message_id, "unknown", first.message_id], me.now))
    assert me.of(told.Delivered)[0].gap == (first.message_id,)
    assert me.of(told.Lost) == [told.Lost((first.message_id,))]
    me.wait(20 * MINUTE)
    assert me.channel.is_wanted(first.message_id), "it is asked for still"
    me.hear(first)
    assert me.ids() == [first.message_id, second.message_id]
    assert me.of(told.Delivered)[-1].late


def test_what_no_store_has_and_nothing_waits_for_is_asked_for_again() -> None:
    me = Participant()
    me.hear(sync("bob", causal_history=(HistoryEntry("named", None, "bob"),)))
    me.take(me.channel.on_not_held(["named"], me.now))
    assert me.channel.is_wanted("named") and not me.of(told.Lost)


def test_a_store_answers_what_it_has_and_says_what_it_has_not() -> None:
    me = Participant()
    message = content()
    me.hear(message)
    held, not_held = me.channel.on_want([HistoryEntry(message.message_id), HistoryEntry("zz")])
    assert (held, not_held) == ([sds.encode(message)], ["zz"])


def test_hints_of_others_are_repeated_unchanged() -> None:
    first, second = chain(2)
    entry = HistoryEntry(first.message_id, b"\x07\x08", "bob")
    me = Participant()
    me.hear(replace(second, causal_history=(entry,)))
    me.hear(first)
    assert sds.decode(me.say()).causal_history[0] == entry


# --- sync messages --------------------------------------------------------------------------------


def test_with_nothing_to_say_no_sync_message_is_sent() -> None:
    me = Participant()
    me.wait(10 * MINUTE)
    assert not me.out


def test_in_the_datagram_profile_word_of_what_came_goes_out_within_a_second() -> None:
    me = Participant(parameters=DATAGRAMS)
    messages = [content(text=b"%d" % i, at=NOW + i) for i in range(6)]
    for message in messages:
        me.hear(message)
    me.wait(1_000)
    named = {
        e.message_id for b in me.out for e in sds.decode(b.data).causal_history if b.kind == "sync"
    }
    assert named == {m.message_id for m in messages}
    assert all(len(b.data) < 1_200 for b in me.out)


REPLIES = Parameters(sync_interval_ms=3_600_000, sync_reply_ms=500, filter=False)


def syncs(me: Participant) -> list[sds.Message]:
    return [sds.decode(b.data) for b in me.out if b.kind == "sync"]


def test_what_is_committed_after_we_have_spoken_is_told_as_soon_as_what_came_before() -> None:
    me, came = Participant(parameters=REPLIES, quorum=False), content()
    me.hear(came)
    assert not sds.decode(me.say()).causal_history, "the log has nothing yet"
    me.quorum = True
    me.take([])
    me.wait(500)
    assert came.message_id in {entry.message_id for entry in syncs(me)[-1].causal_history}
    me.hear(content(text=b"y"))
    me.say()  # names it
    before = len(syncs(me))
    me.wait(MINUTE)
    assert len(syncs(me)) == before


def test_who_can_be_reached_again_hears_at_once_what_we_have_beside_what_waited() -> None:
    me = Participant(parameters=REPLIES)
    me.say()
    me.take(me.channel.on_link_up(me.now))
    me.wait(100)
    assert {broadcast.kind for broadcast in me.out[1:]} == {"content", "sync"}


def test_a_message_that_came_late_behind_newer_ones_is_still_named_to_others() -> None:
    me = Participant(parameters=Parameters(causal_entries=2))
    newer = [content("carol", b"%d" % i, NOW + 100 + i) for i in range(20)]
    late = content("bob", b"late", NOW)
    for message in [*newer, late]:
        me.hear(message)
    me.state.owed.clear()
    me.wait(MINUTE)
    last = sds.decode([b for b in me.out if b.kind == "sync"][-1].data)
    assert late.message_id in {entry.message_id for entry in last.causal_history}


# --- restart and takeover -------------------------------------------------------------------------


def test_after_a_restart_everything_is_as_it_was() -> None:
    me = Participant()
    first, second, third = chain(3)
    mine = sds.decode(me.say())
    me.hear(sync("carol", bloom_filter=filter_with(mine.message_id)))
    me.hear(third)
    me.hear(first)
    before = me.channel.statistics()
    order, clock = me.channel.order(), me.state.clock
    filter_before = bytes(me.state.filter)
    delivered = len(me.of(told.Delivered))
    me.open()
    after = me.channel.statistics()
    assert (after.log, after.outgoing) == (before.log, before.outgoing)
    assert (after.waiting, after.wanted) == (before.waiting, before.wanted)
    assert after.heads == before.heads
    assert (me.channel.order(), me.state.clock) == (order, clock)
    assert bytes(me.state.filter) == filter_before
    assert me.state.outgoing.entries[mine.message_id].senders == ["carol"]
    me.hear(second)
    assert len(me.of(told.Delivered)) == delivered + 2
    assert len(me.ids()) == 4
    me.channel.check()


def test_what_was_due_and_not_committed_is_due_again_after_a_restart() -> None:
    me = Participant(quorum=False)
    me.hear(content())
    assert len(me.pending) == 1
    me.open()
    assert len(me.pending) == 1 and me.channel.is_due(content().message_id)


def test_another_node_gives_local_messages_the_same_ids_from_the_log_alone() -> None:
    me = Participant()
    records = []
    for number in range(10):
        if number % 3 == 1:
            foreign = content("bob", b"%d" % number, NOW + 7 * number)
            me.hear(foreign)
            records.append(LogRecord(me.now, b"", "bob", foreign.message_id, foreign.lamport))
        else:
            me.now += 1
            me.say(b"mine %d" % number)
            records.append(LogRecord(me.now, b"mine %d" % number))
    other = Participant(now=me.now, seed=2)
    other.state.clock = 0
    me_again = Participant(now=me.now, seed=3)
    me_again.state.clock = NOW
    me_again.take(me_again.channel.replay(records, me.now))
    assert me_again.channel.order() == me.channel.order()
    mine = {m for m in me.ids() if me.state.row_of(m).sender == "me"}
    for message_id in mine:
        assert me_again.state.row_of(message_id).wire == me.state.row_of(message_id).wire
    assert set(me_again.state.outgoing.entries) == mine
    lacking = [m for m in me.ids() if m not in mine]
    assert sorted(me_again.state.wanted.rows) == sorted(lacking)
    me_again.hear(content("bob", b"1", NOW + 7))
    assert me_again.state.row_of(content("bob", b"1", NOW + 7).message_id).wire
    me_again.channel.check()


# --- bounds ---------------------------------------------------------------------------------------


def test_no_buffer_passes_its_cap_whatever_comes() -> None:
    small = Parameters(
        waiting_max=20,
        wanted_max=30,
        responses_max=5,
        log_window=10,
        senders_max=4,
        heads_max=6,
        lost_max=3,
        owed_max=5,
        waiting_size_max=5_000,
        lost_timeout_ms=20_000,
    )
    me = Participant(parameters=small)
    chance = random.Random(5)
    prng = Prng(5)
    made = [content("s0", b"first", NOW)]
    for number in range(3_000):
        sender = f"s{prng.below(9)}"
        history = [HistoryEntry(f"ghost-{prng.below(400)}") for _ in range(prng.below(4))]
        history += [HistoryEntry(m.message_id, None, m.sender_id) for m in chance.sample(made, 1)]
        message = content(
            sender,
            b"%d" % number * prng.between(1, 20),
            NOW + prng.below(10_000),
            causal_history=tuple(history),
            repair_requests=tuple(
                HistoryEntry(chance.choice(made).message_id, None, sender) for _ in range(3)
            ),
        )
        made = [*made[-50:], message]
        me.hear(message if prng.chance(9, 10) else sync(sender, made[-3:]))
        me.channel.check()
        assert me.channel.deadline() is not None
        if prng.chance(1, 20):
            me.now += 2_000
            me.take(me.channel.on_tick(me.now))
    reasons = me.state.dropped
    assert reasons["waiting_full"] + reasons["waiting_evicted"] > 100
    assert reasons["wanted_evicted"] + reasons["wanted_full"] > 10


def test_one_sender_holds_a_quarter_of_the_waiting_buffer_at_most() -> None:
    me = Participant(parameters=Parameters(waiting_max=40))
    ghosts = (HistoryEntry("ghost"),)
    for number in range(30):
        me.hear(content("mallory", b"%d" % number, NOW + number, causal_history=ghosts))
    assert len(me.state.incoming) == 10
    me.hear(content("bob", b"x", causal_history=ghosts))
    assert len(me.state.incoming) == 11


def test_a_chain_of_ten_thousand_in_reverse_is_delivered_without_recursion() -> None:
    me = Participant(parameters=Parameters(filter=False, waiting_max=50_000))
    messages = chain(10_000)
    raw = [sds.encode(m) for m in messages]
    started = time.process_time()
    for data in reversed(raw):
        me.hear(data)
    assert len(me.ids()) == 10_000
    assert time.process_time() - started < 60  # linear: a square would take minutes
    me.channel.check()
