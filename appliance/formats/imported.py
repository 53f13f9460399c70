"""The body of an imported record: a line that says when and by whom it was said, then the text.

    852076800123000 Ada Lovelace
    what she said

Microseconds since the epoch in decimal digits, a space, the author as the archive shows him. The
record's own author is whoever imported it, and nobody else vouches for the line. A long text is
several records, each with the line; the later ones answer the first one.
"""

import re
from typing import NamedTuple

from appliance.base.limits import IMPORTED_AUTHOR_SIZE_MAX

_SAID_US_MAX = (1 << 63) - 1
_HEAD = re.compile(rb"(0|[1-9][0-9]{0,18}) ([^\n]{1,%d})\n" % IMPORTED_AUTHOR_SIZE_MAX)
_UNKNOWN = "unknown"


class Imported(NamedTuple):
    """What an imported record says; `head_size` bytes of its body stand before the text."""

    said_us: int
    author: str
    head_size: int


def encode_head(said_us: int, author: str) -> bytes:
    """What stands before the text. What was said before 1970 is said at its beginning; of a longer
    name the beginning is kept."""
    name = " ".join(author.split()).encode()[:IMPORTED_AUTHOR_SIZE_MAX].decode(errors="ignore")
    moment = min(max(said_us, 0), _SAID_US_MAX)
    return f"{moment} {name.strip() or _UNKNOWN}\n".encode()


def decode_imported(body: bytes | memoryview) -> Imported | None:
    """None for a body that does not begin as one of an imported record does."""
    found = _HEAD.match(body)
    if found is None or int(found[1]) > _SAID_US_MAX:
        return None
    try:
        return Imported(int(found[1]), found[2].decode(), found.end())
    except UnicodeDecodeError:
        return None
