"""Sessions of replicas joined back to back: diffs, live changes, holding back, refusals."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.base.errors import PacketRefused
from appliance.base.limits import (
    HELD_SIZE_MAX,
    PASSED_DIFF_MS_MAX,
    SESSION_QUEUE_MAX,
    SYNC_POINT_MS_MAX,
    SYNC_POINTS_MAX,
)
from appliance.cores.metadata import packets
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.packets import MODE_READ, MODE_WRITE
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.session import PACE, Session
from appliance.cores.metadata.terms import Term
from appliance.formats.rdx.stamps import bare, count_record
from appliance.formats.toytlv.ids import ID0, Id, zip_id
from appliance.formats.toytlv.records import record
from appliance.formats.toytlv.version_vectors import Vector, encode_vector, vector_text
from appliance.simulation.objects.memory_store import MemoryStore
from tests.cores.metadata.pair import (
    A,
    B,
    C,
    D,
    Wire,
    data_of,
    exchange,
    person,
    run,
    states_of,
    value,
)
from tests.cores.metadata.test_replica import BAD_CHANGES
from tests.formats.go_records import long_record


def h(text: str) -> bytes:
    return bytes.fromhex(text)


def name(end: Exchange, of: Id) -> str:
    found = end.replica.table.state(of.with_field(1), "S") or b""
    return found.hex()


def rename(end: Exchange, of: Id, text: str, revision: int) -> Id:
    return end.replica.edit(of, [(1, "S", bare(revision, 0, text.encode()))])


# --- bytes of the Go implementation ---------------------------------------------------------------


def test_packets_of_a_session_are_those_of_go() -> None:
    trace = h("00010203040506070809")
    made = packets.handshake(Id(B, 0x1001), 7, {0: 0x3000, B: 0x1001}, trace)
    assert made.hex() == (
        "6821340b0001103107760c760400000030" + "76040b000110" + "730a" + trace.hex()
    )
    assert packets.bye(Id(A, 0x7000), "closing").hex() == "620c340a000070636c6f73696e67"
    assert packets.ping(packets.PING).hex() == "70053070696e67"
    assert packets.ping(packets.PONG).hex() == "700530706f6e67"
    assert packets.parse_ping(h("700530706f6e67")) == b"pong"
    assert packets.parse_bye(h("620c340a000070636c6f73696e67")) == "closing"
    beta = [
        (Id(B, 0), "Y", b""),
        (Id(B, 1), "S", h("32000b62657461")),
        (Id(B, 2), "V", b""),
        (Id(B, 3), "S", h("32000b")),
    ]
    d = "44240000007402 0b0372010b660079006601017307" + "32000b62657461660102760066010373 0332000b"
    short = packets.block_diff(Id(B, 3), Id(B, 0), beta)
    assert short[2:] == h(d)[5:] and short[:1] == b"d"
    assert packets.parse_block_diff(h(d)).writes == beta
    of_two = "562100000074040a000070760e720076040000003076040a000070760972010a76040a000060"
    assert packets.parse_diff_end(h(of_two)) == (
        Id(A, 0x7000),
        [(ID0, {0: 0x3000, A: 0x7000}), (Id(A, 0), {A: 0x6000})],
    )
    v = packets.diff_end(Id(B, 0x1001), [(Id(B, 0), {B: 0x1001})])
    assert v.hex() == "761174040b000110760972010b76040b000110"
    assert packets.parse_diff_end(h("560600000074040a000070")) == (Id(A, 0x7000), [])


def test_a_whole_session_of_go_is_taken_and_answered() -> None:
    """What a Go replica sent over a socket, both handshakes included."""
    end = exchange(B, "beta")
    made = end.replica.create_object(Id(0, 3 << 12), [("S", bare(0, 0, b"from py")), ("N", b"")])
    end.settle()
    session = end.open(bytes(10), 0)
    session.take(1 << 20)
    go = [
        "6821340a0002203107760c76040000003076040a000220730a297c30a991c1b712f470",
        "446300000074040a00022072010a6600790066010173" + "0d32000a676f207265706c69636166010276"
        "0066010373" + "0332000a" + "66020010630e74053102530053740531044e004e"
        "660200206f040a00001066020120730832000a68656c6c6f660202206e05740332050a",
        "561100000074040a000220760972010a76040a000220",
        "651669040a00003072040a0000206601026e05740332090a",
    ]
    for packet in go[:3]:
        end.receive(session, h(packet), 0)
    assert session.complete and not session.ended
    assert vector_text(end.replica.table.vector) == "0-3,a-2-2,b-1-2"
    end.replica.edit(
        Id(A, 2 << 12), [(2, "N", count_record(7, B)), (1, "S", bare(1, 0, b"pyedit"))]
    )
    end.receive(session, h(go[3]), 0)
    states = states_of(end)
    field = "4f" + "000000000000000a" + "0000000000002002" + "4e"
    assert states[field] == "740332090a" + "740332070b"
    assert made == Id(B, 1 << 12)


# --- two replicas ---------------------------------------------------------------------------------


def test_two_replicas_hold_the_same_after_a_session_and_the_next_sends_no_data() -> None:
    one, two = exchange(A), exchange(B)
    _, of = person(one)
    person(two)
    wire = Wire(one, two)
    run(wire)
    assert wire.letters(0) == wire.letters(1) == "HDV"
    assert data_of(one) == data_of(two)
    assert one.replica.verify() == two.replica.verify()
    wire.cut()
    again = Wire(one, two, 2)
    run(again)
    assert again.letters(0) == again.letters(1) == "HV"
    rename(two, of, "Bob", 1)
    run(again)
    assert again.letters(1) == "HVE" and name(one, of) == "32020b426f62"


def test_only_what_changed_is_sent() -> None:
    one, two = exchange(A), exchange(B)
    made = one.replica.create_class([Term(number, "S", f"f{number}") for number in range(1, 11)])
    objects = [one.replica.create_object(made, [value('"x"')] * 10) for _ in range(50)]
    run(Wire(one, two))
    for end in (one, two):
        for session in list(end.sessions):
            end.close(session)
    rename(two, objects[7], "new", 1)
    one.replica.edit(objects[3], [(2, "S", bare(1, 0, b"other"))])
    wire = Wire(one, two, 2)
    run(wire)
    assert data_of(one) == data_of(two)
    sent = [
        packets.parse_block_diff(p).writes for side in wire.sent for p in side if p[0] | 32 == 100
    ]
    assert sorted((str(id), letter) for rows in sent for id, letter, _ in rows) == [
        (str(objects[3].with_field(2)), "S"),
        (str(objects[7].with_field(1)), "S"),
    ]


def test_a_third_replica_gets_what_came_by_diff_and_no_more() -> None:
    one, two, three = exchange(A), exchange(B), exchange(C)
    _, of = person(one)
    run(Wire(one, two))
    two.close(two.sessions[0])
    wire = Wire(two, three, 2)
    run(wire)
    assert name(three, of) == name(one, of)
    assert states_of(three) == states_of(two)
    wire.cut()
    again = Wire(three, two, 3)
    run(again)
    assert again.letters(0) == again.letters(1) == "HV"


def test_without_the_index_the_rule_of_go_brings_the_same() -> None:
    one, two = exchange(A), exchange(B)
    _, of = person(one)
    run(first := Wire(one, two))
    first.cut()
    rename(two, of, "Bob", 1)
    two.replica.edit(of, [(2, "N", count_record(3, B))])
    person(one)
    for end in (one, two):
        end.replica.table.indexed = False
    wire = Wire(one, two, 2)
    run(wire)
    assert data_of(one) == data_of(two)
    assert name(one, of) == "32020b426f62"


def test_a_session_that_is_cut_before_its_end_leaves_the_receiver_as_it_was() -> None:
    one, two = exchange(A), exchange(B)
    person(one)
    run(Wire(exchange(C), two, 9))
    before = data_of(two)
    whole = Wire(one, two)
    whole.take(0)
    whole.take(1)
    whole.deliver(1)
    whole.take(0)
    count = len(whole.waiting[0])
    assert count == 3
    for delivered in range(count):
        wire = Wire(one, two, delivered + 2)
        wire.take(0), wire.take(1)
        wire.deliver(1)
        wire.take(0)
        wire.deliver(0, delivered)
        wire.cut()
        assert data_of(two) == before
        assert two.replica.counters["diffs_dropped"] == delivered


def test_a_diff_larger_than_a_packet_is_sent_in_parts() -> None:
    one, two = exchange(A), exchange(B)
    made = one.replica.create_class([Term(1, "S", "text")])
    for number in range(12):
        one.replica.create_object(made, [("S", bare(0, 0, bytes([65 + number]) * 70_000))])
    wire = Wire(one, two)
    run(wire)
    assert wire.letters(0).count("D") > 2
    assert data_of(one) == data_of(two)


def test_packets_of_two_blocks_of_one_source_cross() -> None:
    one, two = exchange(A), exchange(B)
    _, of = person(one)
    one.replica.table.vector[A] = (0xFFFE) << 12
    for number in range(1, 5):
        rename(one, of, f"x{number}", number)
        person(one)
    one.settle()
    wire = Wire(one, two)
    run(wire)
    assert data_of(one) == data_of(two)
    blocks = {packets.parse_block_diff(p).block for p in wire.sent[0] if p[0] | 32 == 100}
    assert {str(block) for block in blocks} == {"a-0", "a-10000"}


def test_a_class_that_is_edited_on_both_sides_has_the_terms_of_both() -> None:
    one, two = exchange(A), exchange(B)
    made, _ = person(one)
    wire = Wire(one, two)
    run(wire)
    wire.cut()
    one.replica.create_class([Term(3, "I", "age")], made)
    two.replica.create_class([Term(3, "S", "town"), Term(4, "E", "tags")], made)
    run(Wire(one, two, 2))
    assert [term.name for term in one.replica.terms_of(made)] == [
        *("Name", "Score", "age", "town", "tags")
    ]
    assert data_of(one) == data_of(two)


# --- live -----------------------------------------------------------------------------------------


def test_a_change_crosses_a_chain_of_replicas_and_no_one_hears_it_twice() -> None:
    ends = [exchange(source) for source in (A, B, C, D)]
    wires = [Wire(ends[i], ends[i + 1], i + 1) for i in range(3)]
    _, of = person(ends[0])
    run(*wires)
    rename(ends[3], of, "Dan", 1)
    rename(ends[0], of, "Ada", 2)
    run(*wires)
    assert [name(end, of) for end in ends] == [name(ends[0], of)] * 4 == ["32040a416461"] * 4
    assert all(data_of(end) == data_of(ends[0]) for end in ends)
    assert all(end.replica.counters["applied_again"] == 0 for end in ends)


def test_what_a_diff_brings_goes_on_to_those_further_away() -> None:
    ends = [exchange(source) for source in (A, B, C)]
    chain = [Wire(ends[0], ends[1], 1), Wire(ends[1], ends[2], 2)]
    run(*chain)
    late = exchange(D)
    _, of = person(late)
    joined = Wire(late, ends[0], 3)
    run(*chain, joined)
    assert name(ends[2], of) and all(data_of(end) == data_of(late) for end in ends)


def test_replicas_in_a_ring_fall_silent() -> None:
    ends = [exchange(source) for source in (A, B, C, D)]
    wires = [Wire(ends[i], ends[(i + 1) % 4], i + 1) for i in range(4)]
    _, of = person(ends[0])
    run(*wires)  # fails unless all fall silent
    for number, end in enumerate(ends):
        rename(end, of, f"x{number}", number + 1)
    run(*wires)
    assert all(data_of(end) == data_of(ends[0]) for end in ends)
    counts = [sum(letter in "CYOE" for letter in w.letters(s)) for w in wires for s in (0, 1)]
    assert sum(counts) < 40


def test_pings_keep_a_silent_session_and_find_a_dead_peer() -> None:
    one, two = exchange(A), exchange(B)
    wire = Wire(one, two)
    run(wire)
    one.tick(PACE.ping_ms + 1)
    run(wire, now_ms=PACE.ping_ms + 1)
    assert wire.letters(0) == wire.letters(1) == "HDVP"
    one.tick(2 * PACE.ping_ms + 2)
    wire.take(0)
    one.tick(2 * PACE.ping_ms + 2 + PACE.wait_ms + 1)
    assert wire.sessions[0].reason == "silent"
    assert wire.take(0)[-1][:1] == b"b"


def test_a_peer_that_never_shakes_hands_is_let_go() -> None:
    end = exchange(A)
    session = end.open(bytes(10), 0)
    end.tick(PACE.wait_ms)
    assert not session.ended
    end.tick(PACE.wait_ms + 1)
    assert session.reason == "no_handshake"


def test_a_session_without_live_ends_when_both_diffs_are_done() -> None:
    one, two = exchange(A), exchange(B)
    _, of = person(one)
    wire = Wire(one, two, mode=MODE_READ | MODE_WRITE)
    run(wire)
    assert name(two, of) == name(one, of)
    assert wire.letters(0)[-1] == "B" or wire.letters(1)[-1] == "B"
    assert wire.sessions[0].ended and wire.sessions[1].ended


def test_a_queue_holds_what_its_bound_says_and_then_the_session_ends() -> None:
    one, two = exchange(A), exchange(B)
    _, of = person(one)
    wire = Wire(one, two)
    run(wire)
    rename(one, of, "x" * (SESSION_QUEUE_MAX // 2 - 100), 1)
    rename(one, of, "y" * (SESSION_QUEUE_MAX // 2 - 100), 2)
    one.settle()
    assert not wire.sessions[0].ended
    rename(one, of, "z" * 1000, 3)
    one.settle()
    assert wire.sessions[0].reason == "queue_overflow"
    wire.cut()
    run(Wire(one, two, 2))  # the next diff heals
    assert data_of(one) == data_of(two)


# --- the first protocol ---------------------------------------------------------------------------


def hello_of_first(*parts: bytes, seen: Vector | None = None) -> bytes:
    return record("H", b"".join(parts) + record("V", encode_vector(seen or {})) + record("X", b""))


ID_OF_C = record("I", zip_id(Id(C, 2 << 12)))


def test_the_handshake_of_the_first_protocol_is_an_id_that_may_be_missing_and_a_vector() -> None:
    """`H{I? V{v*} .*}`"""
    for id, last in ((ID_OF_C, Id(C, 2 << 12)), (b"1\x0c", Id(C, 0)), (b"", ID0)):
        packet = hello_of_first(id, seen=SEEN)
        assert packets.parse_handshake(packet) == (last, 7, SEEN, b"", packet, True)
    assert not packets.parse_handshake(HELLO).is_first


def test_objects_and_edits_without_a_v_are_applied_and_stay() -> None:
    """`O{...}` `E{...}`: the diff of the first protocol, and then what is changed."""
    one, two, three = exchange(C), exchange(B), exchange(D)
    _, of = person(one)
    rename(one, of, "Bob", 1)
    made = list(one.replica.outbox)
    behind = Wire(two, three)
    run(behind)
    for hello in (hello_of_first(ID_OF_C), hello_of_first()):
        session = two.open(bytes(10), 0)
        two.receive(session, hello, 0)
        two.receive(session, made.pop(0), 0)
        if len(made) == 1:
            two.receive(session, made.pop(), 0)
            assert not made and name(two, of).endswith(b"Bob".hex())
        two.settle()
        session.take(1 << 20)
        late = 2 * SYNC_POINT_MS_MAX
        for now in (late, late + PACE.ping_ms, late + 2 * PACE.ping_ms + 1):
            run(behind, now_ms=now)
            two.tick(now)
            assert not session.take(1 << 20)  # it knows no pings
        assert not session.ended and not session.held
        two.receive(session, packets.bye(LAST, "closing"), late)
        two.close(session)
    run(behind)
    one.settle()
    assert name(three, of) == name(two, of) == name(one, of)
    assert two.replica.table.vector[C] == one.replica.table.vector[C]
    assert two.replica.counters["held_back"] == 0


def test_what_came_before_a_handshake_of_the_first_protocol_waits_for_it() -> None:
    one, two = exchange(C), exchange(B)
    person(one)
    session = two.open(bytes(10), 0)
    for packet in one.replica.outbox:
        two.receive(session, packet, 0)
    assert len(session.held) == 2 and C not in two.replica.table.vector
    two.receive(session, hello_of_first(ID_OF_C), 0)
    assert two.replica.table.vector[C] == one.replica.table.vector[C] and not session.held


def test_of_a_handshake_of_today_what_follows_on_what_is_here_is_applied_without_its_v() -> None:
    one, two = exchange(C), exchange(B)
    run(first := Wire(one, two))
    first.cut()
    _, of = person(one)
    rename(one, of, "Bob", 1)
    made = list(one.replica.outbox)
    rename(one, of, "left out", 2)
    rename(one, of, "Ann", 3)
    session = two.open(bytes(10), 0)
    two.receive(session, packets.handshake(LAST, 7, SEEN, TRACE), 0)
    for packet in (*made, one.replica.outbox[-1]):
        two.receive(session, packet, 0)
    assert len(session.held) == 1 and name(two, of).endswith(b"Bob".hex())
    two.tick(SYNC_POINT_MS_MAX + 1)
    two.close(session)
    assert name(two, of).endswith(b"Bob".hex())
    assert two.replica.table.vector[C] == 3 << 12
    run(Wire(one, two, 2))
    assert data_of(one) == data_of(two)


def test_who_is_known_by_a_key_says_its_id_in_either_form() -> None:
    for hello, reason in ((hello_of_first(), "wrong_source"), (hello_of_first(ID_OF_C), "")):
        end = strict()
        session = end.open(bytes(10), 0, announced=lambda source: source == C)
        end.receive(session, hello, 0)
        assert session.reason == reason


def test_a_second_handshake_of_the_first_protocol_does_not_end_a_diff() -> None:
    two = exchange(B)
    session = two.open(bytes(10), 0)
    two.receive(session, HELLO, 0)
    two.receive(session, hello_of_first(record("I", zip_id(Id(D, 1 << 12)))), 0)
    assert not session.complete and list(session.points) == [LAST] and not session.ended


# --- holding back ---------------------------------------------------------------------------------


def test_a_change_before_the_end_of_the_diff_waits_and_is_forgotten_when_that_is_cut() -> None:
    one, two = exchange(A), exchange(B)
    _, of = person(one)
    wire = Wire(one, two)
    one.settle()
    wire.sessions[0].take(1)  # H, and nothing of the diff
    rename(one, of, "Bob", 1)
    live = one.replica.outbox[-1]
    one.settle()
    h_packet = packets.handshake(Id(A, 2 << 12 | 2), 7, dict(one.replica.table.vector), bytes(10))
    two.receive(wire.sessions[1], h_packet, 0)
    two.receive(wire.sessions[1], live, 0)
    assert two.replica.counters["held_back"] == 1
    assert A not in two.replica.table.vector
    two.close(wire.sessions[1])
    assert A not in two.replica.table.vector  # else the next diff would not bring the object
    one.close(wire.sessions[0])
    run(Wire(one, two, 2))
    assert data_of(one) == data_of(two)


def test_a_change_does_not_wait_for_the_diff_of_another_session() -> None:
    one, two, three = exchange(A), exchange(B), exchange(C)
    _, of = person(one)
    steady = Wire(one, two, 1)
    run(steady)
    for revision, over in enumerate(("applied", "dropped"), 1):
        other = Wire(three, two, 2)
        person(three)
        other.take(0), other.take(1)
        other.deliver(0, 1), other.deliver(1)
        assert other.sessions[1].points
        rename(one, of, over, revision)
        steady.take(0)
        steady.deliver(0)
        assert over.encode().hex() in name(two, of)
        if over == "applied":
            run(other)
            assert data_of(three) == data_of(two)
        other.cut()
    run(Wire(three, two, 3))
    assert data_of(three) == data_of(two)


def test_a_change_behind_a_diff_that_is_passed_on_waits_for_its_end() -> None:
    two, session = followed()
    two.receive(session, passed_on(D, 5), 0)
    change = packets.change("E", Id(D, 6 << 12), Id(0, 0x2000), F1)
    two.receive(session, change, 0)
    assert D not in two.replica.table.vector and two.replica.counters["held_back"] == 1
    two.receive(session, packets.diff_end(Id(D, 5 << 12), []), 0)
    assert two.replica.table.vector[D] == 6 << 12 and not session.held and not session.held_size


def test_what_is_held_back_is_bounded() -> None:
    one, two = exchange(A), exchange(B)
    session = two.open(bytes(10), 0)
    text = record("S", bare(0, 0, bytes(HELD_SIZE_MAX // 2 - 100)))
    for number in (1, 2, 3):
        two.receive(session, packets.change("O", Id(C, number << 12), Id(0, 0x3000), text), 0)
    assert session.reason == "held_too_much"
    assert two.replica.counters["refused_held_too_much"] == 1
    assert C not in two.replica.table.vector and one.replica


def test_all_diffs_of_a_session_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    two, session = followed()
    small = 10_000
    monkeypatch.setattr("appliance.cores.metadata.exchange.SYNC_POINT_SIZE_MAX", small)
    for number in range(1, 6):
        two.receive(session, passed_on(D, number), 0)
        state = bare(0, 0, bytes(small // 6))
        rows = [(Id(D, number << 12 | 1), "S", state)]
        two.receive(session, packets.block_diff(Id(D, number << 12), Id(D, 0), rows), 0)
        assert not session.ended
    state = bare(0, 0, bytes(small // 6))
    rows = [(Id(D, 1 << 12 | 2), "S", state)]
    two.receive(session, packets.block_diff(Id(D, 1 << 12), Id(D, 0), rows), 0)
    assert session.reason == "diff_too_large" and not session.points
    assert two.replica.counters["refused_diff_too_large"] == 1


def test_a_peer_that_never_ends_what_it_passes_on_is_let_go_however_it_goes_about_it() -> None:
    """One diff; the same begun again and again; ever new ones of which each has an end."""
    for way in ("one", "again", "overlapping"):
        two, session = followed()
        last = 0
        for number, now in enumerate(range(0, PASSED_DIFF_MS_MAX + 1, 5_000), 1):
            if way != "one" or not number - 1:
                two.receive(session, passed_on(D, number if way == "overlapping" else 1), now)
            if way == "overlapping" and last:
                two.receive(session, packets.diff_end(Id(D, last << 12), []), now)
            last = number
            two.receive(session, packets.ping(packets.PONG), now)
            two.tick(now)
        assert not session.ended, way
        change = packets.change("E", Id(C, 9 << 12), Id(0, 0x2000), F1)
        two.receive(session, change, PASSED_DIFF_MS_MAX)
        assert session.held
        two.tick(PASSED_DIFF_MS_MAX + 1)
        assert session.reason == "diff_too_slow", way
        assert two.replica.counters["refused_diff_too_slow"] == 1
        assert not session.points and not session.held and not session.held_size
        assert two.replica.table.vector[C] == 5 << 12  # what waited is not claimed


def test_the_time_of_what_is_passed_on_counts_from_the_end_of_the_own_diff() -> None:
    two = exchange(B)
    session = two.open(bytes(10), 0)
    two.receive(session, HELLO, 0)
    two.receive(session, passed_on(D, 1), 0)
    late = 2 * PASSED_DIFF_MS_MAX
    two.receive(session, packets.diff_end(LAST, []), late)
    two.tick(late + PASSED_DIFF_MS_MAX)
    two.receive(session, packets.ping(packets.PONG), late + PASSED_DIFF_MS_MAX)
    assert not session.ended
    two.tick(late + PASSED_DIFF_MS_MAX + 1)
    assert session.reason == "diff_too_slow"


def test_who_says_its_own_handshake_again_before_its_diff_has_ended_is_refused() -> None:
    two = exchange(B)
    session = two.open(bytes(10), 0)
    two.receive(session, HELLO, 0)
    two.receive(session, HELLO, 0)
    assert session.reason == "handshake_twice" and not session.points


ACTS = ("shake", "data", "end", "change", "own", "ping", "wait", "leave")


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 4)), max_size=40))
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_one_peer_does_the_edits_of_another_are_there_at_once(
    acts: list[tuple[str, int]],
) -> None:
    one, two, three = exchange(A), exchange(B), exchange(0xE)
    _, of = person(one)
    person(two)
    wires = Wire(one, two, 1), Wire(two, three, 2)
    run(*wires)
    hostile = two.open(bytes(10), 0)
    now = 0
    for revision, (act, number) in enumerate(acts, 1):
        last = Id(D, number << 12)
        made = {
            "shake": passed_on(D, number),
            "data": packets.block_diff(last, Id(D, 0), [(last.with_field(1), "S", b"0x")]),
            "end": packets.diff_end(last, []),
            "change": packets.change("E", Id(C, 6 + number << 12), Id(0, 0x2000), F1),
            "own": HELLO if number == 1 else packets.diff_end(LAST, []),
            "ping": packets.ping(packets.PONG),
        }
        if act == "leave" or hostile.ended:
            two.close(hostile)
            hostile = two.open(bytes(10), now)
        if act == "wait":
            now += PACE.ping_ms // 2
        if act in made:
            two.receive(hostile, made[act], now)
        text = f"edit {revision}"
        rename(one, of, text, revision)
        run(*wires, now_ms=now)
        two.tick(now)
        for end in (two, three):
            assert name(end, of).endswith(text.encode().hex())
        assert not any(session.ended for wire in wires for session in wire.sessions)


def followed() -> tuple[Exchange, Session]:
    """A replica with a session of C whose own diff is over."""
    two = exchange(B)
    session = two.open(bytes(10), 0)
    two.receive(session, HELLO, 0)
    two.receive(session, packets.diff_end(LAST, []), 0)
    assert session.complete
    return two, session


def passed_on(source: int, number: int) -> bytes:
    """The handshake of a replica behind the peer."""
    return packets.handshake(
        Id(source, number << 12), 7, {source: number << 12}, bytes([number]) * 10
    )


# --- refusals -------------------------------------------------------------------------------------

TRACE = bytes(10)
LAST = Id(C, 5 << 12)
SEEN = {0: 0x3000, C: 5 << 12}
HELLO = packets.handshake(LAST, 7, SEEN, TRACE)
F1 = record("F", b"\x01") + record("S", bare(0, C, b"x"))


def t() -> bytes:
    return record("T", zip_id(LAST))


BAD_SESSIONS: dict[str, list[bytes]] = {
    "bad_mode": [record("H", t() + record("M", b"\x08") + record("V", b"") + record("S", TRACE))],
    "bad_trace": [record("H", t() + record("M", b"\x07") + record("V", b"") + record("S", b"x"))],
    "unexpected_record": [record("H", t() + record("V", b"") + record("S", TRACE))],
    "incomplete_record": [record("H", t() + record("M", b"\x07"))],
    "own_number": [packets.handshake(Id(A, 3), 7, {A: 3}, TRACE)],
    "own_source_ahead": [packets.handshake(LAST, 7, {A: 99 << 12}, TRACE)],
    "shared_source": [packets.handshake(LAST, 7, {0: 99 << 12}, TRACE)],
    "unknown_source": [packets.handshake(Id(9, 1), 7, {9: 1}, TRACE)],
    "wrong_source": [packets.handshake(Id(D, 1), 7, {D: 1}, TRACE)],
    "vector_too_large": [
        packets.handshake(LAST, 7, dict.fromkeys(range(1_000_000, 1_070_000), 1), TRACE)
    ],
    "unknown_sync": [HELLO, packets.block_diff(Id(D, 1), Id(C, 0), [])],
    "unknown_sync ": [packets.block_diff(LAST, Id(C, 0), [])],
    "unknown_sync  ": [packets.diff_end(LAST, [])],
    "unknown_sync   ": [HELLO, packets.diff_end(LAST, []), packets.block_diff(LAST, Id(C, 0), [])],
    "unknown_sync    ": [HELLO, packets.diff_end(LAST, []), packets.diff_end(LAST, [])],
    "outside_of_block": [
        HELLO,
        record("D", t() + record("R", b"") + record("F", b"\0\0\0\x10") + record("S", b"0")),
    ],
    "value_without_type": [HELLO, record("D", t() + record("R", b"") + record("F", b"") + b"0")],
    "bad_element": [
        HELLO, record("D", t() + record("R", b"") + record("F", b"") + record("E", b"0"))
    ],
    "block_vector_ahead": [HELLO, packets.diff_end(LAST, [(Id(C, 0), {C: 6 << 12})])],
    "block_vector_ahead ": [HELLO, packets.diff_end(LAST, [(Id(C, 0), {D: 1})])],
    "bad_pair": [HELLO, record("V", t() + record("V", record("R", bytes(7))))],
    "no_handshake_first": [packets.ping(packets.PING)],
    "bad_ping": [HELLO, record("P", b"0pang")],
    "unknown_packet": [record("Q", b"")],
    "unknown_packet ": [b"3abc"],
    "too_many_diffs": [
        HELLO,
        *(packets.handshake(Id(C, n), 7, SEEN, TRACE) for n in range(SYNC_POINTS_MAX)),
    ],
    "short_term": [record("C", record("I", b"\x0c") + record("R", b"") + record("T", b"0S"))],
    "edit_of_nothing": [packets.change("E", LAST, ID0, F1)],
    "trailing_bytes": [packets.change("E", LAST, Id(C, 0), F1) + b"0"],
}  # fmt: skip


def strict() -> Exchange:
    """A replica that knows the sources C and D only."""
    return Exchange(Replica(MemoryStore(), source=A, admits=lambda s: s in (C, D)))


@pytest.mark.parametrize("reason", BAD_SESSIONS)
def test_a_session_that_breaks_a_rule_ends_with_a_bye_that_names_it(reason: str) -> None:
    end = strict()
    end.settle()
    before, digest = data_of(end), end.replica.verify()
    session = end.open(bytes(10), 0, announced=lambda source: source == C)
    session.take(1 << 20)
    for packet in BAD_SESSIONS[reason]:
        end.receive(session, packet, 0)
    assert session.reason == reason.strip()
    assert end.replica.counters["refused_" + reason.strip()] == 1
    end.settle()
    bye = session.take(1 << 20)
    assert packets.parse_bye(bye[-1]) == reason.strip()
    states = [row for row in data_of(end) if row[0][:1] == b"O"]
    assert states == [row for row in before if row[0][:1] == b"O"]
    assert end.replica.verify() == digest


def test_there_are_more_than_thirty_hostile_inputs() -> None:
    assert sum(map(len, BAD_CHANGES.values())) + len(BAD_SESSIONS) >= 60


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.sampled_from("HDVOEYCPB"))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_any_packet_is_taken_or_refused_and_nothing_else_happens(
    bodies: list[bytes], letter: str
) -> None:
    end = strict()
    session: Session = end.open(bytes(10), 0)
    end.receive(session, HELLO, 0)
    for body in bodies:
        end.receive(session, record(letter, body), 0)
        end.receive(session, long_record(letter, t() + body), 0)
    end.settle()
    end.replica.verify()


def test_a_diff_that_stops_half_way_is_given_up() -> None:
    end = strict()
    session = end.open(bytes(10), 0)
    end.receive(session, HELLO, 0)
    end.tick(1)
    for now in range(0, SYNC_POINT_MS_MAX, PACE.ping_ms // 2):
        end.receive(session, packets.ping(packets.PONG), now)
        end.tick(now)
    assert not session.ended
    end.tick(SYNC_POINT_MS_MAX + 1)
    assert session.reason == "diff_too_slow" and not session.points


def test_a_bye_ends_a_session_without_an_answer() -> None:
    one, two = exchange(A), exchange(B)
    wire = Wire(one, two)
    run(wire)
    two.receive(wire.sessions[1], packets.bye(LAST, "closing"), 0)
    assert wire.sessions[1].reason == "peer: closing" and not wire.take(1)


def test_bytes_that_are_no_records_end_the_session() -> None:
    end = exchange(A)
    session = end.open(bytes(10), 0)
    end.refuse(session, PacketRefused("bad_record"))
    assert session.reason == "bad_record"
    assert packets.parse_bye(session.take(1000)[-1]) == "bad_record"


def test_a_full_store_ends_all_sessions_and_they_heal_when_it_is_enlarged() -> None:
    one, store = exchange(A), MemoryStore()
    two = exchange(B, store=store)
    _, of = person(one)
    run(Wire(one, two))
    store.size_max = store.size + 10
    for end in (one, two):
        for session in list(end.sessions):
            end.close(session)
    rename(one, of, "x" * 1000, 1)
    wire = Wire(one, two, 2)
    with pytest.raises(Exception, match="the store holds"):
        run(wire)
    assert wire.sessions[1].reason == "store_full"
    wire.cut()
    store.size_max += 100_000
    run(Wire(one, two, 3))
    assert data_of(one) == data_of(two)
