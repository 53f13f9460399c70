"""Commands: what a message between members and clients of a shard's group says, one class for each.

A class names who sends the command to whom, what the header's `aux`, `op` and 24 bytes of `area`
hold, and `invalid` says in words what no header of this command may be. That is judged by the
header alone, once, before the message reaches whoever acts on it: behind that, rules are asserted.
What depends on the state of the receiver, and on the body's bytes, is judged there.

    header.area  -- PrepareOk.digest -->  the digest of the prepare that is acknowledged
    PrepareOk.pack(digest)            -->  the area of a new header

What reads a field works on `area` itself: no object is made for a message.
"""

from struct import Struct
from typing import ClassVar

import numpy as np

from appliance.base.layout import bytes_of, int_of, picked, struct_of
from appliance.formats import envelope as env
from appliance.formats import session
from appliance.formats.envelope import Header, Message
from appliance.formats.geometry import HEADER_SIZE

HEADERS_PER_ANSWER_MAX = 64  # of one message `headers`
CHUNKS_PER_MESSAGE_MAX = 32  # that one message asks for

# What a request_chunk asks for, each, and how a chunk begins.
CHUNK_ENTRY = np.dtype([("id", "V32"), ("place", "V16")])
CHUNK_ENTRY_SIZE = CHUNK_ENTRY.itemsize
_ENTRY = struct_of(CHUNK_ENTRY)
encode_entry, decode_entry = _ENTRY.pack, _ENTRY.unpack_from
CHECKPOINT_ID_SIZE = 32  # the body of a commit

# Who is on either end of a message.
CLIENT = "client"  # a session of an edge, or of an operator's command
PRIMARY = "primary"
REPLICA = "replica"  # a member that votes
MEMBER = "member"  # a replica or a standby


def _layout(area: np.dtype) -> Struct:
    """Of the fields of an area; what is reserved is packed as zeros, and not looked at."""
    assert area.names is not None and area.itemsize == env.HEADER["area"].itemsize
    return picked(area, *(name for name in area.names if name != "reserved"))


class Command:
    """What all have: who sends it to whom, what `aux`, `op` and `area` hold."""

    sent_by: ClassVar[tuple[str, ...]]
    sent_to: ClassVar[tuple[str, ...]]
    aux: ClassVar[str] = ""  # empty: nothing, it is zero
    op: ClassVar[str] = ""
    area: ClassVar[np.dtype] = np.dtype([("reserved", "V24")])

    @staticmethod
    def invalid(header: Header) -> str | None:
        """What is wrong with a header of this command, in words; None: nothing."""
        return None


class Prepare(Command):
    """A request with its place in the log; `Header.parent` and `Header.timestamp` read the area."""

    sent_by, sent_to = (PRIMARY, MEMBER), (MEMBER,)
    aux, op = "request", "op"
    area = np.dtype([("parent", "V16"), ("timestamp", "<u8")])
    pack = _layout(area).pack

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.op < 1:
            return "is of the root, which every member has from its format"
        if header.operation == env.OPERATION_RESERVED:
            return "is of a placeholder, which stands in lists alone"
        if header.commit_num >= header.op:
            return "is committed before it is prepared"
        return None


class PrepareOk(Command):
    """This prepare is durable here."""

    sent_by, sent_to = (REPLICA,), (PRIMARY,)
    op = "op"
    area = np.dtype([("digest", "V16"), ("reserved", "V8")])
    pack = _layout(area).pack
    digest = bytes_of(area, "digest")


class Commit(Command):
    """The primary's sign of life: how far the log is committed, and the last prepare of that."""

    sent_by, sent_to = (PRIMARY,), (MEMBER,)
    op = "checkpoint"
    area = np.dtype([("digest", "V16"), ("monotonic_ns", "<u8")])
    pack = _layout(area).pack
    digest, monotonic_ns = bytes_of(area, "digest"), int_of(area, "monotonic_ns")

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.body_size != CHECKPOINT_ID_SIZE:
            return "has a body that is no checkpoint's id"
        if header.commit_num < header.op:
            return "has a checkpoint beyond what is committed"
        return None


class StartViewChange(Command):
    """A vote to leave the view."""

    sent_by, sent_to = (REPLICA,), (REPLICA,)
    aux = "hands_over"


