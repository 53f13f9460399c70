"""Edges as processes, between real chat clients and real replicas."""

import asyncio
import random
import resource
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus
from websockets.sync.client import connect

from appliance.base.limits import DESCRIPTORS_RESERVED
from appliance.drivers.host.node_folder import open_node
from appliance.formats.client.connection import ErrorFrame, NextNode, Ping, Pong
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import encode_binary, encode_json
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.rooms import ListRooms, RoomsPage
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello
from appliance.formats.client.subscribing import MessageEvent, SubscribeRoom
from appliance.roles.edge.addresses import elsewhere
from tests.drivers.network.quic.quic_client import dial as dial_quic
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.removal import folder_on_disk
from tests.roles.edge_site import Chat, EdgeSite, dial, insecure, until

UNLIMITED = dict.fromkeys(("device_rate", "user_rate", "room_rate", "address_rate"), 10_000_000)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Beside the program: volumes refuse memory."""
    with folder_on_disk() as made:
        yield made


@pytest.fixture(scope="module")
def ports(free_ports: FreePorts) -> Callable[[], int]:
    """First ports of sites of three nodes."""
    return lambda: next(port for port in free_ports(310) if port % 10 == 0)


@pytest.fixture(scope="module")
def site(folder: Path, ports: Callable[[], int]) -> Iterator[EdgeSite]:
    """Three nodes; tests leave them as they were."""
    with EdgeSite(folder / "a", nodes=3, ports=ports(), hurried=True, **UNLIMITED) as made:
        made.start_all()
        yield made


@pytest.fixture
def small_site(folder: Path, ports: Callable[[], int]) -> Iterator[EdgeSite]:
    """Three nodes whose segments hold a hundred records."""
    with EdgeSite(folder / "b", nodes=3, ports=ports(), geometry="small", **UNLIMITED) as made:
        made.start_all()
        yield made


def test_a_message_goes_from_one_node_to_followers_on_all(site: EdgeSite) -> None:
    followers = [site.chat(node, binary=node % 2 == 0) for node in range(3)]
    with site.chat(0) as writer:
        room = writer.room("everywhere")
        for follower in followers:
            follower.follow(room)
        ops = writer.say(room, 1, 20) + writer.say(room, 21, 20)
    assert ops == list(range(2, 42))
    for follower in followers:
        assert follower.ops(41) == list(range(1, 42))
        follower.socket.close()


def test_acks_and_events_and_history_tell_the_same(site: EdgeSite) -> None:
    with site.chat(1) as writer, site.chat(2, binary=False) as reader:
        room = writer.room("same")
        writer.send(SendMessage(room_id=room, client_seq=1, body="grüße"))
        ack = writer.next(MessageAck)
        reader.follow(room, 1)
        event = reader.next(MessageEvent)
        (message,) = reader.ask(SnapshotRequest(room_id=room, from_op=2), SnapshotChunk).messages
    assert (event.op, event.msg_id, event.timestamp) == (ack.op, ack.msg_id, ack.timestamp)
    assert (event.body, event.author, event.client_id) == ("grüße", "anna", writer.device)
    assert (message.op, message.msg_id, message.body) == (ack.op, ack.msg_id, "grüße")


def test_only_the_log_says_that_a_room_does_not_exist(site: EdgeSite) -> None:
    missing, names = uuid.UUID(int=4711), []

    def ask(chat: Chat) -> str:
        chat.send(SendMessage(room_id=missing, client_seq=1, body="x"))
        names.append(chat.next(ErrorFrame).name)
        return names[-1]

    with site.chat(0) as chat:
        assert ask(chat) == "room_unknown"
        for node in (1, 2):
            site.kill(node)
        assert ask(chat) == "unavailable"  # the replica here has no such room, but may not know
        for node in (1, 2):
            site.start(node)
        until(lambda: ask(chat) == "room_unknown", "the log answers")
    assert set(names) == {"room_unknown", "unavailable"}


def test_a_retry_through_another_edge_gets_the_first_ack(site: EdgeSite) -> None:
    with site.chat(0, device=7) as first:
        room = first.room("retry")
        first.send(SendMessage(room_id=room, client_seq=1, body="once"))
        ack = first.next(MessageAck)
    for node in (1, 2):
        with site.chat(node, device=7) as again:
            again.send(SendMessage(room_id=room, client_seq=1, body="once"))
            assert again.next(MessageAck) == ack


def test_history_and_followers_go_on_in_segments_that_were_sealed_meanwhile(
    small_site: EdgeSite,
) -> None:
    site = small_site
    with site.chat(2) as follower, site.chat(1) as writer:
        room = writer.room("long")
        follower.follow(room)
        writer.say(room, 1, 3)
        assert follower.ops(4) == [1, 2, 3, 4]
        site.kill(2)
        for first in range(4, 424, 30):  # more than the ring of a replica holds
            writer.say(room, first, 30, "x" * 100)
        site.start(2)
        assert follower.ops(420) == list(range(5, 425))
        writer.say(room, 424, 1)
        assert follower.ops(1) == [425]
    for node in range(3):
        with site.chat(node, binary=node != 1) as reader:
            assert walked_back(reader, room) == list(range(1, 426))


def walked_back(reader: Chat, room: uuid.UUID) -> list[int]:
    """Ops of a whole room, from its end, a page at a time."""
    ops: list[int] = []
    upper = None
    while True:
        wanted = SnapshotRequest(room_id=room, limit=50, until_op=upper, backward=True)
        chunk = reader.ask(wanted, SnapshotChunk)
        ops = [message.op for message in chunk.messages] + ops
        upper = chunk.cursor
        if not chunk.has_more:
            return ops


def test_rooms_are_listed(site: EdgeSite) -> None:
    with site.chat(0, binary=False) as chat:
        chat.room("listed")
        names = {item.name for item in chat.ask(ListRooms(limit=1000), RoomsPage).rooms}
    assert "listed" in names
    assert "" not in names


def test_a_killed_replica_is_not_missed_and_is_reported(site: EdgeSite) -> None:
    with site.chat(0) as writer, site.chat(1) as follower:
        room = writer.room("killed")
        follower.follow(room)
        writer.say(room, 1, 5)
        site.kill(0)
        until(lambda: "is not attached" in (site.edge_status(0) or {})["health"], "why is told")
        # the reason is for operators
        assert site.get(0, "/healthz")[:2] == (503, "unavailable\n")
        assert writer.say(room, 6, 5) == list(range(7, 12))
        assert follower.ops(11) == list(range(1, 12))
        writer.send(SnapshotRequest(room_id=room))
        assert writer.next(ErrorFrame).name == "unavailable"
        site.start(0)
        until(lambda: site.get(0, "/healthz")[0] == 200, "health tells again")
        writer.follow(room, 3)
        assert writer.ops(8) == list(range(4, 12))


def test_the_page_its_files_and_figures_are_on_the_same_port(site: EdgeSite) -> None:
    status, text, headers = site.get(1, "/")
    assert (status, "<html" in text) == (200, True)
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert site.get(1, "/web/chat.css")[0] == 200
    assert site.get(1, "/web/../roles/edge/role.py")[0] == 404
    assert site.get(1, "/nothing")[0] == 404
    assert site.get(1, "/v1")[0] == 404  # without the upgrade
    assert site.get(1, "/metrics")[0] == 404  # figures are for operators
    assert site.get(1, "/healthz")[:2] == (200, "serving\n")


def test_http3_of_the_same_port_number_serves_the_page_and_tcp_says_so(site: EdgeSite) -> None:
    port = site.ports[1]
    assert site.get(1, "/")[2]["alt-svc"] == f'h3=":{port}"; ma=86400'

    async def fetch() -> tuple[int, str]:
        async with dial_quic(port) as client:
            answer = await client.fetch("/")
            return answer.status, answer.body.decode()

    assert asyncio.run(fetch()) == site.get(1, "/")[:2]


def test_figures_say_what_clients_do(site: EdgeSite) -> None:
    with site.chat(1) as chat:
        before = site.metric("tigerchat_edge_acked_total", 1)
        assert chat.say(chat.room("figures"), 1, 5) == [2, 3, 4, 5, 6]
        assert site.metric("tigerchat_edge_connections", 1) >= 1
        assert site.metric("tigerchat_edge_acked_total", 1) - before >= 6
        assert site.metric('tigerchat_edge_log_seq{shard="0"}', 1) >= 6


def test_a_handshake_without_our_subprotocols_is_refused(site: EdgeSite) -> None:
    for subprotocols in (None, ["chat"]):
        with pytest.raises(InvalidStatus) as refused:
            connect(
                f"wss://127.0.0.1:{site.ports[0]}/v1",
                ssl=insecure(),
                subprotocols=subprotocols,
                legacy=True,
            )
        assert refused.value.response.status_code == 400


def test_closings_come_with_their_codes(site: EdgeSite) -> None:
    outcomes = []
    for data in (
        '{"type":"ping"}',
        '{"type":"hello","token":"x","client_id":"' + "1" * 32 + '"}',
        b"x",
        "x" * ((1 << 20) + 1),
    ):
        with dial(site, 0, False) as chat:
            chat.send(data)
            frame = parse_json_edge(chat.recv(timeout=HUNG_S))
            with pytest.raises(ConnectionClosed) as closed:
                chat.recv(timeout=HUNG_S)
            outcomes.append((frame.name, closed.value.rcvd.code))
    assert outcomes == [
        ("hello_required", 4001),
        ("token_invalid", 4003),
        ("encoding_mismatch", 1003),
        ("frame_too_large", 1009),
    ]


def test_broken_framing_ends_the_connection_and_nothing_else(site: EdgeSite) -> None:
    with site.chat(0) as other:
        sock = dial(site, 0, True)
        sock.socket.sendall(b"\xff" * 100)
        with pytest.raises(ConnectionClosed) as closed:
            sock.recv(timeout=HUNG_S)
        assert closed.value.rcvd.code == 1002
        other.send(Ping(request="p"))
        assert other.next(Pong).request == "p"


def test_messages_in_fragments_are_joined(site: EdgeSite) -> None:
    with site.chat(0) as chat:
        raw = encode_binary(Ping(request="fragments"))
        chat.socket.send([raw[:3], raw[3:5], raw[5:]])
        assert chat.next(Pong).request == "fragments"


def test_random_bytes_at_the_port_do_no_harm(site: EdgeSite, seed: int) -> None:
    chance = random.Random(seed)
    process = psutil.Process(site.edges[0].pid)
    with site.chat(0) as chat:
        room = chat.room("harmless")
        before = process.memory_info().rss
        for i in range(300):
            with site.raw(0) as sock:
                head = (
                    b"",
                    b"GET / HTTP/1.1\r\n",
                    b"GET /v1 HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
                    b"GET /v1 HTTP/1.1\r\nUpgrade: websocket\r\n",
                )[i % 4]
                try:
                    sock.sendall(head + chance.randbytes(chance.randrange(400)))
                except OSError:
                    continue  # it was closed already
        until(lambda: process.memory_info().rss < before * 1.1, "what they took is given back")
        assert chat.say(room, 1, 1) == [2]


def test_a_reader_that_stops_is_served_later_and_others_now(site: EdgeSite) -> None:
    with site.chat(0) as writer, site.chat(0) as fast:
        room = writer.room("slow")
        fast.follow(room)
        slow = dial(site, 0, True)
        slow.send(encode_binary(Hello(token=site.token(), client_id=fast.device)))
        slow.recv(timeout=HUNG_S)
        slow.send(encode_binary(SubscribeRoom(room_id=room, since_op=0)))
        slow.recv(timeout=HUNG_S)
        slow.socket.settimeout(HUNG_S)
        pid = psutil.Process(site.edges[0].pid)
        slow.recv_messages.pause()  # its socket fills up
        before = pid.memory_info().rss
        for first in range(1, 2521, 60):
            writer.say(room, first, 60, "x" * 2000)
        assert fast.ops(2521) == list(range(1, 2522))
        assert pid.memory_info().rss < before + 40_000_000
        slow.recv_messages.resume()
        ops: list[int] = []
        while len(ops) < 2521:
            ops += [
                frame.op
                for frame in parse_binary_edge(slow.recv(timeout=HUNG_S))
                if type(frame) is MessageEvent
            ]
        assert ops == list(range(1, 2522))
        slow.close()


def test_new_token_keys_are_read_while_running(site: EdgeSite) -> None:
    jwks = site.node(1) / "jwks.json"
    kept = jwks.read_text()
    jwks.write_text('{"keys": []}')
    try:

        def refused() -> bool:
            with dial(site, 1, False) as chat:
                hello = Hello(token=site.token(), client_id=id_of(b"c" * 16))
                chat.send(encode_json(hello).decode())
                frame = parse_json_edge(chat.recv(timeout=HUNG_S))
                return type(frame) is ErrorFrame and frame.name == "token_key_unknown"

        until(refused, "the key is gone")
        jwks.write_text("{")  # a mistake changes nothing
    finally:
        jwks.write_text(kept)
    until(lambda: not refused(), "the key is back")


def test_a_key_that_is_taken_away_ends_its_open_connections_in_seconds(site: EdgeSite) -> None:
    jwks = site.node(1) / "jwks.json"
    kept = jwks.read_text()
    with site.chat(1) as chat:
        chat.send(Ping(request="before"))
        assert chat.next(Pong).request == "before"
        jwks.write_text('{"keys": []}')
        try:
            started = time.monotonic()
            assert chat.next(ErrorFrame).name == "token_key_unknown"
            with pytest.raises(ConnectionClosed) as closed:
                chat.socket.recv(timeout=HUNG_S)
            assert closed.value.rcvd.code == 4003
            assert time.monotonic() - started < 60  # on a machine that is busy with other things
        finally:
            jwks.write_text(kept)

    def welcome() -> bool:
        try:
            site.chat(1).socket.close()
        except AssertionError:
            return False
        return True

    until(welcome, "the key is back")


def test_a_stopped_edge_sends_its_clients_away_and_ends_well(site: EdgeSite) -> None:
    with site.chat(2) as chat:
        code, said = site.stop_edge(2)
        assert (code, said) == (0, "")
        sent_to, told = chat.next(NextNode), chat.next(ErrorFrame)
        assert told.name == "closing"
        node = open_node(site.node(2))
        others = elsewhere(node, {})
        assert len(others) > 1 and sent_to.url in others and sent_to.spread == 2
        assert told.detail == f"this node is stopping; go to {sent_to.url}"
        out = next(other for other in node.site.nodes if other.index != 2)
        assert len(elsewhere(node, {"excluded": [str(out.farm_id)]})) == len(others) - 1
        with pytest.raises(ConnectionClosed) as closed:
            chat.socket.recv(timeout=HUNG_S)
        assert closed.value.rcvd.code == 1001
    site.start_edge(2)
    until(lambda: site.get(2, "/healthz")[0] == 200, "the edge is back")


def test_a_taken_port_is_a_mistake_of_the_operator(site: EdgeSite) -> None:
    site.stop_edge(1)
    with socket.create_server(("127.0.0.1", site.ports[1])):
        site.start_edge(1)
        process = site.edges.pop(1)
        assert process.wait(HUNG_S) == 2
        with process.stderr as said:
            line = said.read()
        assert f"client_port {site.ports[1]}" in line
        assert line.count("\n") == 1
    site.start_edge(1)
    until(lambda: site.get(1, "/healthz")[0] == 200, "the edge is back")


def test_unfinished_requests_survive_the_edge_being_stopped_and_killed(site: EdgeSite) -> None:
    """Clients resend through another edge what was not answered, under the same numbers."""
    with site.chat(0, device=99) as writer:
        room = writer.room("resent")
        writer.send(*[SendMessage(room_id=room, client_seq=seq, body="x") for seq in range(1, 41)])
        process = site.edges.pop(0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    with site.chat(1, device=99) as again:
        assert again.say(room, 1, 40) == list(range(2, 42))
    site.start_edge(0)
    until(lambda: site.get(0, "/healthz")[0] == 200, "the edge is back")


def test_without_tls_by_setting_and_within_its_limits(
    folder: Path, ports: Callable[[], int]
) -> None:
    with EdgeSite(
        folder / "c",
        nodes=1,
        ports=ports(),
        geometry="small",
        client_tls=False,
        connections_max=1_000_000,
        connections_per_address_max=3,
    ) as lone:
        lone.start_all()
        chats = [lone.chat(0) for _ in range(3)]
        assert chats[0].say(chats[0].room("plain"), 1, 3) == [2, 3, 4]
        with pytest.raises((OSError, EOFError, InvalidMessage, ConnectionClosed)):
            lone.chat(0)
        for chat in chats:
            chat.socket.close()
        until(lambda: lone.metric("tigerchat_edge_sessions", 0) == 0, "all are gone")
        counter = 'tigerchat_edge_connection_events_total{name="too_many_of_address"}'
        assert lone.metric(counter, 0) >= 1
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # the edge has inherited it
        status = lone.edge_status(0)
        assert status is not None and status["connections_max"] == files - DESCRIPTORS_RESERVED
        lone.chat(0).socket.close()
