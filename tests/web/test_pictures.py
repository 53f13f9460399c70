"""Pictures of people: which ones a browser is let decode, and how one's own are made."""

import base64
import random

import pytest
from playwright.sync_api import Page

from tests.png_file import Colour, png_of, url_of
from tests.web.test_modules import run

ORANGE, BLUE = (240, 150, 70), (40, 90, 140)


def plain(x: int, y: int) -> Colour:
    return ORANGE


def jpeg(width: int, height: int, *, before: bytes = b"") -> bytes:
    """Head of a JPEG, which is all that is looked at."""
    frame = b"\xff\xc0\x00\x11\x08" + height.to_bytes(2) + width.to_bytes(2) + bytes(10)
    return b"\xff\xd8" + before + frame


SMALL = png_of(16, 16, plain)
QUANTITIES = b"\xff\xdb\x00\x04ab"  # a segment that stands before the frame
TABLE = b"\xff\xc4\x00\x04ab"  # no frame, though its number lies among theirs
TAKEN = {
    "a small PNG": url_of(SMALL),
    "the largest PNG": url_of(png_of(128, 128, plain)),
    "a JPEG": url_of(jpeg(64, 64), "jpeg"),
    "a JPEG with more before its frame": url_of(jpeg(64, 64, before=QUANTITIES + TABLE), "jpeg"),
}
REFUSED = {
    "nothing": "",
    "a word": "blue",
    "an address": "https://elsewhere.example/pixel.png",
    "a script": "javascript:alert(1)",
    "a drawing": url_of(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "svg+xml"),
    "a drawing under another name": url_of(b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    "a PNG as a JPEG": url_of(SMALL, "jpeg"),
    "no base64": "data:image/png;base64,\N{TIGER FACE}",
    "a cut PNG": url_of(SMALL[:20]),
    "a PNG of a billion pixels": url_of(png_of(16, 16, plain, claims=(30000, 30000))),
    "a PNG that is too high": url_of(png_of(16, 129, plain)),
    "a PNG without width": url_of(png_of(16, 16, plain, claims=(0, 16))),
    "a JPEG of a billion pixels": url_of(jpeg(65535, 65535), "jpeg"),
    "a JPEG that is too wide": url_of(jpeg(129, 64), "jpeg"),
    "a JPEG that tells its height later": url_of(jpeg(64, 0), "jpeg"),
    "a JPEG without a frame": url_of(b"\xff\xd8" + QUANTITIES + b"\xff\xda" + bytes(40), "jpeg"),
    "more than a profile holds": url_of(SMALL + bytes(4096)),
}


@pytest.mark.parametrize("what", [*TAKEN, *REFUSED])
def test_only_small_pictures_of_the_two_types_are_decoded(blank: Page, what: str) -> None:
    text = {**TAKEN, **REFUSED}[what]
    looked = "const { pictureOf } = await load('picture'); return pictureOf(argument) !== null;"
    assert run(blank, looked, text) == (what in TAKEN)


DECODED = "const { bitmapOf } = await load('picture'); const found = await bitmapOf(argument);"


def test_what_is_damaged_behind_its_head_is_no_picture(blank: Page) -> None:
    size = DECODED + "return found && [found.width, found.height];"
    assert run(blank, size, url_of(SMALL)) == [16, 16]
    assert run(blank, size, url_of(SMALL[:40] + bytes(40))) is None


MADE = """
  const { pictureFrom, pictureOf, bitmapOf, draw, SIDE_PX } = await load('picture');
  const bytes = Uint8Array.from(atob(argument), (letter) => letter.charCodeAt(0));
  const { text, refusal } = await pictureFrom(new File([bytes], 'mine'));
  if (!text) return refusal;
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = SIDE_PX;
  draw(canvas, await bitmapOf(text));
  const at = (x, y) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data.slice(0, 3)];
  return [text.slice(0, 23), text.length, pictureOf(text) !== null, at(32, 32), at(2, 2)];
"""


def noise(seed: int) -> bytes:
    random_ = random.Random(seed)
    return png_of(300, 200, lambda x, y: tuple(random_.randbytes(3)))  # type: ignore[arg-type]


def test_ones_own_is_the_middle_of_a_file_made_small(blank: Page) -> None:
    def ball(x: int, y: int) -> Colour:
        return ORANGE if (x - 150) ** 2 + (y - 100) ** 2 < 60**2 else BLUE

    for file in (png_of(300, 200, ball), noise(1)):
        kind, size, is_taken, middle, corner = run(blank, MADE, base64.b64encode(file).decode())
        assert kind == "data:image/jpeg;base64," and size <= 3000 and is_taken
        if file != noise(1):
            assert all(abs(a - b) < 12 for a, b in zip(middle, ORANGE, strict=True)), middle
            assert all(abs(a - b) < 12 for a, b in zip(corner, BLUE, strict=True)), corner


def test_a_file_that_is_no_picture_is_refused_in_words(blank: Page) -> None:
    said = run(blank, MADE, base64.b64encode(b"no picture").decode())
    assert isinstance(said, str) and said.startswith("This is no picture")