class DoViewChange(Command):
    """What the log of its sender is; bit i of both sets belongs to header i of the body."""

    sent_by, sent_to = (REPLICA,), (REPLICA,)
    aux, op = "log_view", "head"
    area = np.dtype([("presents", "<u8"), ("nacks", "<u8"), ("checkpoint", "<u8")])
    pack, unpack = _layout(area).pack, _layout(area).unpack
    nacks, checkpoint = int_of(area, "nacks"), int_of(area, "checkpoint")

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.op < header.commit_num:
            return "has a head below what is committed"
        if header.commit_num < DoViewChange.checkpoint(header.area):
            return "has a checkpoint beyond what is committed"
        if header.aux >= header.view:
            return "has the log of the view that is still to begin"
        return None


class StartView(Command):
    """The log of a view, from its head down; the nonce is that of who asked, zero: of nobody."""

    sent_by, sent_to = (PRIMARY, REPLICA), (MEMBER,)
    op = "head"
    area = np.dtype([("nonce", "V16"), ("checkpoint", "<u8")])
    pack = _layout(area).pack
    nonce, checkpoint = bytes_of(area, "nonce"), int_of(area, "checkpoint")

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.op < header.commit_num:
            return "has a head below what is committed"
        if header.commit_num < StartView.checkpoint(header.area):
            return "has a checkpoint beyond what is committed"
        return None


class Request(Command):
    """A client's numbered wish; a backup hands it on."""

    sent_by, sent_to = (CLIENT, REPLICA), (REPLICA,)
    aux = "request"


class Reply(Command):
    """What became of a request: the same bytes from every member."""

    sent_by, sent_to = (REPLICA,), (CLIENT, MEMBER)
    aux, op = "request", "op"
    area = np.dtype([("timestamp", "<u8"), ("reserved", "V16")])
    pack = _layout(area).pack


class Ping(Command):
    """Which life its sender is, and where it stands."""

    sent_by, sent_to = (MEMBER,), (MEMBER,)
    aux, op = "syncing", "checkpoint"
    area = np.dtype([("monotonic_ns", "<u8"), ("checkpoint_id", "V16")])
    pack = _layout(area).pack
    monotonic_ns, checkpoint_id = int_of(area, "monotonic_ns"), bytes_of(area, "checkpoint_id")


class Pong(Command):
    """The answer to a ping, with the wall clock."""

    sent_by, sent_to = (MEMBER,), (MEMBER,)
    area = np.dtype([("echo_ns", "<u8"), ("realtime_us", "<u8"), ("reserved", "V8")])
    pack, unpack = _layout(area).pack, _layout(area).unpack


class PingClient(Command):
    """A client tells who lives on this connection, and asks which view and members serve."""

    sent_by, sent_to = (CLIENT,), (REPLICA,)
    op = "session"
    area = np.dtype([("client", "V16"), ("monotonic_ns", "<u8")])
    pack, unpack = _layout(area).pack, _layout(area).unpack
    client = bytes_of(area, "client")


class PongClient(Command):
    """Which view and members serve; the echo is zero where nobody asked."""

    sent_by, sent_to = (REPLICA,), (CLIENT,)
    op = "applied"
    area = np.dtype([("client", "V16"), ("echo_ns", "<u8")])
    pack = _layout(area).pack
    client, echo_ns = bytes_of(area, "client"), int_of(area, "echo_ns")


class EndEpoch(Command):
    """The last prepare of an epoch, in that epoch's own words."""

    sent_by, sent_to = (MEMBER,), (MEMBER,)
    op = "op"
    area = np.dtype([("digest", "V16"), ("reserved", "V8")])
    pack = _layout(area).pack

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.body_size != HEADER_SIZE:
            return "has a body that is not one header"
        return None


class RequestStartView(Command):
    """Asks for the log of a view; the answer to this very question bears the nonce."""

    sent_by, sent_to = (MEMBER,), (PRIMARY, REPLICA)
    op = "head"
    area = np.dtype([("nonce", "V16"), ("reserved", "V8")])
    pack = _layout(area).pack
    nonce = bytes_of(area, "nonce")

    @staticmethod
    def invalid(header: Header) -> str | None:
        if not any(RequestStartView.nonce(header.area)):
            return "has no nonce, so no answer could be told from an older one"
        return None


class RequestHeaders(Command):
    """Asks for the headers of a range of ops."""

    sent_by, sent_to = (MEMBER,), (REPLICA,)
    op = "highest"
    area = np.dtype([("lowest", "<u8"), ("reserved", "V16")])
    pack = _layout(area).pack
    lowest = int_of(area, "lowest")

    @staticmethod
    def invalid(header: Header) -> str | None:
        if RequestHeaders.lowest(header.area) > header.op:
            return "asks for a range that ends before it begins"
        return None


