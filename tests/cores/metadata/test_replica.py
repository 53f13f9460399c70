"""A replica alone: its first state, changes of its own and of others, and what is refused."""

import pytest

from appliance.base.errors import EditRefused, ObjectsFull, PacketRefused
from appliance.cores.metadata import packets
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.packets import parse_change
from appliance.cores.metadata.replica import Replica
from appliance.cores.metadata.store import block_key, change_key, state_key
from appliance.cores.metadata.terms import Term
from appliance.cores.metadata.writing import named_field
from appliance.formats.rdx.stamps import bare, count_record, element
from appliance.formats.rdx.text import state_text
from appliance.formats.rdx.values import encode_value
from appliance.formats.toytlv.ids import BLOCK_BITS, ID0, Id, parse_id, zip_id
from appliance.formats.toytlv.records import record
from appliance.formats.toytlv.version_vectors import vector_text
from appliance.simulation.objects.memory_store import MemoryStore
from tests.cores.metadata.pair import A, B, C, Wire, data_of, exchange, person, run, value


def h(text: str) -> bytes:
    return bytes.fromhex(text)


def replica(source: int = A, name: str = "alpha", store: MemoryStore | None = None) -> Replica:
    return Replica(store or MemoryStore(), source=source, name=name)


def state(one: Replica, id: str, letter: str) -> str:
    found = one.table.state(parse_id(id), letter)
    assert found is not None
    return found.hex()


# --- bytes of the Go implementation ---------------------------------------------------------------


def test_a_new_replica_holds_what_a_new_one_of_go_holds() -> None:
    one = replica()
    assert vector_text(one.table.vector) == "0-3,a-0-3"
    assert vector_text(one.table.block_vector(Id(0, 0))) == "0-3"
    assert vector_text(one.table.block_vector(Id(A, 0))) == "a-0-3"
    assert state(one, "a-0", "Y") == ""
    assert state(one, "a-0-1", "S") == "32000a616c706861"
    assert state(one, "a-0-2", "V") == ""
    assert state(one, "a-0-3", "S") == "32000a"
    assert block_key(Id(0, 5)).hex() == "56" + "00" * 8 + "000000000fffffff" + "56"


def test_our_own_packets_are_those_of_go() -> None:
    one = replica()
    made = one.create_class([Term(1, "S", "Name"), Term(2, "N", "Score")])
    one.create_object(made, [value('"Ann"'), ("N", count_record(5, A))])
    one.edit(Id(A, 2 << 12), [(2, "N", count_record(9, A))])
    assert [packet.hex() for packet in one.outbox] == [
        "631d69040a0000107200740831025300" + "4e616d6574093104" + "4e0053636f7265",
        "6f1969040a00002072040a00001073043041" + "6e6e6e0574033205" + "0a",
        "651569040a00003072040a000020" + "3102" + "6e05740332090a",
    ]
    assert state(one, "a-2-1", "S") == "32000a416e6e"
    assert state(one, "a-2-2", "N") == "740332090a"
    assert state(one, "a-2", "O") == "0a000010"
    assert vector_text(one.table.vector) == "0-3,a-3"
    assert vector_text(one.table.block_vector(Id(A, 0))) == "a-3"


# packets of Go: an object with ten fields of ten types; its text; its counter; a map of source 0
TEN_FIELDS = (
    "6f7369040a00003072040a00002066033002306902301572 0930ae00000000200300"
    "73063068656c6c6f7405307465726d6e05740332050a7a06690432020a0d"
    "650f6902300269023004730530666f75726d1069023002690230047302306b73023076"
    "6c10420b000000306903310202 6903310404"
)
ITS_TEXT = "651769040a00006072040a000030310473073102776f726c64"
ITS_COUNTER = "651669040a00005072040a0000306601066e05740332080a"
MAP_OF_ALL = "651c69040a00007072040000002031016d0c740530746573747203300064"


