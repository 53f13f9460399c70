"""One connection of a chat client: its state, its encoding, the bytes that wait for it."""

from collections import deque
from typing import Any

from appliance.base.errors import InputError
from appliance.base.limits import (
    CLIENT_FRAME_SIZE_MAX,
    SESSION_OUT_MAX,
    STRANGER_FRAME_SIZE_MAX,
)
from appliance.cores.edge.connection import ClientConnection
from appliance.cores.edge.encoding import Encoding
from appliance.cores.edge.patience import Patience
from appliance.cores.edge.token import Claims
from appliance.formats.client.connection import ErrorFrame, errors_of_items
from appliance.formats.client.fields import NUMBER_MAX, id_bytes, id_of
from appliance.formats.client.frame import Frame, binary_code
from appliance.formats.client.parse import named_in, named_in_binary, parse_binary, parse_json
from appliance.formats.client.sending import (
    Message,
    SendItem,
    SendMessage,
    SendMessages,
    first_room,
)
from appliance.formats.client_errors import EncodingMismatch, FrameTooLarge

SESSION = {  # state -> {event: next state}; anything absent is a bug of ours
    "new": {"welcome": "ready", "close": "closed"},
    "ready": {"welcome": "ready", "close": "closed"},
    "closed": {},
}

ZERO16 = bytes(16)
_SEND_CODE = SendMessage.code


class Awaited:
    """What a session waits for: a room, or what it was told of (then `room_id` is empty)."""

    __slots__ = ("room_id", "until_ns", "probed", "denied")

    def __init__(self, room_id: bytes, until_ns: int) -> None:
        self.room_id, self.until_ns = room_id, until_ns
        self.probed = False  # the log was asked whether there is such a room
        self.denied = False  # and said that there is none


class Sends:
    """The messages of one frame. They are parsed only when the first one's room is known and may be
    sent to: until then the frame waits as it came."""

    __slots__ = ("data", "items", "size", "denied")

    def __init__(self, data: bytes, items: list[SendItem] | None, size: int = 0) -> None:
        """`size` of the frame in bytes, 0 for one of a single message."""
        self.data, self.items, self.size = data, items, size
        self.denied: InputError | None = None  # why the first one's room is not to be had

    @property
    def body_size(self) -> int:
        """Bytes of the body of a message that is a frame of its own; 0 where there may be more."""
        return len(self.items[0][5]) if self.items is not None and not self.size else 0

    @property
    def first_room(self) -> bytes | None:
        """The room of the first message."""
        return first_room(self.data) if self.items is None else self.items[0][0]


