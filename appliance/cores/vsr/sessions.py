"""The replicated table of clients: who is registered, what each asked last, and the reply it got.

It changes only at commit. Recording request numbers at prepare time would lock a client out when
a view change discards its prepare. A client here is an edge's session, so a few dozen rows serve
any number of people.
"""

from collections.abc import Iterator

from appliance.base.layout import struct_of
from appliance.formats import envelope as env
from appliance.formats.checkpoint import SESSION_ROW
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import SESSION_ROW_SIZE, Geometry

_STRUCT = struct_of(SESSION_ROW)
_EMPTY = bytes(SESSION_ROW_SIZE)


class Session:
    """One registered client. `body` is None while the reply is not in memory (after a restart)."""

    __slots__ = ("client", "row", "session", "request", "reply", "body", "faulty", "dirty")

    def __init__(self, client: bytes, row: int, session: int) -> None:
        assert row >= 0
        self.client = client
        self.row = row
        self.session = session
        self.request = 0
        self.reply: Header | None = None
        self.body: bytes | None = None
        self.faulty = False  # its reply slot cannot be read
        self.dirty = False  # its reply is newer than its slot


class Sessions:
    """At most `clients_max` sessions; rows are taken lowest first, so equal histories give equal
    bytes.
    """

    def __init__(self, geometry: Geometry) -> None:
        assert geometry.clients_max > 0
        self.capacity = geometry.clients_max
        self.entries: dict[bytes, Session] = {}
        self.rows: list[Session | None] = [None] * self.capacity

    def get(self, client: bytes) -> Session | None:
        return self.entries.get(client)

    def register(self, client: bytes, op: int) -> bytes | None:
        """Add a session numbered `op`; returns the client evicted for it: the one whose reply has
        the lowest op.
        """
        assert op > 0
        assert len(client) == 16
        evicted = None
        known = self.entries.get(client)
        if known is not None:
            row = known.row
        else:
            if len(self.entries) == self.capacity:
                oldest = min(self.entries.values(), key=_reply_op)
                evicted = oldest.client
                self.remove(evicted)
            row = self.rows.index(None)
        entry = Session(client, row, op)
        self.entries[client] = entry
        self.rows[row] = entry
        assert len(self.entries) <= self.capacity
        return evicted

    def remove(self, client: bytes) -> None:
        entry = self.entries.pop(client)
        assert self.rows[entry.row] is entry
        self.rows[entry.row] = None

    def encode(self) -> bytes:
        """The table's bytes up to its highest used row."""
        assert len(self.rows) == self.capacity
        rows = [
            _EMPTY
            if entry is None
            else _STRUCT.pack(
                entry.client,
                entry.session,
                entry.request,
                b"",
                entry.reply.digest if entry.reply else b"",
                entry.reply.raw if entry.reply else b"",
                b"",
            )
            for entry in self.rows
        ]
        while rows and rows[-1] is _EMPTY:
            rows.pop()
        return b"".join(rows)

    def load(self, raw: bytes) -> None:
        """Replace all sessions by those of `encode`'s bytes; replies are read from their slots
        when asked for.
        """
        assert len(raw) % SESSION_ROW_SIZE == 0
        assert len(raw) <= self.capacity * SESSION_ROW_SIZE
        self.entries = {}
        self.rows = [None] * self.capacity
        for row in range(len(raw) // SESSION_ROW_SIZE):
            piece = raw[row * SESSION_ROW_SIZE : (row + 1) * SESSION_ROW_SIZE]
            if piece == _EMPTY:
                continue
            client, session, request, _, _, reply_raw, _ = _STRUCT.unpack(piece)
            entry = Session(client, row, session)
            entry.request = request
            entry.reply = env.decode(reply_raw)
            assert entry.reply is not None
            self.entries[client] = entry
            self.rows[row] = entry

    def dirty_replies(self) -> Iterator[tuple[Session, Message]]:
        """Sessions whose reply slot is older than their reply, in row order."""
        for entry in self.rows:
            if (
                entry is not None
                and entry.dirty
                and entry.reply is not None
                and entry.body is not None
            ):
                yield entry, Message(entry.reply, entry.body)


def _reply_op(entry: Session) -> int:
    return entry.reply.op if entry.reply is not None else entry.session