def test_packets_of_go_are_applied_to_its_states() -> None:
    one = replica()
    for packet in (TEN_FIELDS, ITS_TEXT, ITS_COUNTER, MAP_OF_ALL):
        change = parse_change(h(packet).replace(b"\x04\x0a\x00", b"\x04\x0b\x00"))
        one.receive(change)
    assert state(one, "b-3-4", "S") == "32020b776f726c64"
    assert state(one, "b-3-8", "E") == "690432000b02690432000b04730732000b666f7572"
    assert state(one, "b-3-9", "M") == "690432000b02690432000b04730432000b6b730432000b76"
    assert state(one, "b-3-a", "L") == "420b00000030" + "69033102026903310404"
    assert vector_text(one.table.vector) == "0-3,a-0-3,b-7"
    names = one.table.state(parse_id("0-2-1"), "M")
    assert names is not None
    assert state_text("M", names) == "{0:0-0,Global:0-2,Names:0-2-1,Nodes:0-2-2,test:0-0-64}"


# --- changes --------------------------------------------------------------------------------------


def test_an_edit_moves_the_vectors_of_the_object_it_edits() -> None:
    one, two = exchange(A), exchange(B)
    made, of = person(one)
    for packet in one.replica.outbox:
        two.replica.receive(parse_change(packet))
    two.replica.edit(of, [(1, "S", bare(1, 0, b"Bob"))])
    assert vector_text(two.replica.table.block_vector(Id(A, 0))) == "a-2-2,b-1"
    assert vector_text(two.replica.table.vector) == "0-3,a-2-2,b-1"
    assert state(two.replica, "a-2-1", "S") == "32020b426f62"


def test_a_change_that_came_before_changes_nothing() -> None:
    one, two = exchange(A), exchange(B)
    person(one)
    changes = [parse_change(packet) for packet in one.replica.outbox]
    assert [two.replica.receive(change) for change in changes] == [True, True]
    two.settle()
    before = two.replica.dump()
    assert [two.replica.receive(change) for change in changes] == [False, False]
    two.settle()
    assert two.replica.dump() == before


def test_a_store_opened_again_goes_on_with_the_next_number() -> None:
    store = MemoryStore()
    end = exchange(A, store=store)
    person(end)
    end.settle()
    digest = end.replica.verify()
    again = replica(store=store)
    assert again.verify() == digest
    assert str(again.create_class([Term(1, "S", "x")])) == "a-3"
    with pytest.raises(EditRefused, match="belongs to source a"):
        replica(source=B, store=store)


def test_what_was_not_written_did_not_happen() -> None:
    store = MemoryStore()
    end = exchange(A, store=store)
    person(end)  # the node dies before `settle`
    again = exchange(A, store=store)
    assert vector_text(again.replica.table.vector) == "0-3,a-0-3"
    assert str(person(again)[0]) == "a-1"


def test_a_full_store_refuses_an_edit_whole_and_works_again_when_enlarged() -> None:
    store = MemoryStore()
    end = exchange(A, store=store)
    _, of = person(end)
    end.settle()
    before, store.size_max = end.replica.dump(), store.size + 100
    end.replica.edit(of, [(1, "S", bare(1, 0, b"x" * 1000))])
    with pytest.raises(ObjectsFull):
        end.settle()
    assert end.replica.dump() == before and not end.replica.outbox
    store.size_max += 10_000
    end.replica.edit(of, [(1, "S", bare(1, 0, b"x" * 1000))])
    end.settle()
    assert state_text("S", end.replica.table.state(of.with_field(1), "S") or b"").count("x") == 1000
    assert str(end.replica.last) == "a-3"  # the number that was not used is


def test_edits_of_what_is_not_there_are_refused_and_use_no_number() -> None:
    one = replica()
    made = one.create_class([Term(1, "S", "x")])
    of = one.create_object(made, [value('"y"')])
    for wrong in (
        lambda: one.create_object(Id(A, 99 << 12), [value("1")]),
        lambda: one.create_object(made, []),
        lambda: one.create_object(made, [value("1")] * 128),
        lambda: one.edit(Id(A, 99 << 12), [(1, "S", bare(0, 0, b""))]),
        lambda: one.edit(of, []),
        lambda: one.edit(of, [(0, "S", bare(0, 0, b""))]),
        lambda: one.edit(of, [(128, "S", bare(0, 0, b""))]),
        lambda: one.edit(of, [(1, "I", bare(0, 0, bytes(9)))]),
        lambda: one.edit(of, [(1, "s", b"")]),
    ):
        with pytest.raises(EditRefused):
            wrong()
    assert str(one.last) == "a-2-1"
    assert str(one.edit(of, [(127, "I", bare(0, 0, b""))])) == "a-3"


