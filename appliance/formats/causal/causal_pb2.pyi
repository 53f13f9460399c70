from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HistoryEntry(_message.Message):
    __slots__ = ("message_id", "retrieval_hint", "sender_id")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    RETRIEVAL_HINT_FIELD_NUMBER: _ClassVar[int]
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    retrieval_hint: bytes
    sender_id: str
    def __init__(self, message_id: _Optional[str] = ..., retrieval_hint: _Optional[bytes] = ..., sender_id: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("sender_id", "message_id", "channel_id", "lamport_timestamp", "causal_history", "bloom_filter", "repair_request", "content")
    SENDER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    LAMPORT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_HISTORY_FIELD_NUMBER: _ClassVar[int]
    BLOOM_FILTER_FIELD_NUMBER: _ClassVar[int]
    REPAIR_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    sender_id: str
    message_id: str
    channel_id: str
    lamport_timestamp: int
    causal_history: _containers.RepeatedCompositeFieldContainer[HistoryEntry]
    bloom_filter: bytes
    repair_request: _containers.RepeatedCompositeFieldContainer[HistoryEntry]
    content: bytes
    def __init__(self, sender_id: _Optional[str] = ..., message_id: _Optional[str] = ..., channel_id: _Optional[str] = ..., lamport_timestamp: _Optional[int] = ..., causal_history: _Optional[_Iterable[_Union[HistoryEntry, _Mapping]]] = ..., bloom_filter: _Optional[bytes] = ..., repair_request: _Optional[_Iterable[_Union[HistoryEntry, _Mapping]]] = ..., content: _Optional[bytes] = ...) -> None: ...

class RoomMessage(_message.Message):
    __slots__ = ("kind", "msg_id", "author_id", "author", "parent_id", "time_us", "seq", "part", "parts", "body", "message_id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MSG_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    kind: int
    msg_id: bytes
    author_id: int
    author: str
    parent_id: bytes
    time_us: int
    seq: int
    part: int
    parts: int
    body: bytes
    message_id: bytes
    def __init__(self, kind: _Optional[int] = ..., msg_id: _Optional[bytes] = ..., author_id: _Optional[int] = ..., author: _Optional[str] = ..., parent_id: _Optional[bytes] = ..., time_us: _Optional[int] = ..., seq: _Optional[int] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ..., body: _Optional[bytes] = ..., message_id: _Optional[bytes] = ...) -> None: ...

class SignedContent(_message.Message):
    __slots__ = ("message", "signature")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    signature: bytes
    def __init__(self, message: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version", "site", "channels", "profile")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    version: int
    site: str
    channels: _containers.RepeatedScalarFieldContainer[str]
    profile: int
    def __init__(self, version: _Optional[int] = ..., site: _Optional[str] = ..., channels: _Optional[_Iterable[str]] = ..., profile: _Optional[int] = ...) -> None: ...

class Want(_message.Message):
    __slots__ = ("channel", "entries", "first", "last")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    channel: str
    entries: _containers.RepeatedCompositeFieldContainer[HistoryEntry]
    first: int
    last: int
    def __init__(self, channel: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[HistoryEntry, _Mapping]]] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class NotHeld(_message.Message):
    __slots__ = ("channel", "message_ids")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    channel: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, channel: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Summary(_message.Message):
    __slots__ = ("channel", "lamport_timestamp", "message_id", "count", "order_hash", "first", "last", "marks")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    LAMPORT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ORDER_HASH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    channel: str
    lamport_timestamp: int
    message_id: str
    count: int
    order_hash: bytes
    first: int
    last: int
    marks: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, channel: _Optional[str] = ..., lamport_timestamp: _Optional[int] = ..., message_id: _Optional[str] = ..., count: _Optional[int] = ..., order_hash: _Optional[bytes] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., marks: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Bye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class Proof(_message.Message):
    __slots__ = ("site", "public_key", "signature")
    SITE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    site: str
    public_key: bytes
    signature: bytes
    def __init__(self, site: _Optional[str] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...
