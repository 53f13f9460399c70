"""Messages as lines of a terminal."""

from datetime import UTC, datetime

from appliance.base.printable import one_line, safe
from appliance.formats.client.objects import ObjectEvent
from appliance.formats.policy_bits import POLICY_CLOSED, POLICY_SHARED


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


def policy_words(bits: int) -> str:
    """What a moderator, or an operator, has done by a policy with these bits."""
    words = "closed the room" if bits & POLICY_CLOSED else "set the room to open"
    return f"{words}, shared with other sites" if bits & POLICY_SHARED else words


def change_line(event: ObjectEvent, op: int | None) -> str:
    """What people changed beside messages, `op` the number of the one that it is about. No line of
    a message begins with such a mark."""
    text = event.text or ""
    of = f"message {event.msg_id}" if op is None else str(op)
    if event.kind == "topic":
        said = f"topic: {text}" if text else "no topic any more"
    elif event.kind == "pin":
        said = f"{of} is pinned" if event.present else f"{of} is not pinned any more"
    elif event.present:
        said = f"{event.author} reacted to {of} with {text}"
    else:
        said = f"{event.author} took back from {of} {text}"
    return f"{'*':>6}  {one_line(said)}"