def test_the_last_packet_number_is_the_last() -> None:
    one = replica()
    made = one.create_class([Term(1, "S", "x")])
    one.table.vector[A] = ((1 << 32) - 2) << 12
    assert str(one.create_object(made, [value("1")])) == "a-ffffffff"
    with pytest.raises(EditRefused, match="new source"):
        one.create_object(made, [value("1")])


@pytest.mark.parametrize("source", [-1, 0, 1, 1 << 20])
def test_a_source_that_no_replica_may_have_is_refused(source: int) -> None:
    with pytest.raises(EditRefused):
        replica(source=source)


def test_an_edit_of_several_objects_changes_all_of_them_and_the_vectors_of_their_blocks() -> None:
    one, two = replica(), exchange(C).replica
    far = Id(B, 1 << BLOCK_BITS | 3 << 12)
    parts = (F1, TEXT, record("F", b"\x02"), TEXT, record("R", zip_id(far)), b"1\x07", TEXT)
    many = parse_change(change("E", X1, X2, *parts))
    assert [(str(id), letter) for id, letter, _ in many.writes] == [
        ("b-2-1", "S"),
        ("b-2-2", "S"),
        ("b-10003-7", "S"),
    ]
    one.receive(many)
    assert state(one, "b-10003-7", "S") == state(one, "b-2-1", "S") == "32000b78"
    for block in (X2, far):
        assert vector_text(one.table.block_vector(block)) == "b-1"
    one.write()
    both = Exchange(one), Exchange(two)
    run(Wire(*both))  # a diff brings both
    assert data_of(both[0]) == data_of(both[1])


def test_an_edit_of_the_first_protocol_names_fields_by_number_and_type() -> None:
    """`E{I (R.)*}`: each value behind the id of its field."""
    one = replica()
    parts = (
        TEXT,
        *(record("R", zip_id(parse_id("8e-82f1-72"))), TEXT),
        *(record("R", zip_id(parse_id("8e-82f0-4d"))), record("N", count_record(5, B))),
    )
    packet = change("E", X1, parse_id("8e-82f0-32"), *parts)
    one.receive(parse_change(packet))
    assert state(one, "8e-82f0-1", "S") == state(one, "8e-82f1-3", "S") == "32000b78"
    assert state(one, "8e-82f0-2", "N") == "740332050b"
    assert vector_text(one.table.block_vector(Id(0x8E, 0x82F0 << 12))) == "b-1"


def test_what_follows_on_what_is_here_leaves_nothing_out() -> None:
    one = replica()

    def follows(letter: str, number: int) -> bool:
        ref = ID0 if letter == "Y" else X2
        return one.follows(parse_change(change(letter, Id(B, number << 12), ref, TEXT)))

    assert follows("Y", 0) and not follows("O", 1)
    one.receive(parse_change(change("Y", Id(B, 0), ID0, TEXT)))
    assert follows("O", 1) and not follows("O", 2)
    one.receive(parse_change(change("O", X1, X2, TEXT, TEXT)))
    assert follows("O", 1) and follows("O", 2) and not follows("O", 3)


def test_a_field_is_named_by_an_id_as_of_today_or_as_of_the_first_protocol() -> None:
    one = replica()
    terms = [Term(1, "S", "x"), Term(2, "N", "y"), Term(50, "S", "z"), Term(58, "S", "a")]
    of = one.create_object(one.create_class(terms), [value('"x"')])
    for typed, number in (("1", 1), ("32", 1), ("2", 2), ("4d", 2), ("3a", 58)):
        assert named_field(one, parse_id(f"{of}-{typed}")) == (of, number)
    for typed, reason in (
        (f"{of}", "names no field"),
        (f"{of}-52", "as one of type S; its class declares N"),
        (f"{of}-3", "declares no field 3"),
        ("a-9-32", "no object a-9"),
    ):
        with pytest.raises(EditRefused, match=reason):
            named_field(one, parse_id(typed))


# --- refusals -------------------------------------------------------------------------------------


def change(letter: str, id: Id, ref: Id, *parts: bytes) -> bytes:
    return packets.change(letter, id, ref, b"".join(parts))


X1, X2, F1 = Id(B, 1 << 12), Id(B, 2 << 12), record("F", b"\x01")
TEXT = record("S", bare(0, 0, b"x"))

