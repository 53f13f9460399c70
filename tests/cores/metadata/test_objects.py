"""Topics, pins, reactions, read markers, profiles and presence, on replicas that were cut off."""

import pytest

from appliance.base.errors import EditRefused
from appliance.base.limits import OBJECT_TEXT_SIZE_MAX, PINS_MAX, REACTIONS_MAX
from appliance.cores.metadata import product
from appliance.cores.metadata.exchange import Exchange
from appliance.cores.metadata.objects import Objects
from appliance.cores.metadata.replica import Replica
from appliance.formats.rdx.stamps import element
from appliance.formats.toytlv.version_vectors import vector_text
from appliance.simulation.objects.memory_store import MemoryStore
from tests.cores.metadata.pair import A, B, C, Wire, data_of, exchange, run


def node(source: int, store: MemoryStore | None = None) -> tuple[Exchange, Objects]:
    replica = Replica(store or MemoryStore(), source=source, shared=product.PACKETS)
    return Exchange(replica), Objects(replica)


def test_classes_have_the_same_ids_everywhere_and_a_foreign_replica_gets_them() -> None:
    (one, objects), foreign = node(A), exchange(B)
    assert vector_text(one.replica.table.vector) == "0-3,1-6,a-0-3"
    objects.set_topic("lobby", "Hello")
    run(Wire(one, foreign))
    for of in product.CLASSES:
        terms = product.terms_of(of)
        assert one.replica.terms_of(of) == foreign.replica.terms_of(of) == terms
    assert foreign.replica.verify() == one.replica.verify()


def test_an_older_store_gets_the_classes_that_it_lacks() -> None:
    store = MemoryStore()
    Replica(store, source=A, shared=product.PACKETS[:2])
    assert vector_text(Replica(store, source=A).table.vector) == "0-3,1-2,a-0-3"
    newer = Replica(store, source=A, shared=product.PACKETS)
    assert vector_text(newer.table.vector) == "0-3,1-6,a-0-3"
    assert newer.terms_of(product.PRESENCE) == product.CLASSES[product.PRESENCE]


def test_objects_of_one_key_made_apart_read_as_one_and_later_writes_count() -> None:
    (one, at_one), (two, at_two), (three, at_three) = node(A), node(B), node(C)
    ends = [at_one, at_two, at_three]
    for number, objects in enumerate(ends):
        objects.react("m1", f"user{number}@s", "+1", present=True)
        objects.set_topic("lobby", f"topic {number}")
        objects.pin("lobby", f"m{number}", pinned=True)
        objects.mark_read("ann@s", "lobby@s", 10 - number)
        objects.mark_read("ann@s", f"other{number}@s", 5)
        objects.see("ann@s", 1000 + number)
    wires = [Wire(one, two, 1), Wire(two, three, 2)]
    run(*wires)
    for objects in ends:
        assert objects.reactions("m1") == [(f"user{n}@s", "+1") for n in range(3)]
        assert objects.topic("lobby") == "topic 2"
        assert objects.pins("lobby") == ["m0", "m1", "m2"]
        assert objects.read_markers("ann@s")["lobby@s"] == 10
        assert len(objects.read_markers("ann@s")) == 4
        assert objects.seen_ms("ann@s") == 1002
    # of the three objects of each key the smallest takes the writes, and they count
    assert at_three.set_topic("lobby", "a new one") is not None
    assert at_two.react("m1", "user2@s", "+1", present=False) is not None
    assert at_one.pin("lobby", "m1", pinned=False) is not None
    run(*wires)
    for objects in ends:
        assert objects.topic("lobby") == "a new one"
        assert objects.reactions("m1") == [("user0@s", "+1"), ("user1@s", "+1")]
        assert objects.pins("lobby") == ["m0", "m2"]
    assert data_of(one) == data_of(two) == data_of(three)


def test_a_read_marker_never_goes_back_and_a_user_is_never_seen_earlier() -> None:
    end, objects = node(A)
    assert objects.mark_read("ann@s", "lobby@s", 7) is not None
    assert objects.mark_read("ann@s", "lobby@s", 7) is None
    assert objects.mark_read("ann@s", "lobby@s", 5) is None
    assert objects.mark_read("ann@s", "lobby@s", 9) is not None
    assert objects.read_markers("ann@s") == {"lobby@s": 9}
    assert objects.see("ann@s", 1_700_000_000_000) is not None
    assert objects.see("ann@s", 1_699_999_999_999) is None
    assert objects.seen_ms("ann@s") == 1_700_000_000_000
    end.settle()


def test_what_does_not_change_makes_no_packet() -> None:
    end, objects = node(A)
    assert objects.set_topic("lobby", "x") and objects.set_profile("u@s", product.ABOUT, "hi")
    assert objects.set_topic("lobby", "x") is None
    assert objects.react("m", "u@s", "+1", present=False) is None
    assert objects.pin("lobby", "m", pinned=True) is not None
    assert objects.pin("lobby", "m", pinned=True) is None
    assert objects.profile("u@s") == ("", "hi", "")
    assert len(end.replica.outbox) == 3


def test_the_index_of_keys_is_made_again_when_it_is_lost() -> None:
    store = MemoryStore()
    end, objects = node(A, store)
    objects.set_topic("lobby", "x")
    objects.react("m", "u@s", "+1", present=True)
    end.settle()
    for key, _ in list(store.scan(b"K", b"L")):
        store.write({key: None})
    store.write({b"Mkeyed2": None})
    _, again = node(A, store)
    assert again.topic("lobby") == "x" and again.reactions("m") == [("u@s", "+1")]


def test_a_key_of_another_room_with_the_same_beginning_is_another_one() -> None:
    _, objects = node(A)
    objects.set_topic("room", "short")
    objects.set_topic("room two", "long")
    assert objects.topic("room") == "short" and objects.topic("room two") == "long"
    assert objects.topic("roo") == ""


def test_bounds_hold_at_their_value_and_refuse_one_more() -> None:
    end, objects = node(A)
    first = objects.react("m", "u0@s", "+1", present=True)
    assert first is not None
    others = [element("S", 0, 0, f"u{n}@s +1".encode()) for n in range(1, REACTIONS_MAX)]
    end.replica.edit(first, [(product.REACTED, "E", b"".join(others))])
    with pytest.raises(EditRefused, match="already"):
        objects.react("m", "one_more@s", "+1", present=True)
    assert objects.react("m", "u0@s", "+1", present=False) is not None
    assert objects.react("m", "one_more@s", "+1", present=True) is not None
    for number in range(PINS_MAX):
        objects.pin("lobby", f"m{number}", pinned=True)
    with pytest.raises(EditRefused, match="already"):
        objects.pin("lobby", "one more", pinned=True)
    assert objects.set_topic("lobby", "x" * OBJECT_TEXT_SIZE_MAX) is not None
    for wrong in (
        lambda: objects.set_topic("lobby", "x" * (OBJECT_TEXT_SIZE_MAX + 1)),
        lambda: objects.set_topic("", "x"),
        lambda: objects.set_topic("x" * (product.KEY_SIZE_MAX + 1), "x"),
        lambda: objects.set_topic("a\0b", "x"),
        lambda: objects.mark_read("u@s", "lobby@s", 0),
        lambda: objects.mark_read("u@s", "lobby@s", 1 << 60),
        lambda: objects.react("m", "u s", "+1", present=True),
        lambda: objects.react("m", "u@s", "", present=True),
        lambda: objects.react("m", "u@s", "x" * 65, present=True),
    ):
        with pytest.raises(EditRefused):
            wrong()