class Session:
    """State of one connection. `out` is taken by the driver after each beat."""

    __slots__ = (
        "number",
        "address",
        "binary",
        "state",
        "out",
        "out_size",
        "blocked",
        "blocked_ns",
        "opened_ns",
        "claims",
        "client_id",
        "device",
        "rights",
        "seen",
        "in_flight",
        "waiting",
        "is_charged",
        "refused_ms",
        "patience",
        "awaits",
        "mended_by_ns",
        "subscriptions",
        "connection",
        "is_dirty",
        "encoding",
        "_dirty",
    )

    def __init__(
        self,
        *,
        number: int,
        address: str,
        encoding: Encoding,
        now_ns: int,
        dirty: "list[Session]",
    ) -> None:
        self.number, self.address = number, address
        self.encoding, self.binary = encoding, encoding.binary
        self.state = "new"
        self.out: list[bytes] = []  # whole frames, as they go over the wire
        self.out_size = 0  # bytes in `out`
        self.blocked = False  # the transport has taken all it may hold
        self.blocked_ns = 0  # since when
        self.opened_ns = now_ns
        self.claims: Claims | None = None  # of the handshake, else of hello
        self.client_id = ZERO16
        self.device = b""  # of this author: client_id is shown to others, who may claim it
        self.rights: dict[
            bytes, tuple[int, int]
        ] = {}  # room_id -> bits, shard; of rooms used so far
        self.seen: dict[int, int] = {}  # shard -> newest log_seq in a reply to this session
        self.in_flight = 0  # sends that are not answered
        self.waiting: deque[Any] = deque()  # a frame that waits for a room or for the reader
        self.is_charged = False  # the first of them was counted against the rates
        self.refused_ms = -1  # the frame in hand was refused: milliseconds to wait, 0 for another
        self.patience = Patience()
        self.awaits: Awaited | None = None
        self.mended_by_ns = 0  # its first frame waits so long for a segment to be mended; 0 = not
        self.subscriptions: dict[bytes, Any] = {}
        self.connection: ClientConnection | None = None  # for the role, which writes to it
        self._dirty = dirty
        self.is_dirty = False

    def on_event(self, event: str) -> None:
        """Change the state as the table says."""
        self.state = SESSION[self.state][event]

    @property
    def is_full(self) -> bool:
        """What was answered is not taken: nothing more is made for this client."""
        return self.blocked or self.out_size > SESSION_OUT_MAX

    def listens(self, now_ns: int) -> bool:
        """Whether more may be read from the client now. At most one message waits here."""
        return self.state == "closed" or not (
            self.waiting or self.is_full or now_ns < self.patience.held_until_ns
        )

    @property
    def held(self) -> int:
        """Bytes that are kept here for this client."""
        waiting = sum(frame.size for frame in self.waiting if type(frame) is Sends)
        return self.out_size + waiting

    @property
    def frame_size_max(self) -> int:
        """Bytes that one message may have."""
        return STRANGER_FRAME_SIZE_MAX if self.state == "new" else CLIENT_FRAME_SIZE_MAX

    # --- output

    def put(self, frame: bytes) -> None:
        """Queue a frame with the framing of its transport; many sessions may share the bytes."""
        self.out.append(frame)
        self.out_size += len(frame)
        if not self.is_dirty:
            self.is_dirty = True
            self._dirty.append(self)

    def send_payload(self, payload: bytes) -> None:
        """Queue an encoded frame."""
        self.put(self.encoding.framing(payload))

    def send(self, frame: Frame) -> None:
        """Queue a frame in this session's encoding."""
        self.send_payload(self.encoding.encode(frame))

    def refuse(self, error: InputError, **named: Any) -> None:
        """Answer with an error; `named` are the fields that say to what."""
        self.send(_error_frame(error, **named))

    def refuse_items(self, error: InputError, items: list[SendItem]) -> None:
        """Answer each message with the same error."""
        if self.binary and items:  # all are of one size: one head for all
            payloads = errors_of_items(_error_frame(error), items)
            size = len(payloads[0])
            framed = self.encoding.framing(payloads[0])
            head = framed[: len(framed) - size]
            self.put(framed)
            self.out += [head + payload for payload in payloads[1:]]
            self.out_size += (len(payloads) - 1) * len(framed)
            return
        for room_id, client_seq, *_ in items:
            seq = min(client_seq, NUMBER_MAX)
            self.refuse(error, room_id=id_of(room_id), client_seq=seq)

    # --- input

    def parse(self, data: bytes | str, is_text: bool) -> list[Any]:
        """What one message of the transport says: frames, or messages to send.

        Raises EncodingMismatch, FrameTooLarge and what the parsers of `formats.client` raise.
        """
        if is_text == self.binary:
            raise EncodingMismatch(
                "text frames are JSON, binary frames are not; see the subprotocol"
            )
        if len(data) > self.frame_size_max:
            raise FrameTooLarge(f"a frame has at most {self.frame_size_max} bytes now")
        if not self.binary:
            frame = parse_json(data)
            if isinstance(frame, SendMessage):
                return [Sends(b"", [_send_item(frame)])]
            if isinstance(frame, SendMessages):
                return [Sends(b"", [_send_item(message) for message in frame.messages], len(data))]
            return [frame]
        assert isinstance(data, bytes)
        if binary_code(data) == _SEND_CODE:
            return [Sends(data, None, len(data))]
        return list(parse_binary(data))

    def named_in(self, data: bytes | str, is_text: bool) -> dict[str, Any]:
        """What an error answer can repeat of a message that was refused."""
        if self.binary:
            return named_in_binary(data) if isinstance(data, bytes) and not is_text else {}
        return named_in(data) if is_text else {}


def _error_frame(error: InputError, **named: Any) -> ErrorFrame:
    return ErrorFrame(
        error=error.code,
        name=error.name,
        detail=str(error)[:512],
        temporary=error.temporary,
        retry_after=error.retry_after_ms or None,
        expected=getattr(error, "expected", None),
        cursor=getattr(error, "cursor", None),
        **named,
    )


def _send_item(frame: SendMessage | Message) -> SendItem:
    return (
        id_bytes(frame.room_id),
        frame.client_seq,
        id_bytes(frame.parent_id) if frame.parent_id else ZERO16,
        id_bytes(frame.msg_id) if frame.msg_id else ZERO16,
        frame.kind,
        frame.body.encode(),
    )
