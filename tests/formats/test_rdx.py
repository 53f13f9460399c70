"""The notation of values: both ways, and what is no value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.errors import IdOutOfBounds, TextRefused
from appliance.base.limits import REVISION_MAX, TEXT_DEPTH_MAX
from appliance.formats.rdx.notation import Value, parse_value
from appliance.formats.rdx.stamps import AUTHOR_MAX, bare, count_record, revision_of
from appliance.formats.rdx.text import state_text
from appliance.formats.rdx.values import encode_value, quote, unquote
from appliance.formats.toytlv.ids import Id, make_id


@pytest.mark.parametrize(
    ("text", "letter", "state"),
    [
        ("12345", "I", "30" + encode_value("I", 12345).hex()),
        ("-0", "I", "30"),
        ("-11", "I", "3015"),
        ("12(a,5)", "I", "3018"),
        ("1e5", "F", "30" + encode_value("F", 1e5).hex()),
        ("-1e3", "F", "30" + encode_value("F", -1e3).hex()),
        ("3.5e0", "F", "300230"),
        ("b0b-1", "R", "300b0b0010"),
        ("1f8-a364-5", "R", "30" + "f8010000" + "0540360a"),
        ('"a\\"\\\\\\/\\n\\u0041\\ud83d\\ude00"', "S", "30" + 'a"\\/\nA\U0001f600'.encode().hex()),
        ("Name", "T", "30" + b"Name".hex()),
        ("null", "T", "30"),
        ("b0b", "T", "30" + b"b0b".hex()),
        ("(3)", "N", "7402" + "3103"),
        ("(+3)", "Z", "69023006"),
        ("(-7)", "Z", "6902300d"),
        ("{}", "E", ""),
        ('{3,"four",5}', "E", "690230066902300a730530666f7572"),
        ("{1:2, 3:4}", "M", "69023002690230046902300669023008"),
        ("  { 1 : null }  ", "M", "690230027401" + "30"),
    ],
)
def test_a_text_is_the_value_of_go(text: str, letter: str, state: str) -> None:
    assert parse_value(text) == Value(letter, bytes.fromhex(state), parse_value(text).amount)


@pytest.mark.parametrize("source", [0, 1, 255, 70_000, AUTHOR_MAX])
def test_how_large_a_revision_is_does_not_depend_on_its_sign_or_stamp(source: int) -> None:
    for revision in (0, 1, 127, 128, 40_000, 1 << 31, 1 << 32, REVISION_MAX):
        for value in (b"", b"\xff" * 9):
            assert revision_of(bare(revision, source, value)) == revision
            assert revision_of(bare(-revision, source, value)) == revision


@pytest.mark.parametrize(
    ("text", "letter", "amount"), [("+3", "N+", 3), ("++3", "Z+", 3), ("--3", "Z+", -3)]
)
def test_increments_carry_their_amount(text: str, letter: str, amount: int) -> None:
    assert parse_value(text) == Value(letter, b"", amount)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1.5", "{1:2,3}", "{1,2:3}", "(1 1)", "(--2)", "1-2-3-4", "{1", "1}", "[1,2]"),
        *("{1,}", "{,}", "{:}", "{1:}", '"', '"\\x"', '"\\u12"', "1 2", "{{1}}", "{(3)}", "1e"),
        "()",
        *("99999999999999999999", "(99999999999999999999)", "1" * 5000, "(" + "1" * 5000 + ")"),
        *("100000-1", "{" * (TEXT_DEPTH_MAX + 1), "++", "12a!"),
    ],
)
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises((TextRefused, IdOutOfBounds)):
        parse_value(text)


def test_brackets_nest_to_their_bound_and_no_deeper() -> None:
    with pytest.raises(TextRefused, match="single values"):
        parse_value("{" * TEXT_DEPTH_MAX + "}" * TEXT_DEPTH_MAX)
    with pytest.raises(TextRefused, match="deep"):
        parse_value("{" * (TEXT_DEPTH_MAX + 1) + "}" * (TEXT_DEPTH_MAX + 1))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_integer_survives_its_text(number: int) -> None:
    state = bare(0, 0, encode_value("I", number))
    assert parse_value(state_text("I", state)).state == state


@given(st.text())
def test_a_text_survives_its_quotes(text: str) -> None:
    state = bare(0, 0, encode_value("S", text))
    assert parse_value(state_text("S", state)).state == state
    assert unquote(quote(text)) == text


@given(st.builds(make_id, st.integers(0, 0xFFFFF), st.integers(0, 0xFFFFFFFF), st.integers(0, 99)))
def test_an_id_survives_its_text(id: Id) -> None:
    state = bare(0, 0, encode_value("R", id))
    assert parse_value(state_text("R", state)).state == state


@given(st.integers(0, (1 << 64) - 1))
def test_a_counter_survives_its_text(count: int) -> None:
    state = count_record(count, 0) if count else b""
    assert parse_value(f"({state_text('N', state)})").state == state


@given(st.text(max_size=30))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    try:
        parse_value(text)
    except (TextRefused, IdOutOfBounds):
        pass
