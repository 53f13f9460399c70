"""What all readers share: cleaning, splitting into bodies, the header line."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import BODY_SIZE_MAX
from appliance.formats.archive.entry import Entry, body_of, clean, decode, pieces


@given(st.text(max_size=3000), st.integers(4, 300))
def test_pieces_joined_are_the_text_and_each_is_whole_characters(text, size_max):
    bodies = pieces(text, size_max)
    assert b"".join(bodies).decode() == text
    for body in bodies:
        assert len(body) <= size_max
        body.decode()  # raises inside a character
    assert len(bodies) >= 1 and (b"" not in bodies or not text)


def test_pieces_keeps_a_body_at_the_limit_whole_and_splits_one_past_it():
    assert pieces("a" * BODY_SIZE_MAX) == [b"a" * BODY_SIZE_MAX]
    assert [len(body) for body in pieces("a" * (BODY_SIZE_MAX + 1))] == [BODY_SIZE_MAX, 1]


def test_pieces_prefers_to_split_after_a_word():
    text = "word " * 600
    assert all(body.endswith(b" ") for body in pieces(text))


def test_body_starts_with_author_and_time_of_then():
    entry = Entry("chess", "Alice", 1_078_135_200_000_000, "", "", "hello\nthere")
    assert body_of(entry) == "Alice · 2004-03-01T10:00:00Z\nhello\nthere"


def test_clean_drops_irc_colours_and_keeps_newlines_and_tabs():
    assert clean("a\x0304red\x03\r\nb\tc\rd\x00") == "a04red\nb\tc\nd"


def test_decode_reads_old_encodings_and_never_fails():
    assert decode("grün".encode()) == decode("grün".encode("cp1252")) == "grün"
    assert decode(bytes(range(128, 256)))
