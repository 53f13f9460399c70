"""What the library lacks: one test for each of its private names that we rely on.

Two connections back to back, without a network: what one has to send, the other receives.
"""

import ast
from pathlib import Path
from typing import Any

import pytest
from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.h3.connection import H3Connection
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicErrorCode, pull_quic_header
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import appliance
from appliance.base import limits
from appliance.drivers.host.identity import make_certificate
from appliance.drivers.quic import library
from appliance.drivers.quic.library import (
    BoundedConnection,
    BoundedHttp3,
    Bounds,
    Http3Code,
    encode_refusal,
)

CLIENT, SERVER = ("127.0.0.1", 1), ("127.0.0.1", 2)
PROGRAM = Path(appliance.__file__).parent
KEY, CERTIFICATE = make_certificate("node", "127.0.0.1")


class Pair:
    """A client of the library, and our connection."""

    def __init__(self, bounds: Bounds | None = None, **named: Any) -> None:
        self.now = 1000.0
        self.made = 0
        self.client = QuicConnection(
            configuration=QuicConfiguration(
                **{
                    "alpn_protocols": ["h3"],
                    "verify_mode": 0,
                    "max_datagram_frame_size": 65536,
                    "max_data": 64 << 20,
                    "max_stream_data": 64 << 20,
                    **named,
                }
            )
        )
        self.server = BoundedConnection(
            configuration=QuicConfiguration(
                is_client=False,
                alpn_protocols=["h3"],
                max_data=limits.QUIC_WINDOW,
                max_stream_data=limits.QUIC_STREAM_WINDOW,
                max_datagram_frame_size=limits.QUIC_DATAGRAM_FRAME_SIZE_MAX,
                certificate=x509.load_pem_x509_certificate(CERTIFICATE.encode()),
                private_key=load_pem_private_key(KEY.encode(), None),
            ),
            original_id=self.client.original_destination_connection_id,
            retry_id=None,
            new_id=self._new_id,
            reset_token=lambda identifier: identifier * 2,
            bounds=bounds or Bounds(),
        )
        self.heard: list[events.QuicEvent] = []  # by the server
        self.told: list[events.QuicEvent] = []  # to the client
        self.client.connect(SERVER, now=self.now)
        self.run()

    def _new_id(self) -> bytes:
        self.made += 1
        return self.made.to_bytes(8, "big")

    def run(self, rounds: int = 40) -> None:
        """Let both send until they have nothing more."""
        for _ in range(rounds):
            self.now += 0.03
            moved = 0
            for source, target, address, seen in (
                (self.client, self.server, CLIENT, self.heard),
                (self.server, self.client, SERVER, self.told),
            ):
                timer = source.get_timer()
                if timer is not None and timer <= self.now:
                    source.handle_timer(self.now)
                for data, _ in source.datagrams_to_send(now=self.now):
                    moved += 1
                    target.receive_datagram(data, address, now=self.now)
                while (event := target.next_event()) is not None:
                    seen.append(event)
            if not moved:
                return

    def received(self) -> int:
        return sum(len(one.data) for one in self.heard if type(one) is events.StreamDataReceived)

    @property
    def closed(self) -> Any:
        return self.server._close_event


def test_a_client_that_is_refused_hears_the_code_and_the_reason() -> None:
    client = QuicConnection(configuration=QuicConfiguration(alpn_protocols=["h3"]))
    client.connect(SERVER, now=1.0)
    ((hello, _),) = client.datagrams_to_send(now=1.0)
    header = pull_quic_header(Buffer(data=hello))
    assert header.version is not None
    packet = encode_refusal(
        version=header.version,
        source_id=header.destination_cid,
        destination_id=header.source_cid,
        reason="no room",
    )
    assert len(packet) < len(hello) / 10  # nobody is flooded by it
    client.receive_datagram(packet, SERVER, now=1.0)
    client.handle_timer(now=client.get_timer() or 1.0)
    told = list(iter(client.next_event, None))
    (ended,) = [event for event in told if isinstance(event, events.ConnectionTerminated)]
    assert (ended.error_code, ended.reason_phrase) == (QuicErrorCode.CONNECTION_REFUSED, "no room")


