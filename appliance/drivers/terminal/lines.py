"""Messages as lines of a terminal."""

from datetime import UTC, datetime

from appliance.base.printable import safe


def moment(timestamp_us: int) -> str:
    """Time of day with date, UTC."""
    return f"{datetime.fromtimestamp(timestamp_us / 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"


def imported_author(said_by: str, author: str) -> str:
    """Whom an imported message is shown of, and who vouches for that."""
    return f"{said_by} (imported by {author})"


def message_line(*, op: int, timestamp_us: int, author: str, body: str, reply: bool) -> str:
    """One message; further lines of its body are indented below the first."""
    first, *others = safe(body).split("\n")
    mark = "> " if reply else ""
    lines = [f"{op:>6}  {moment(timestamp_us)}  {safe(author)}: {mark}{first}"]
    lines += [f"{'':>6}  {line}" for line in others]
    return "\n".join(lines)
