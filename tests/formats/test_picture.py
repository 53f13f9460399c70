"""Files that a profile takes as its picture, and those that it refuses by a sentence."""

import base64

import pytest

from appliance.base.errors import TextRefused
from appliance.base.limits import OBJECT_TEXT_SIZE_MAX, PICTURE_SIDE_MAX
from appliance.formats.picture import picture_text
from tests.png_file import Colour, png_of


def plain(x: int, y: int) -> Colour:
    return 200, 60, 40


def jpeg(width: int, height: int, *, before: bytes = b"") -> bytes:
    """Head of a JPEG, which is all that is looked at."""
    frame = b"\xff\xc0\x00\x11\x08" + height.to_bytes(2) + width.to_bytes(2) + bytes(10)
    return b"\xff\xd8" + before + frame


SEGMENTS = b"\xff\xdb\x00\x04ab\xff\xc4\x00\x04ab"  # stand before the frame
LARGEST = png_of(PICTURE_SIDE_MAX, PICTURE_SIDE_MAX, plain)
FULL = 3 * (OBJECT_TEXT_SIZE_MAX - len("data:image/png;base64,")) // 4 // 3 * 3  # bytes that fit


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("png", png_of(16, 16, plain)),
        ("png", LARGEST),
        ("png", LARGEST.ljust(FULL, b"\0")),
        ("jpeg", jpeg(64, PICTURE_SIDE_MAX)),
        ("jpeg", jpeg(64, 64, before=SEGMENTS)),
    ],
)
def test_a_small_picture_is_text_that_holds_its_bytes(kind: str, data: bytes) -> None:
    head, _, rest = picture_text(data).partition(",")
    assert head == f"data:image/{kind};base64" and base64.b64decode(rest) == data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither"),
        (b"GIF89a" + bytes(40), "neither"),
        (png_of(16, 16, plain)[:20], "neither"),
        (b"\xff\xd8" + SEGMENTS + b"\xff\xda" + bytes(40), "neither"),
        (png_of(16, 16, plain, claims=(30000, 30000)), "30000 x 30000 pixels"),
        (png_of(16, 16, plain, claims=(0, 16)), "0 x 16 pixels"),
        (jpeg(PICTURE_SIDE_MAX + 1, 64), "129 x 64 pixels"),
        (LARGEST.ljust(FULL + 3, b"\0"), "at most 4096"),
    ],
)
def test_another_file_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(TextRefused, match=why):
        picture_text(data)