def test_what_is_taken_moves_the_windows_on_by_as_much_and_no_more() -> None:
    pair = Pair()
    pair.client.send_stream_data(0, bytes(8 << 20))
    for _ in range(60):
        pair.run()
        ahead = pair.client._remote_max_data - pair.received()
        assert ahead <= limits.QUIC_WINDOW
        granted = pair.client._streams[0].max_stream_data_remote - pair.received()
        assert granted <= limits.QUIC_STREAM_WINDOW
    assert pair.received() == 8 << 20


def test_what_is_held_stops_the_client_at_the_window_of_the_stream() -> None:
    pair = Pair()
    pair.client.send_stream_data(0, bytes(8 << 20))
    seen = 0
    for _ in range(100):
        pair.run(1)
        new = pair.received()
        pair.server.hold(0, new - seen)
        seen = new
    assert seen == limits.QUIC_STREAM_WINDOW == pair.server.held
    pair.server.release(0, seen)
    pair.run(2)
    assert pair.received() > seen


def test_streams_that_are_reset_give_their_room_in_the_window_back() -> None:
    pair = Pair()
    for place in range(120):
        stream_id = pair.client.get_next_available_stream_id()
        pair.client.send_stream_data(stream_id, bytes(100_000))
        pair.run(2)
        pair.client.reset_stream(stream_id, 0x10C)
        pair.server.reset_stream(stream_id, 0x10C)
        pair.run(3)
        assert pair.closed is None, place
    assert pair.received() > 3 * limits.QUIC_WINDOW


