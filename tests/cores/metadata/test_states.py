"""Merges: the bytes of the Go implementation, and the laws that make replicas agree."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.base.errors import EditRefused, PacketRefused
from appliance.base.limits import FIELD_SIZE_MAX, REVISION_MAX
from appliance.cores.metadata import counter, map, register, set, terms
from appliance.cores.metadata.states import SORTED, empty, in_diff, merge, sourced
from appliance.formats.rdx.check import check_state
from appliance.formats.rdx.stamps import bare, counts, element, elements, runs, split_bare
from appliance.formats.rdx.text import count_of, state_text, two_way_count_of
from appliance.formats.rdx.values import decode_value, encode_value
from appliance.formats.toytlv.integers import zip_signed
from tests.cores.metadata.authors import LETTERS, Authors, histories


def h(text: str) -> bytes:
    return bytes.fromhex(text)


# --- bytes of the Go implementation ---------------------------------------------------------------

MERGED = [
    # a later revision of an equal one: the larger bytes, then the larger source
    ("I", ["32080802", "32080704", "32080504"], "32080704"),
    ("I", ["300002", "3002"], "3002"),
    ("I", ["3002", "300002"], "3002"),
    (
        "N",
        ["740332010174033202027403320303", "740332030274033203037403320404"],
        "7403320101740332030274033203037403320404",
    ),
    (
        "Z",
        [
            "6904320201026904320402046904320603 06",
            "6904320602066904320603066904320804 08",
        ],
        "690432020102690432060206690432060306690432080408",
    ),
    (
        "E",
        # the second one is not sorted: it is brought into order, where Go leaves it as it lies
        ["69023002690230047305 30666f7572", "690230067305 30666f75726902300a"],
        "690230026902300469023006690230 0a7305 30666f7572",
    ),
    (
        "E",
        ["690230026902300469023006730530666f75726902300a", "6903310102"],
        "69033101026902300469023006 6902300a7305 30666f7572",
    ),
    (
        "M",
        ["690230026902300469023006690230086902300a6902300c",
         "69023006690230086902300a6902300c6902300e69023010"],
        "690230026902300469023006690230086902300a6902300c6902300e69023010",
    ),
    (
        "M",
        ["690230026902300469023006690230086902300a6902300c6902300e69023010",
         "690331010a690331010c"],
        "69023002690230046902300669023008690331010a690331010c6902300e69023010",
    ),
    (
        "C",
        ["740530496f6e65740631025374776f74083104527468726565",
         "740530496f6e65740631025374776f74083104527468726565740731065466 6f7572"],
        "740530496f6e65740631025374776f74083104527468726565740731065466 6f7572",
    ),
    ("C", ["740431024278", "740431024179"], "740431024179740431024278"),
    ("V", ["760400000030", "76020a03"], "76040000003076020a03"),
    ("O", ["0a000010", "0b000010"], "0a000010"),
    ("L", ["01", "02"], "0102"),
]  # fmt: skip


@pytest.mark.parametrize(("letter", "states", "merged"), MERGED)
def test_merged_states_are_those_of_go(letter: str, states: list[str], merged: str) -> None:
    state: bytes | None = None
    for one in states:
        check_state(letter, h(one))
        state = merge(letter, state, h(one))
    assert state is not None and state.hex() == h(merged).hex()


@pytest.mark.parametrize(
    ("state", "bytes_"),
    [
        (element("I", 4, 5, encode_value("I", -11)), "690432080515"),
        (bare(4, 5, encode_value("I", -11)), "32080515"),
        (bare(0, 0, b"x"), "3078"),
        (bare(0, 0xA, b"alpha"), "32000a616c706861"),
        (bare(1, 0, b"b"), "310262"),
        (counter.increment(b"", 0xA, 5), "740332050a"),
        (element("I", 1, 0xA, zip_signed(-7)), "690432020a0d"),
        (counter.set_to(h("690432020102690432040204690432060306"), 2, 10), "69043206020c"),
    ],
)
def test_states_are_those_of_go(state: bytes, bytes_: str) -> None:
    assert state.hex() == bytes_


def test_an_edit_gets_the_source_of_its_packet_as_in_go() -> None:
    e = h("690230026902300473 05 30666f7572")
    assert sourced("E", e, 0xA).hex() == "690432000a02690432000a04730732000a666f7572"
    m = h("690230026902300473 02 306b73 02 3076")
    assert sourced("M", m, 0xA).hex() == "690432000a02690432000a04730432000a6b730432000a76"
    assert sourced("N", h("740332050a"), 0xB).hex() == "740332050a"
    assert sourced("S", h("30616c706861"), 0xA).hex() == "32000a616c706861"
    assert sourced("S", h("32000a616c706861"), 0xA).hex() == "32000a616c706861"


def test_an_unsorted_operand_is_brought_into_order() -> None:
    unsorted = h("69023006730530666f75726902300a")
    assert merge("E", None, unsorted).hex() == "690230066902300a730530666f7572"


# --- laws -----------------------------------------------------------------------------------------


def examples(count: int) -> settings:
    return settings(max_examples=count, suppress_health_check=[HealthCheck.too_slow])


def all_of(letter: str, states: list[bytes]) -> bytes | None:
    merged: bytes | None = None
    for state in states:
        merged = merge(letter, merged, state)
    return merged


@pytest.mark.parametrize("letter", LETTERS)
def test_states_and_deltas_of_authors_merge_by_the_laws(letter: str) -> None:
    """All laws of one history: to draw it takes longer than to ask any of them."""

    @given(histories(letter), st.integers(0, 1 << 32))
    @examples(25)
    def holds(authors: Authors, number: int) -> None:
        states = [state for state in authors.states if state is not None]
        merges_commute_associate_and_take_nothing_twice(letter, states)
        deltas_in_any_order_and_number_make_the_state(authors, random.Random(number))
        if letter in SORTED:
            states_are_sorted_and_hold_no_key_twice(letter, states)

    holds()


def merges_commute_associate_and_take_nothing_twice(letter: str, states: list[bytes]) -> None:
    for state in states:
        check_state(letter, state)
        assert merge(letter, state, state) == state
    for a, b in itertools.permutations(states, 2):
        assert merge(letter, a, b) == merge(letter, b, a)
    if len(states) == 3:
        a, b, c = states
        left = merge(letter, merge(letter, a, b), c)
        assert left == merge(letter, a, merge(letter, b, c)) == all_of(letter, [c, a, b])


def deltas_in_any_order_and_number_make_the_state(authors: Authors, chance: random.Random) -> None:
    whole = all_of(authors.letter, [state for state in authors.states if state is not None])
    again = authors.deltas * 2
    chance.shuffle(again)
    assert all_of(authors.letter, again) == whole


def states_are_sorted_and_hold_no_key_twice(letter: str, states: list[bytes]) -> None:
    for state in states:
        keys = keys_of(letter, state)
        assert all(a < b for a, b in itertools.pairwise(keys))


def keys_of(letter: str, state: bytes) -> list[Any]:
    if letter == "N":
        return [one.source for one in counts(state)]
    if letter == "Z":
        return [one.source for one in runs(state, "I")]
    if letter == "E":
        return [one.value for one in elements(state)]
    if letter == "M":
        return [(key.letter, key.value) for key, _ in map.pairs(state)]
    if letter == "C":
        return [(one.revision, one.value) for one in runs(state, "T")]
    return [state]


@pytest.mark.parametrize("letter", "FIRST")
def test_a_delta_of_a_register_makes_the_new_value(letter: str) -> None:
    @given(histories(letter), histories(letter))
    @examples(30)
    def holds(one: Authors, two: Authors) -> None:
        for old, new in zip(one.states, two.states, strict=True):
            if old is None or new is None:
                continue
            wanted = split_bare(new).value
            delta = register.delta(old, wanted)
            after = merge(letter, old, sourced(letter, delta, 7)) if delta else old
            assert split_bare(after).value == wanted
            assert (delta == b"") == (split_bare(old).value == wanted)

    holds()


@examples(40)
@given(histories("E"), st.lists(st.binary(max_size=2), max_size=4))
def test_a_delta_of_a_set_makes_the_new_members(authors: Authors, wanted: list[bytes]) -> None:
    for old in authors.states:
        delta = set.become(old or b"", [("S", value) for value in wanted])
        after = merge("E", old, sourced("E", delta, 7))
        assert sorted(value for _, value in set.members(after)) == sorted({*wanted})


@examples(40)
@given(
    histories("M"),
    st.dictionaries(
        st.tuples(st.just("S"), st.binary(max_size=1)),
        st.tuples(st.just("S"), st.binary(max_size=2)),
        max_size=4,
    ),
)
def test_a_delta_of_a_map_makes_the_new_pairs(authors: Authors, wanted: dict[str, Any]) -> None:
    for old in authors.states:
        delta = map.become(old or b"", wanted)
        after = merge("M", old, sourced("M", delta, 7))
        assert map.native(after) == wanted


@given(histories("N"), st.integers(0, 100))
@examples(40)
def test_a_growing_counter_is_the_sum_of_its_authors_and_never_falls(
    authors: Authors, more: int
) -> None:
    states = [state or b"" for state in authors.states]
    merged = all_of("N", states)
    assert merged is not None
    assert count_of(merged) == sum(one.value for one in counts(merged))
    assert all(count_of(merged) >= count_of(state) for state in states)
    total = count_of(merged) + more
    delta = counter.raise_to(merged, 2, total)
    assert count_of(merge("N", merged, delta)) == total
    if total:
        with pytest.raises(EditRefused):
            counter.raise_to(merge("N", merged, delta), 2, total - 1)


@given(histories("Z"), st.integers(-1000, 1000))
@examples(40)
def test_a_two_way_counter_becomes_what_it_is_set_to(authors: Authors, value: int) -> None:
    merged = all_of("Z", [state or b"" for state in authors.states])
    assert merged is not None
    assert two_way_count_of(merge("Z", merged, counter.set_to(merged, 2, value))) == value


def test_a_marker_with_a_number_of_the_outside_never_goes_back() -> None:
    key = ("S", b"room")
    state = merge("M", None, map.put(b"", key, ("I", zip_signed(7)), revision=7))
    assert map.put(state, key, ("I", zip_signed(5)), revision=5) == b""
    late = map.put(b"", key, ("I", zip_signed(5)), revision=5)
    assert map.native(merge("M", state, late)) == {key: ("I", zip_signed(7))}
    newer = map.put(state, key, ("I", zip_signed(9)), revision=9)
    assert map.native(merge("M", newer, state)) == {key: ("I", zip_signed(9))}


def test_elements_of_equal_bytes_and_different_types_are_one_whatever_the_order() -> None:
    number, text = element("I", 0, 1, b"a"), element("S", 0, 1, b"a")
    assert merge("E", number, text) == merge("E", text, number)
    assert len(elements(merge("E", number, text))) == 1


def test_a_revision_used_twice_wins_the_same_way_everywhere() -> None:
    for letter in "ZM":
        key = element("I", 1, 1, b"\x02") if letter == "M" else b""
        one, two = key + element("I", 1, 1, b"\x04"), key + element("I", 1, 1, b"\x06")
        assert merge(letter, one, two) == merge(letter, two, one)


# --- what belongs into a diff, what a class may hold, bounds --------------------------------------


def test_a_diff_by_the_rule_of_go_leaves_out_what_an_unchanged_source_wrote() -> None:
    changed = {7: 0}
    assert in_diff("S", bare(0, 7, b"x"), changed)
    assert not in_diff("S", bare(0, 8, b"x"), changed)
    assert not in_diff("O", b"", changed) and not in_diff("Y", b"", changed)
    assert all(in_diff(letter, b"", changed) for letter in "NZEMCVL")


def test_terms_survive_and_bad_ones_are_refused() -> None:
    declared = [terms.Term(1, "S", "Name"), terms.Term(2, "N", "Score")]
    state = terms.encode_terms(declared)
    assert state.hex() == "74083102" + "53004e616d65" + "74093104" + "4e0053636f7265"
    assert terms.decode_terms(state) == declared
    for bad in ((0, "S", "x"), (128, "S", "x"), (1, "L", "x"), (1, "S", ""), (1, "S", "x" * 256)):
        with pytest.raises(EditRefused):
            terms.encode_terms([terms.Term(*bad)])
    with pytest.raises(PacketRefused, match="short_term"):
        check_state("C", element("T", 1, 0, b"S"))


def test_the_last_revision_is_the_last() -> None:
    old = bare(REVISION_MAX, 1, b"x")
    check_state("S", old)
    with pytest.raises(EditRefused):
        register.delta(old, b"y")
    with pytest.raises(PacketRefused, match="revision_too_large"):
        check_state("S", bare(REVISION_MAX + 1, 1, b"x"))


def test_a_field_grows_to_its_bound_and_no_further() -> None:
    half = bytes(FIELD_SIZE_MAX // 2)
    full = merge("L", half, half)
    assert len(full) == FIELD_SIZE_MAX
    check_state("L", full)
    with pytest.raises(PacketRefused, match="field_too_large"):
        merge("L", full, b"x")
    with pytest.raises(PacketRefused, match="field_too_large"):
        check_state("L", full + b"x")


@pytest.mark.parametrize("letter", LETTERS + "OYLA")
def test_any_bytes_are_a_state_that_merges_or_refused(letter: str) -> None:
    @given(st.binary(max_size=40), st.binary(max_size=40))
    @examples(100)
    def holds(one: bytes, two: bytes) -> None:
        try:
            check_state(letter, one)
            check_state(letter, two)
        except PacketRefused:
            return
        merged = merge(letter, merge(letter, None, one), two)
        check_state(letter, merged)
        state_text(letter, merged)
        sourced(letter, merged, 3)

    holds()


def test_every_type_has_an_empty_state_and_its_text() -> None:
    texts = {letter: state_text(letter, empty(letter)) for letter in "FIRSTNZEMCVOY"}
    assert texts == {
        "F": "0.000000", "I": "0", "R": "0-0", "S": '""', "T": "null", "N": "0", "Z": "0",
        "E": "{}", "M": "{}", "C": "[]", "V": "", "O": "0-0", "Y": "0-0",
    }  # fmt: skip
    assert decode_value("S", b"\xff") == "\ufffd"