BAD_CHANGES = {
    "id_with_field": [
        change("E", Id(B, 1 << 12 | 1), X2, F1, TEXT),
        change("E", X1, Id(B, 2 << 12 | 1), F1, TEXT),
        change("E", X1, Id(B, 2 << 12 | 0x33), TEXT),  # a T, as the first protocol names it
        change("E", X1, X2, F1, TEXT, record("R", zip_id(Id(B, 2 << 12 | 1))), TEXT),
        change("C", X1, Id(B, 2 << 12 | 1)),
        change("O", Id(B, 1 << 12 | 1), X2, TEXT),
    ],
    "object_without_class": [change("O", X1, ID0, TEXT)],
    "replica_with_class": [change("Y", X1, X2, TEXT)],
    "edit_of_nothing": [
        change("E", X1, ID0, F1, TEXT),
        change("E", X1, X2, F1, TEXT, record("R", b""), F1, TEXT),
    ],
    "too_many_objects": [
        change("E", X1, X2, *(record("R", zip_id(Id(C, n << 12))) for n in range(1, 4097)))
    ],
    "field_too_large_number": [
        change("E", X1, X2, record("F", b"\x00\x10"), TEXT),
        change("O", X1, X2, *[record("S", b"0")] * 4096),
    ],
    "unexpected_record": [
        change("E", X1, X2, TEXT),
        change("E", X1, Id(B, 2 << 12 | 0x32), TEXT, record("S", zip_id(X2)), F1, TEXT),
        record("O", record("R", b"") + record("I", b"")),
    ],
    "incomplete_record": [
        record("E", b""),
        record("E", record("I", b"") + b"r\x05"),
        change("E", X1, X2, F1),
        change("O", X1, X2, b"s\x09x"),
        change("O", X1, X2, b"S\x01"),
        change("E", X1, X2, F1, record("S", b"")),
    ],
    "bad_record": [change("O", X1, X2, b"\x00"), record("E", b"\xff")],
    "value_without_type": [change("O", X1, X2, b"0"), change("E", X1, X2, F1, b"1x")],
    "bad_pair": [record("E", record("I", bytes(7)))],
    "bad_id": [record("E", record("I", b"\x01" + bytes(14) + b"\xff"))],
    "bad_integer": [change("E", X1, X2, record("F", bytes(9)), TEXT)],
    "bad_value": [change("O", X1, X2, record("I", bare(0, 0, bytes(9))))],
    "bad_element": [
        change("O", X1, X2, record("E", record("M", b""))),
        change("O", X1, X2, record("N", record("I", b"0"))),
        change("O", X1, X2, record("N", record("T", b"0x"))),
        change("O", X1, X2, record("Z", record("T", b"0"))),
        change("O", X1, X2, record("E", b"0")),
    ],
    "bad_map": [change("O", X1, X2, record("M", element("S", 0, 0, b"k")))],
    "bad_author": [change("O", X1, X2, record("S", bare(0, 1 << 32, b"")))],
    "revision_too_large": [
        change("O", X1, X2, record("S", record("T", encode_value("I", 1 << 62) + bytes(8))))
    ],
    "short_term": [change("C", X1, ID0, element("T", 1, 0, b"S"))],
    "trailing_bytes": [change("O", X1, X2, TEXT) + b"0"],
}


@pytest.mark.parametrize(
    ("reason", "packet"),
    [(reason, packet) for reason, bad in BAD_CHANGES.items() for packet in bad],
)
def test_a_change_that_breaks_a_rule_is_refused_by_its_name(reason: str, packet: bytes) -> None:
    with pytest.raises(PacketRefused) as caught:
        parse_change(packet)
    assert caught.value.reason == reason


def test_sources_that_may_not_write_are_refused_and_nothing_is_kept() -> None:
    one = Replica(MemoryStore(), source=A, admits=lambda source: source == B)
    before = one.dump()
    for source, reason in ((A, "own_source_ahead"), (0, "shared_source"), (9, "unknown_source")):
        packet = change("E", Id(source, 9 << 12), X2, F1, TEXT)
        with pytest.raises(PacketRefused, match=reason):
            one.receive(parse_change(packet))
    assert not one.table.changed and one.dump() == before


