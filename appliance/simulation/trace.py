"""What happened, as a hash over everything and as text for the last events.

Each line of the trace is (time, kind, who, what): numbers, bytes or a header. The chain takes in
the time, the kind, who it concerns and the identity of what it carries; text is made only when
somebody reads it.
"""

import struct
from collections import deque
from hashlib import blake2b

from appliance.formats.envelope import Header

LINES_KEPT = 200
BLOCK_EVENTS = 1024  # a running digest is kept for each block, to find a difference

_IDENTITY_SIZE = 16
_LINE = struct.Struct(f"<QHHqq{_IDENTITY_SIZE}s")

# Kinds: events delivered, then effects performed, then what the world does.
KINDS = (
    "tick",
    "deliver",
    "read_done",
    "write_done",
    "reply",
    "send",
    "send_client",
    "write",
    "read",
    "publish",
    "mark",
    "halt",
    "start",
    "crash",
    "pause",
    "resume",
    "partition",
    "heal",
    "clock_step",
    "drop",
    "corrupt",
    "request",
    "phase",
    "commit",
)
(
    TICK,
    DELIVER,
    READ_DONE,
    WRITE_DONE,
    REPLY,
    SEND,
    SEND_CLIENT,
    WRITE,
    READ,
    PUBLISH,
    MARK,
    HALT,
    START,
    CRASH,
    PAUSE,
    RESUME,
    PARTITION,
    HEAL,
    CLOCK_STEP,
    DROP,
    CORRUPT,
    REQUEST,
    PHASE,
    COMMIT,
) = range(len(KINDS))

Line = tuple[int, int, int, int, int, Header | bytes | str | None]


class Trace:
    """The chain so far and the last lines; `kept` is the text of the events in `wanted`."""

    __slots__ = ("count", "blocks", "kept", "_chain", "_last", "_wanted")

    def __init__(self, wanted: range = range(0)) -> None:
        self.count = 0
        self.blocks: list[str] = []  # running digest after each BLOCK_EVENTS events
        self.kept: list[str] = []
        self._chain = blake2b(digest_size=16)
        self._last: deque[Line] = deque(maxlen=LINES_KEPT)
        self._wanted = wanted

    def add(
        self,
        time_us: int,
        kind: int,
        who: int,
        first: int = 0,
        second: int = 0,
        what: Header | bytes | str | None = None,
    ) -> None:
        """One line. `who`: a replica, WORLD, or EDGE + an edge; two numbers of the kind's own."""
        if what is None:
            identity = b""
        elif isinstance(what, Header):
            identity = what.digest
        elif isinstance(what, str):
            identity = what.encode()[-_IDENTITY_SIZE:]
        else:
            identity = what[:_IDENTITY_SIZE]
        self._chain.update(_LINE.pack(time_us, kind, who, first, second, identity))
        line = (time_us, kind, who, first, second, what)
        self._last.append(line)
        if self.count in self._wanted:
            self.kept.append(text(line))
        self.count += 1
        if self.count % BLOCK_EVENTS == 0:
            self.blocks.append(self.digest())

    @property
    def verbose(self) -> bool:
        """Whether the text of events is kept, and so is what belongs to it."""
        return len(self._wanted) > 0

    def note(self, time_us: int, who: int, step: str) -> None:
        """Which step of a core moved it, if the next event is in `wanted`: text only, no part of
        the chain.
        """
        if self.count in self._wanted:
            self.kept.append(f"{_begin(time_us, who)} {'step':<12} {step}")

    def digest(self) -> str:
        """Hex digest of the chain so far."""
        return self._chain.hexdigest()

    def last(self) -> list[str]:
        """The last lines as text, oldest first."""
        return [text(line) for line in self._last]


def text(line: Line) -> str:
    """One line of the trace for people: tick and microsecond, kind, who, what."""
    time_us, kind, who, first, second, what = line
    detail = what.hex() if isinstance(what, bytes) else "" if what is None else str(what)
    return f"{_begin(time_us, who)} {KINDS[kind]:<12} {first} {second} {detail}"


def _begin(time_us: int, who: int) -> str:
    """What each line begins with: tick and microsecond, who."""
    name = f"edge {who - 100}" if who >= 100 else "world" if who == 99 else f"replica {who}"
    return f"{time_us // 10_000:>6}.{time_us % 10_000:04} {name:<10}"


WORLD = 99  # `who` of lines about nobody in particular
EDGE = 100  # `who` of edge e is EDGE + e