@pytest.mark.parametrize(
    ("is_uni", "count"), [(False, limits.QUIC_STREAMS_MAX), (True, limits.QUIC_UNI_STREAMS_MAX)]
)
def test_so_many_streams_are_open_at_once_and_a_new_one_for_each_that_ends(
    is_uni: bool, count: int
) -> None:
    pair = Pair()
    for _ in range(count + 5):
        stream_id = pair.client.get_next_available_stream_id(is_unidirectional=is_uni)
        pair.client.send_stream_data(stream_id, b"x")
    pair.run()
    opened = {one.stream_id for one in pair.heard if type(one) is events.StreamDataReceived}
    assert len(opened) == count
    for stream_id in sorted(opened)[: 3 + count // 2]:
        pair.client.send_stream_data(stream_id, b"", end_stream=True)
        if not is_uni:
            pair.server.send_stream_data(stream_id, b"", end_stream=True)
    pair.run()
    opened = {one.stream_id for one in pair.heard if type(one) is events.StreamDataReceived}
    assert len(opened) > count


def test_a_stream_in_too_many_pieces_ends_the_connection() -> None:
    pair = Pair()
    pair.client.send_stream_data(0, b"x" * 4096)
    stream = pair.client._streams[0]
    sender = stream.sender
    sender._pending.subtract(0, 1)  # its first byte never comes
    for start in range(2, 2 * (limits.QUIC_PIECES_MAX + 3), 2):
        sender._pending.subtract(start - 1, start)
    pair.run(200)
    assert pair.closed.reason_phrase == "a stream in too many pieces"


def test_identifiers_are_ours_few_and_have_the_tokens_that_we_make() -> None:
    pair = Pair()
    assert pair.server.ids == [n.to_bytes(8, "big") for n in range(1, limits.QUIC_IDS_MAX + 1)]
    assert pair.client._peer_cid.cid == (1).to_bytes(8, "big")
    assert pair.client._peer_cid.stateless_reset_token == (1).to_bytes(8, "big") * 2
    for known in pair.client._peer_cid_available:
        assert known.stateless_reset_token == known.cid * 2
    pair.client.change_connection_id()
    pair.client.send_ping(1)
    pair.run()
    assert len(pair.server.ids) == limits.QUIC_IDS_MAX
    assert (1).to_bytes(8, "big") not in pair.server.ids


def test_datagrams_beyond_the_bound_are_not_taken() -> None:
    pair = Pair()
    taken = [pair.server.offer_datagram(b"x" * 100) for _ in range(100)]
    assert taken == [True] * limits.QUIC_DATAGRAMS_MAX + [False] * (100 - limits.QUIC_DATAGRAMS_MAX)
    pair.run()
    got = [one for one in pair.told if type(one) is events.DatagramFrameReceived]
    assert len(got) == limits.QUIC_DATAGRAMS_MAX
    assert pair.server.offer_datagram(b"again")


def test_datagrams_for_a_client_that_takes_none_are_not_sent() -> None:
    pair = Pair(max_datagram_frame_size=None)
    assert not pair.server.offer_datagram(b"x")


def test_the_backlog_of_a_stream_is_what_was_not_acknowledged() -> None:
    pair = Pair()
    pair.client.send_stream_data(0, b"x")
    pair.run()
    pair.server.send_stream_data(0, bytes(50_000))
    assert pair.server.backlog(0) == 50_000 == pair.server.held
    pair.run()
    assert pair.server.backlog(0) == 0
    assert pair.server.is_writable(0) and pair.server.is_readable(0)
    pair.client.stop_stream(0, 1)
    pair.run()
    assert not pair.server.is_writable(0)
    assert pair.server.backlog(4) == 0 and not pair.server.is_writable(4)


def test_no_ticket_is_given_so_nothing_is_resumed_and_nothing_comes_early() -> None:
    tickets: list[Any] = []
    pair = Pair()
    pair.client._session_ticket_handler = tickets.append
    pair.run()
    assert tickets == []
    assert not any(getattr(one, "early_data_accepted", False) for one in pair.heard)


# --- HTTP/3 ---------------------------------------------------------------------------------------


def pair_of_http() -> tuple[Pair, H3Connection, BoundedHttp3]:
    pair = Pair()
    ours, theirs = BoundedHttp3(pair.server), H3Connection(pair.client, enable_webtransport=True)
    deliver(pair, theirs, ours)
    return pair, theirs, ours


def deliver(pair: Pair, theirs: H3Connection, ours: BoundedHttp3) -> None:
    for _ in range(3):
        pair.run()
        heard, pair.heard = pair.heard, []
        told, pair.told = pair.told, []
        for event in heard:
            ours.handle_event(event)
        for event in told:
            theirs.handle_event(event)


def test_our_settings_allow_no_dynamic_table_and_name_the_draft() -> None:
    _, theirs, ours = pair_of_http()
    settings = theirs.received_settings
    assert settings is not None
    assert (settings[1], settings[7], settings[6]) == (0, 0, limits.HTTP_HEAD_SIZE_MAX)
    assert (settings[8], settings[0x33], settings[0x2B603742]) == (1, 1, 1)
    assert ours.speaks_webtransport


def test_a_frame_larger_than_a_head_may_be_ends_the_connection() -> None:
    pair, theirs, ours = pair_of_http()
    size = limits.HTTP_HEAD_SIZE_MAX + 2
    pair.client.send_stream_data(0, b"\x01" + (0x80000000 | 10 * size).to_bytes(4, "big"))
    pair.client.send_stream_data(0, bytes(size))
    deliver(pair, theirs, ours)
    assert pair.closed.error_code == Http3Code.H3_EXCESSIVE_LOAD


def test_goaway_names_the_first_stream_that_is_not_answered() -> None:
    pair, theirs, ours = pair_of_http()
    pair.told.clear()
    ours.send_goaway(8)
    pair.run()
    (event,) = [one for one in pair.told if type(one) is events.StreamDataReceived]
    assert (event.stream_id, event.data) == (3, b"\x07\x01\x08")


def test_no_other_module_touches_what_the_library_keeps_private() -> None:
    pair = Pair()
    pair.client.send_stream_data(0, b"x")
    http = H3Connection(pair.client)
    parts = (pair.client, pair.client.tls, pair.client._loss, pair.client._streams[0], http)
    private = {name for part in parts for name in (*dir(part), *vars(part)) if name[0] == "_"}
    private -= {*dir(object()), "__dict__", "__module__", "__weakref__"}
    touched = []
    for path in sorted(PROGRAM.rglob("*.py")):
        if path == Path(library.__file__) or "aioquic" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
                if node.attr in private:
                    touched.append(f"{path.relative_to(PROGRAM)}:{node.lineno} {node.attr}")
    assert touched == []