class RequestPrepare(Command):
    """Asks for a prepare, this one and no other of its op."""

    sent_by, sent_to = (MEMBER,), (REPLICA,)
    op = "op"
    area = np.dtype([("digest", "V16"), ("reserved", "V8")])
    pack = _layout(area).pack
    digest = bytes_of(area, "digest")

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.op < 1:
            return "asks for the root, which every member has from its format"
        return None


class RequestReply(Command):
    """Asks for the reply that a session was given last."""

    sent_by, sent_to = (MEMBER,), (REPLICA,)
    op = "op"
    area = np.dtype([("digest", "V16"), ("session", "<u8")])
    pack = _layout(area).pack
    digest = bytes_of(area, "digest")


class Headers(Command):
    """The headers that were asked for, newest first."""

    sent_by, sent_to = (REPLICA,), (MEMBER,)

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.body_size % HEADER_SIZE:
            return "has a body that is not of whole headers"
        if not 1 <= header.body_size // HEADER_SIZE <= HEADERS_PER_ANSWER_MAX:
            return f"has no header, or more than {HEADERS_PER_ANSWER_MAX}"
        return None


class Eviction(Command):
    """A session has ended; what `op` holds, `told`, depends on the reason."""

    sent_by, sent_to = (PRIMARY,), (CLIENT,)
    aux, op = "reason", "told"
    area = np.dtype([("client", "V16"), ("session", "<u8")])
    pack = _layout(area).pack
    client, session = bytes_of(area, "client"), int_of(area, "session")


class RequestChunk(Command):
    """Asks for pieces of a checkpoint or segment, by id and place."""

    sent_by, sent_to = (MEMBER,), (REPLICA,)

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.body_size % CHUNK_ENTRY_SIZE:
            return "has a body that is not of whole ids and places"
        if not 1 <= header.body_size // CHUNK_ENTRY_SIZE <= CHUNKS_PER_MESSAGE_MAX:
            return f"asks for no chunk, or for more than {CHUNKS_PER_MESSAGE_MAX}"
        return None


class Chunk(Command):
    """Such a piece, behind its id and place."""

    sent_by, sent_to = (REPLICA,), (MEMBER,)

    @staticmethod
    def invalid(header: Header) -> str | None:
        if header.body_size < CHUNK_ENTRY_SIZE:
            return "has no room for the id and place of a chunk"
        return None


COMMANDS: dict[int, type[Command]] = {
    env.PREPARE: Prepare,
    env.PREPARE_OK: PrepareOk,
    env.COMMIT: Commit,
    env.START_VIEW_CHANGE: StartViewChange,
    env.DO_VIEW_CHANGE: DoViewChange,
    env.START_VIEW: StartView,
    env.REQUEST: Request,
    env.REPLY: Reply,
    env.PING: Ping,
    env.PONG: Pong,
    env.PING_CLIENT: PingClient,
    env.PONG_CLIENT: PongClient,
    env.END_EPOCH: EndEpoch,
    env.REQUEST_START_VIEW: RequestStartView,
    env.REQUEST_HEADERS: RequestHeaders,
    env.REQUEST_PREPARE: RequestPrepare,
    env.REQUEST_REPLY: RequestReply,
    env.HEADERS: Headers,
    env.EVICTION: Eviction,
    env.REQUEST_CHUNK: RequestChunk,
    env.CHUNK: Chunk,
}
assert list(COMMANDS) == list(env.COMMAND_NAMES)

# What a member may send to a client, and to a member: there also a request that it hands on.
COMMANDS_TO_CLIENT = frozenset(code for code, row in COMMANDS.items() if CLIENT in row.sent_to)
COMMANDS_MEMBER = frozenset(code for code, row in COMMANDS.items() if {*row.sent_by} - {CLIENT})
assert env.COMMANDS_CLIENT == {code for code, row in COMMANDS.items() if CLIENT in row.sent_by}

# of the commands that have a rule at all
RULES = {code: row.invalid for code, row in COMMANDS.items() if row.invalid != Command.invalid}


# what begins with a session block; other messages of and to clients name them in their area
_WITH_BLOCK = frozenset((env.REQUEST, env.REPLY))


def client_of(message: Message) -> bytes:
    """The client that a message is from, or for."""
    if message.header.command in _WITH_BLOCK:
        return bytes(session.client_of(message.body))
    return PingClient.client(message.header.area)


def invalid(header: Header) -> str | None:
    """What is wrong with a header by the rule of its command, in words; None: nothing."""
    rule = RULES.get(header.command)
    return rule(header) if rule is not None else None
