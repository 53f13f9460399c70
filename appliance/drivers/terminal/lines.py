"""Messages as lines of a terminal."""

import re
from datetime import UTC, datetime

# Every control character but newline and tab, and marks that turn the direction of what follows.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """`text` with what could command a terminal shown as a replacement character."""
    return _UNSAFE.sub("\ufffd", text)


def moment(timestamp_us: int) -> str:
    """Time of day with date, UTC."""
    return f"{datetime.fromtimestamp(timestamp_us / 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"


def message_line(*, op: int, timestamp_us: int, author: str, body: str, reply: bool) -> str:
    """One message; further lines of its body are indented below the first."""
    first, *others = safe(body).split("\n")
    mark = "> " if reply else ""
    lines = [f"{op:>6}  {moment(timestamp_us)}  {safe(author)}: {mark}{first}"]
    lines += [f"{'':>6}  {line}" for line in others]
    return "\n".join(lines)
