"""What all readers share: cleaning, splitting into bodies, the header line."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.archive.entry import Entry, bodies_of, clean, decode, pieces
from appliance.formats.imported import decode_imported


@given(st.text(max_size=3000), st.integers(4, 300))
def test_pieces_joined_are_the_text_and_each_is_whole_characters(text: str, size_max: int) -> None:
    bodies = pieces(text, size_max)
    assert b"".join(bodies).decode() == text
    for body in bodies:
        assert len(body) <= size_max
        body.decode()  # raises inside a character
    assert len(bodies) >= 1 and (b"" not in bodies or not text)


def test_pieces_keeps_a_body_at_the_limit_whole_and_splits_one_past_it() -> None:
    assert pieces("a" * BODY_SIZE_MAX) == [b"a" * BODY_SIZE_MAX]
    assert [len(body) for body in pieces("a" * (BODY_SIZE_MAX + 1))] == [BODY_SIZE_MAX, 1]


def test_pieces_prefers_to_split_after_a_word() -> None:
    text = "word " * 600
    assert all(body.endswith(b" ") for body in pieces(text))


def test_each_body_has_author_and_time_of_then() -> None:
    entry = Entry("chess", "Alice", 1_078_135_200_000_000, "", "", "hello\nthere")
    assert bodies_of(entry) == [b"1078135200000000 Alice\nhello\nthere"]
    bodies = bodies_of(entry._replace(text="word " * 1000))
    assert len(bodies) == 3 and all(len(body) <= BODY_SIZE_MAX for body in bodies)
    heads = [decode_imported(body) for body in bodies]
    assert [head[:2] for head in heads] == [(1_078_135_200_000_000, "Alice")] * 3
    texts = [body[head.head_size :] for body, head in zip(bodies, heads, strict=True)]
    assert b"".join(texts).decode() == "word " * 1000


def test_clean_drops_irc_colours_and_keeps_newlines_and_tabs() -> None:
    assert clean("a\x0304red\x03\r\nb\tc\rd\x00") == "a04red\nb\tc\nd"


def test_decode_reads_old_encodings_and_never_fails() -> None:
    assert decode("grün".encode()) == decode("grün".encode("cp1252")) == "grün"
    assert decode(bytes(range(128, 256)))
