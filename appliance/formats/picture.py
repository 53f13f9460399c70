"""A person's picture as a profile has it: a small JPEG or PNG, as the text of a data address.

Whoever shows pictures of others looks at the size that they say before decoding them: a few bytes
can claim gigabytes.
"""

import base64

from appliance.base.errors import TextRefused
from appliance.base.limits import OBJECT_TEXT_SIZE_MAX, PICTURE_SIDE_MAX

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_NO_FRAMES = (0xC4, 0xC8, 0xCC)  # numbers among those of a JPEG's frames that begin none


def picture_text(data: bytes) -> str:
    """The text of a picture file. TextRefused says why a profile takes no such file."""
    size = _png_size(data) or _jpeg_size(data)
    if size is None:
        raise TextRefused("it is neither PNG nor JPEG")
    if not all(0 < side <= PICTURE_SIDE_MAX for side in size):
        raise TextRefused(
            f"it has {size[0]} x {size[1]} pixels: make it at most {PICTURE_SIDE_MAX} a side"
        )
    kind = "png" if data.startswith(_PNG) else "jpeg"
    text = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    if len(text) > OBJECT_TEXT_SIZE_MAX:
        raise TextRefused(
            f"as text it has {len(text)} bytes: make it at most {OBJECT_TEXT_SIZE_MAX}, with fewer "
            "pixels or as a JPEG of less quality"
        )
    return text


def _png_size(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_PNG) or data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Of the first frame; segments before it are passed over."""
    at = len(_JPEG)
    while data.startswith(_JPEG) and at + 9 <= len(data):
        marker = data[at + 1]
        if data[at] != 0xFF or marker < 0xC0 or marker == 0xDA:
            return None
        if marker <= 0xCF and marker not in _NO_FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
