"""CPU cost of the edge's hot paths, microseconds a message: to the batch, to the acks, fan-out.
fan-out.

python tests/bench/bench_edge.py
"""

import time
from typing import Any
from uuid import UUID

import jwt
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.base.prng import Prng
from appliance.cores.edge.admission import Admission
from appliance.cores.edge.edge import LOOKUP, REQUEST, Edge
from appliance.cores.edge.session import Session
from appliance.cores.edge.token import Tokens
from appliance.cores.edge.websocket import ENCODINGS
from appliance.formats import segment
from appliance.formats import session as replies
from appliance.formats.checkpoint import ROOM_ROW
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, encode_binary
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import Hello
from appliance.formats.client.subscribing import SubscribeRoom
from appliance.formats.geometry import PRODUCTION, RECORD_SIZE
from appliance.formats.record import KIND_ROOM_CREATE, RECORD, encode
from appliance.formats.room_name import room_id_of

BODY = "x" * 256
FRAME_MESSAGES = 64
NOW_US = 1_800_000_000_000_000
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
ROOM = room_id_of("general")


class NoSegments:
    """Everything is still in the ring."""

    oldest = 0

    def view(self, number: int) -> None:
        return None


def edge_with_room(device_rate: int) -> tuple[Edge, memoryview]:
    """An edge that has found room "general" in a ring of one record."""
    edge = Edge(
        geometry=PRODUCTION,
        node=0,
        epoch=1,
        shard_count=1,
        shard_of=lambda room_id: 0,
        tokens=Tokens(issuer="i", audience="a", keys={"k": KEY.public_key()}),
        prng=Prng(1),
        admission=Admission(
            device_rate=device_rate,
            user_rate=10_000_000,
            room_rate=10_000_000,
            address_rate=10_000_000,
        ),
    )
    ring = memoryview(bytearray(segment.ring_size(PRODUCTION)))
    created = np.frombuffer(
        encode(
            room_id=ROOM,
            msg_id=bytes(16),
            author_id=1,
            body=b"general",
            client_id=b"c" * 16,
            client_seq=1,
            kind=KIND_ROOM_CREATE,
        ),
        RECORD,
    ).copy()
    created["seq"] = created["log_seq"] = 1
    append(ring, created, 1)
    edge.on_tick(0, NOW_US)
    edge.on_attached(0, ring, NoSegments(), 1)
    for log_session in range(4):
        edge.on_ready(0, log_session)
    return edge, ring


def append(ring: memoryview, records: np.ndarray, log_seq: int) -> None:
    """Put committed records into segment 0 of the ring."""
    start = segment.RING_HEAD_SIZE + (log_seq - 1) * RECORD_SIZE
    ring[start : start + len(records) * RECORD_SIZE] = records.tobytes()
    ring[8:16] = (log_seq + len(records) - 1).to_bytes(8, "little")


def hello(edge: Edge, number: int) -> Session:
    token = jwt.encode(
        {
            "iss": "i",
            "aud": "a",
            "sub": "anna",
            "exp": NOW_US // 1_000_000 + 3600,
            "nbf": NOW_US // 1_000_000,
            "iat": NOW_US // 1_000_000,
            "rights": {"*": ["read", "send"]},
        },
        KEY,
        algorithm="EdDSA",
        headers={"kid": "k"},
    )
    session = edge.on_open("10.0.0.1", ENCODINGS[SUBPROTOCOL_BINARY])
    edge.on_frame(session, encode_binary(Hello(token=token, client_id=UUID(int=number))), False)
    return session


def settle(edge: Edge) -> list[tuple[Any, ...]]:
    """One beat; look-ups are answered."""
    edge.beat()
    requests = []
    for effect in edge.take_effects():
        if effect[0] == LOOKUP:
            row = np.zeros(1, ROOM_ROW)
            row["room_id"], row["message_count"] = np.void(ROOM), 1
            row["policy"] = np.void(((1).to_bytes(8, "little") * 2).ljust(32, b"\0"))
            edge.on_rooms(0, 1, effect[2], row.tobytes())
        elif effect[0] == REQUEST:
            requests.append(effect)
    edge.take_output()
    return requests


def sends_and_acks(frames: int, device_rate: int) -> tuple[float, float]:
    """Microseconds a message from bytes to the request, and from the results to the ack frame."""
    edge, _ = edge_with_room(device_rate)
    session = hello(edge, 7)
    raw = encode_binary(
        *[
            SendMessage(room_id=id_of(ROOM), client_seq=i + 1, body=BODY)
            for i in range(FRAME_MESSAGES)
        ]
    )
    edge.on_frame(session, encode_binary(SubscribeRoom(room_id=id_of(ROOM))), False)
    settle(edge)
    settle(edge)
    result = np.zeros(FRAME_MESSAGES, replies.RESULT)
    sending = answering = 0
    now_ns = 0
    for _ in range(frames):
        now_ns += 1_000_000_000
        edge.on_tick(now_ns, NOW_US)
        start = time.process_time_ns()
        edge.on_frame(session, raw, False)
        edge.beat()
        middle = time.process_time_ns()
        ((_, _, log_session, _, count),) = edge.take_effects()
        assert count == FRAME_MESSAGES
        between = time.process_time_ns()
        edge.on_reply(0, log_session, result.tobytes())
        ((_, written),) = edge.take_output()
        answering += time.process_time_ns() - between
        sending += middle - start
        assert len(written) == 1
        edge.on_ready(0, log_session)
    messages = frames * FRAME_MESSAGES * 1000
    return sending / messages, answering / messages


def fan_out(subscribers: int, messages: int) -> float:
    """Microseconds a subscriber and message, one message at a time."""
    edge, ring = edge_with_room(10_000_000)
    for number in range(1, subscribers + 1):
        session = hello(edge, number)
        edge.on_frame(session, encode_binary(SubscribeRoom(room_id=id_of(ROOM))), False)
    settle(edge)
    while edge.beat():
        edge.take_output()
    edge.take_output()
    record = np.frombuffer(
        encode(
            room_id=ROOM,
            msg_id=bytes(16),
            author_id=1,
            body=BODY.encode(),
            client_id=b"c" * 16,
            client_seq=1,
        ),
        RECORD,
    ).copy()
    spent = 0
    for at in range(2, messages + 2):
        record["seq"] = record["log_seq"] = at
        append(ring, record, at)
        start = time.process_time_ns()
        edge.on_committed(0, at)
        edge.beat()
        output = edge.take_output()
        spent += time.process_time_ns() - start
        assert len(output) == subscribers
    return spent / messages / subscribers / 1000


def measure(scale: int) -> dict[str, float]:
    """All figures; `scale` 1 is enough to see that it works, 100 to believe it."""
    sending, answering = sends_and_acks(2 * scale, 10_000_000)
    limited, _ = sends_and_acks(2 * scale, 9_999_999)
    return {
        "send_us": sending,
        "send_limited_us": limited,
        "ack_us": answering,
        "fan_out_us": fan_out(10 * scale, scale),
    }


if __name__ == "__main__":
    for name, value in measure(100).items():
        print(f"{name:16} {value:8.2f}")