def test_a_field_stands_in_the_index_under_the_newest_packet_of_each_source() -> None:
    one = replica()
    field = state_key(Id(B, 2 << 12 | 1), "S")

    def entered(source: int) -> list[int]:
        found = one.table.changes(source, change_key(source, 0))
        return [progress >> 12 for progress, name in found if name == field[1:]]

    for batch, newest in (([9], 9), ([3], 9), ([9], 9), ([12, 10, 11, 12], 12), ([13], 13)):
        for number in batch:
            one.receive(parse_change(change("E", Id(B, number << 12), X2, F1, TEXT)))
        one.write()
        assert entered(B) == [newest]
        assert one.table.get(field + B.to_bytes(8, "big")) == (newest << 12).to_bytes(8, "big")
    one.receive(parse_change(change("E", Id(C, 4 << 12), X2, F1, TEXT)))
    one.receive(parse_change(change("E", Id(B, 14 << 12), X2, F1, TEXT)))
    one.forget()
    one.receive(parse_change(change("E", Id(C, 5 << 12), X2, F1, TEXT)))
    one.write()
    assert (entered(B), entered(C)) == ([13], [5])


def test_the_index_of_fields_that_are_edited_again_and_again_stays_small() -> None:
    store, fields, rounds = MemoryStore(), 40, 30
    edited = [of + 1 for of in range(fields)]  # and as many that nobody edits again
    order = [fields + of for of in edited] + edited * rounds
    first, end = change_key(B, 0), change_key(B + 1, 0)
    rows: list[int] = []
    one = replica(store=store)
    for number, of in enumerate(order, 1):
        one.receive(parse_change(change("E", Id(B, number << 12), Id(B, of << 12), F1, TEXT)))
        if number % 8 == 0:
            one.write()
            rows.append(len(list(store.scan(first, end))))
            one = replica(store=store)  # which goes on where it was left
    assert 2 * fields < max(rows) <= 4 * fields + 20
    entered = [p >> 12 for p, _ in one.table.changes(B, first)]
    assert entered == [*range(1, fields + 1), *range(len(order) - fields + 1, len(order) + 1)]


def test_an_index_of_an_earlier_version_is_gone_on_with_where_a_field_is_edited() -> None:
    store = MemoryStore()
    one = replica(store=store)
    for number in (1, 2):
        one.receive(parse_change(change("E", Id(B, number << 12), Id(B, number << 12), F1, TEXT)))
    one.write()
    fields = [state_key(Id(B, number << 12 | 1), "S") for number in (1, 2)]
    beside = [field + B.to_bytes(8, "big") for field in fields]
    earlier = [b"W" + key[1:] for key in beside]
    values = [store.get(key) for key in beside]
    store.write(dict.fromkeys(beside) | dict(zip(earlier, values, strict=True)))

    one = replica(store=store)
    one.receive(parse_change(change("E", Id(B, 1 << 12), X1, F1, TEXT)))  # again
    one.write()
    assert [store.get(key) for key in (beside[0], earlier[0])] == [values[0], None]
    one.receive(parse_change(change("E", Id(B, 3 << 12), X1, F1, TEXT)))
    one.write()
    entered = [(p >> 12, name) for p, name in one.table.changes(B, change_key(B, 0))]
    assert entered == [(2, fields[1][1:]), (3, fields[0][1:])]
    assert [store.get(key) for key in (beside[1], earlier[1])] == [None, values[1]]
    assert [key for key, _ in one.dump() if len(key) > 18] == [] and one.verify()

    # an earlier version has run in between once more: it knows nothing of numbers beside states
    later = (4 << 12).to_bytes(8, "big")
    store.write({earlier[0]: later, change_key(B, 4 << 12, fields[0][1:]): b""})
    one = replica(store=store)
    assert (4 << 12, fields[0][1:]) in one.table.changes(B, change_key(B, 0))
    one.receive(parse_change(change("E", Id(B, 5 << 12), X1, F1, TEXT)))
    one.write()
    last = [p >> 12 for p, name in one.table.changes(B, change_key(B, 0)) if name == fields[0][1:]]
    assert (last, store.get(earlier[0])) == ([5], None)


def test_a_packet_is_applied_whole_or_not_at_all() -> None:
    one = replica()
    big = change("E", X1, X2, F1, record("L", bytes(9 << 20)))
    one.receive(parse_change(big))
    one.write()
    before = one.dump()
    mixed = change("E", X2, X2, record("F", b"\x02"), TEXT, F1, record("L", bytes(9 << 20)))
    with pytest.raises(PacketRefused, match="field_too_large"):
        one.receive(parse_change(mixed))
    assert not one.table.changed and one.dump() == before
    assert one.table.get(state_key(Id(B, 2 << 12 | 2), "S")) is None
