"""Links over real sockets: who is let in, who is not, and what a peer cannot do to us."""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

import psutil
import pytest
import uvloop

from appliance.base.errors import ConfigurationError
from appliance.base.limits import HANDSHAKE_MS_MAX, HANDSHAKES_MAX, LINK_BUFFER_MAX, MIB
from appliance.drivers.network import link as links
from appliance.drivers.network.framing import FrameReader
from appliance.drivers.network.link import CLOSED, CONNECTING, Connection, Listener, Secured
from appliance.formats.envelope import Message
from tests.drivers.network.site import (
    SIZE_MAX,
    Recorder,
    TestNode,
    make_expired_node,
    make_node,
    message,
)
from tests.patience import HUNG_S, within

Story = Callable[[], Coroutine[None, None, None]]


@pytest.fixture
def nodes(tmp_path: Path) -> list[TestNode]:
    return [make_node(tmp_path, index) for index in range(2)]


def run(story: Story) -> None:
    async def bounded() -> None:
        async with within(30):
            await story()

    uvloop.run(bounded())


def test_messages_arrive_in_order_and_name_their_sender(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: len(r.open) == 1)
        assert client.open[0].node == 0
        signer = nodes[1].signer()
        sizes = [0, 1, 100, 16_384, 150_000, 1_000_000] * 3
        for op, size in enumerate(sizes, 1):
            assert link.send(signer.frame(*message(op, b"x" * size)))
        await server.until(lambda r: len(r.messages) == len(sizes))
        assert [m.header.op for m in server.messages] == list(range(1, len(sizes) + 1))
        assert [len(m.body) for m in server.messages] == sizes
        assert {m.sender for m in server.messages} == {1}
        assert not server.drops
        await link.close()
        await server.until(lambda r: r.closed == ["peer_closed"])
        await listener.close()

    run(story)


async def expect_refusal(
    server_side: Secured, client_side: Secured, nodes: list[TestNode], reason: str
) -> None:
    """The server turns the client away for `reason`, and nothing the client sends arrives."""
    server, client = Recorder(nodes), Recorder(nodes)
    listener = await server.listen(server_side)
    link = client.link(client_side, listener.port)
    await server.until(lambda r: reason in r.closed)
    link.send(nodes[1].signer().frame(*message(1)))
    await server.until(lambda r: r.closed.count(reason) > 1)  # it tries again, in vain
    assert not server.open and not server.messages
    assert server.counters["closed_" + reason] >= 2
    await link.close()
    await listener.close()


def test_a_certificate_nobody_knows_is_refused(tmp_path: Path, nodes: list[TestNode]) -> None:
    stranger = make_node(tmp_path, 1)

    async def story() -> None:
        await expect_refusal(
            nodes[0].server(nodes), stranger.client(nodes, nodes[0]), nodes, "certificate"
        )

    run(story)


def test_an_expired_certificate_is_refused(tmp_path: Path, nodes: list[TestNode]) -> None:
    expired = make_expired_node(tmp_path, 1)
    known = [nodes[0], expired]

    async def story() -> None:
        await expect_refusal(
            nodes[0].server(known), expired.client(known, nodes[0]), known, "certificate"
        )

    run(story)


def test_an_anchor_that_is_no_node_any_more_is_refused(nodes: list[TestNode]) -> None:
    server_side = nodes[0].server(nodes)
    del server_side.pins[nodes[1].spki]

    async def story() -> None:
        await expect_refusal(server_side, nodes[1].client(nodes, nodes[0]), nodes, "pin")

    run(story)


def test_a_client_without_certificate_is_refused(nodes: list[TestNode]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=nodes[0].pem)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    bare = Secured(context, server_side=False, pins={nodes[0].spki: 0})

    async def story() -> None:
        await expect_refusal(nodes[0].server(nodes), bare, nodes, "handshake")

    run(story)


def test_no_ticket_is_given_that_could_stand_for_a_certificate(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server = Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        context = nodes[1].client(nodes, nodes[0]).context

        def resumable() -> bool:
            with socket.create_connection(("127.0.0.1", listener.port)) as plain:
                with context.wrap_socket(plain) as sock:
                    sock.settimeout(1.0)
                    with contextlib.suppress(TimeoutError):
                        sock.recv(1)  # tickets come behind the handshake
                    return sock.session is not None and sock.session.has_ticket

        assert not await asyncio.to_thread(resumable)
        await listener.close()

    run(story)


def test_tls_1_2_is_refused(nodes: list[TestNode]) -> None:
    old = nodes[1].client(nodes, nodes[0])
    old.context.minimum_version = ssl.TLSVersion.TLSv1_2
    old.context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def story() -> None:
        await expect_refusal(nodes[0].server(nodes), old, nodes, "handshake")

    run(story)


def test_another_node_at_the_dialled_address_is_refused(
    tmp_path: Path, nodes: list[TestNode]
) -> None:
    third = make_node(tmp_path, 2)
    known = [*nodes, third]

    async def story() -> None:
        server, client = Recorder(known), Recorder(known)
        listener = await server.listen(third.server(known))
        link = client.link(nodes[1].client(known, nodes[0]), listener.port)
        await client.until(lambda r: r.closed.count("pin") > 1)
        assert not client.open and not link.connected
        await link.close()
        await listener.close()

    run(story)


def test_a_server_nobody_knows_is_refused(tmp_path: Path, nodes: list[TestNode]) -> None:
    stranger = make_node(tmp_path, 0)

    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(stranger.server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: r.closed.count("certificate") > 1)
        assert not client.open
        await link.close()
        await listener.close()

    run(story)


def test_a_link_comes_back_by_itself(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        port = listener.port
        link = client.link(nodes[1].client(nodes, nodes[0]), port)
        await client.until(lambda r: len(r.open) == 1)
        await listener.close()
        await client.until(lambda r: not r.open)
        assert not link.send(nodes[1].signer().frame(*message(1)))
        assert client.counters["send_not_open"] == 1
        listener = await server.listen(nodes[0].server(nodes), port)
        await client.until(lambda r: len(r.open) == 1)
        signer = nodes[1].signer()
        assert link.send(signer.frame(*message(2)))
        await server.until(lambda r: len(r.messages) == 1)
        await link.close()
        await listener.close()

    run(story)


def test_a_peer_that_is_away_costs_nothing_however_often_it_is_dialled(
    nodes: list[TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while no garbage is collected: a replica collects seldom."""

    async def story() -> None:
        client = Recorder(nodes)
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
        link = client.link(nodes[1].client(nodes, nodes[0]), port)
        async with asyncio.timeout(HUNG_S):
            while client.counters["dial_failed"] < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        kept = Counter(type(thing) for thing in gc.get_objects()) - before
        assert kept[FrameReader] == 0
        assert sum(count for kind, count in kept.items() if issubclass(kind, Connection)) <= 1
        await link.close()

    monkeypatch.setattr(links, "DIAL_BACKOFF_MS_MAX", 20)
    gc.collect()
    gc.disable()
    before = Counter(type(thing) for thing in gc.get_objects())  # that other tests left
    try:
        run(story)
    finally:
        gc.enable()


def test_a_peer_that_does_not_read_costs_a_bounded_buffer(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: len(r.open) == 1)
        await server.until(lambda r: len(r.open) == 1)
        server.open[0].transport.pause_reading()
        signer = nodes[1].signer()
        header, body = message(1, b"x" * (MIB // 2))
        memory = psutil.Process().memory_info().rss
        sent = 0
        for _ in range(200):
            sent += link.send(signer.frame(header, body))
            await asyncio.sleep(0)
        assert client.counters["send_buffer_full"] == 200 - sent > 100
        assert psutil.Process().memory_info().rss - memory < 3 * LINK_BUFFER_MAX
        server.open[0].transport.resume_reading()
        await server.until(lambda r: len(r.messages) == sent)
        await link.close()
        await listener.close()

    run(story)


def test_a_frame_that_fails_a_check_costs_only_itself(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: len(r.open) == 1)
        signer = nodes[1].signer()
        broken = bytearray(signer.frame(*message(1, b"body")))
        broken[130] ^= 1
        link.send(bytes(broken))
        link.send(nodes[0].signer().frame(*message(2)))  # not the member of this connection
        link.send(signer.frame(*message(3)))
        await server.until(lambda r: len(r.messages) == 1)
        assert server.messages[0].header.op == 3
        assert server.drops == {"checksum": 1, "sender": 1}
        assert len(server.open) == 1
        await link.close()
        await listener.close()

    run(story)


def test_a_broken_stream_is_closed_and_counted(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: len(r.open) == 1)
        link.send(b"\0" * 500)
        await server.until(lambda r: "broken_stream" in r.closed)
        assert server.drops == {"magic": 1}
        await link.close()
        await listener.close()

    run(story)


@pytest.mark.parametrize("version", [0, 3], ids=["too old", "too new"])
@pytest.mark.parametrize("who_dialled", [True, False], ids=["dials", "is dialled"])
def test_a_peer_of_another_version_is_turned_away_and_its_version_told(
    nodes: list[TestNode], version: int, who_dialled: bool
) -> None:
    """Its frames are whole and signed, over a handshake that is in order."""

    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: len(r.open) == 1)
        await server.until(lambda r: len(r.open) == 1)
        frame = bytearray(nodes[1 if who_dialled else 0].signer().frame(*message(1)))
        frame[4:6] = version.to_bytes(2, "little")
        hearer = server if who_dialled else client
        assert link.send(bytes(frame)) if who_dialled else server.open[0].send(bytes(frame))
        await hearer.until(lambda r: "version" in r.closed)
        assert hearer.drops == {"version": 1} and not hearer.messages
        assert hearer.counters["closed_version"] == 1 and hearer.versions == [version]
        await link.close()
        await listener.close()

    run(story)


def test_a_message_received_while_closing_is_not_delivered(nodes: list[TestNode]) -> None:
    async def story() -> None:
        class Closing(Recorder):
            def on_message(self, connection: Connection, message: Message) -> None:
                super().on_message(connection, message)
                connection.close("enough")

        server, client = Closing(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: len(r.open) == 1)
        signer = nodes[1].signer()
        link.send(b"".join(signer.frame(*message(op)) for op in range(1, 10)))
        await server.until(lambda r: "enough" in r.closed)
        assert [m.header.op for m in server.messages] == [1]
        await link.close()
        await listener.close()

    run(story)


def test_strangers_who_wait_are_bounded_and_members_get_in_afterwards(
    nodes: list[TestNode],
) -> None:
    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        idle = []
        for _ in range(HANDSHAKES_MAX + 10):
            stranger = socket.create_connection(("127.0.0.1", listener.port))
            stranger.setblocking(False)
            idle.append(stranger)
        await server.until(lambda r: r.counters["closed_gave_way"] == 10)
        assert listener.count() == HANDSHAKES_MAX
        for stranger in idle:
            stranger.close()
        await server.until(lambda r: len(r.closed) == len(idle))
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: len(r.open) == 1)
        await link.close()
        await listener.close()

    run(story)


def test_strangers_who_stay_silent_keep_no_member_out(nodes: list[TestNode]) -> None:
    """All places are taken, also again at once, by who never says a word; members come in."""

    async def story() -> None:
        server, client = Recorder(nodes), Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        idle = []
        for number in range(4 * HANDSHAKES_MAX):
            stranger = socket.socket()
            stranger.bind((f"127.0.3.{1 + number % 7}", 0))
            stranger.connect(("127.0.0.1", listener.port))
            idle.append(stranger)
        await server.until(lambda r: listener.count() == HANDSHAKES_MAX)
        begun = asyncio.get_running_loop().time()
        link = client.link(nodes[1].client(nodes, nodes[0]), listener.port)
        await client.until(lambda r: len(r.open) == 1)
        assert client.counters["closed_lost"] == 0  # its first dial was let in
        assert asyncio.get_running_loop().time() - begun < HANDSHAKE_MS_MAX / 1000
        await link.close()
        await listener.close()
        for stranger in idle:
            stranger.close()

    run(story)


def test_who_gives_way_is_the_oldest_stranger_of_the_address_that_holds_most(
    nodes: list[TestNode],
) -> None:
    class Waiting:
        """A connection in its handshake."""

        def __init__(self, address: str) -> None:
            self.address, self.state, self.reason = address, CONNECTING, ""

        def abort(self, reason: str) -> None:
            self.state, self.reason = CLOSED, reason

    listener = Listener(
        Recorder(nodes),
        secured=nodes[0].server(nodes),
        message_size_max=SIZE_MAX,
        counters=Counter(),
        expected=["10.0.0.1"],
    )
    listener.remember("10.0.0.2")
    members = [Waiting("10.0.0.1") for _ in range(20)] + [Waiting("10.0.0.2") for _ in range(20)]
    few = [Waiting("10.0.9.1") for _ in range(4)]
    many = [Waiting("10.0.9.2") for _ in range(HANDSHAKES_MAX - 44)]
    for each in [*members, *few, *many]:
        assert listener.admit(each) == ""
    late = Waiting("10.0.0.1")
    assert listener.admit(late) == ""
    assert [each for each in [*members, *few, *many, late] if each.reason] == [many[0]]
    for _ in range(2 * HANDSHAKES_MAX):
        assert listener.admit(Waiting("10.0.9.3")) == ""
    assert not [each for each in [*members, late] if each.reason]


def test_a_port_that_is_taken_is_named(nodes: list[TestNode]) -> None:
    async def story() -> None:
        server = Recorder(nodes)
        listener = await server.listen(nodes[0].server(nodes))
        with pytest.raises(ConfigurationError, match=f"peer_port {listener.port} .* in use"):
            await server.listen(nodes[0].server(nodes), listener.port)
        await listener.close()

    run(story)


def test_files_that_are_no_certificate_are_named(tmp_path: Path, nodes: list[TestNode]) -> None:
    nodes[0].certificate.write_text("no certificate")
    with pytest.raises(ConfigurationError, match=r"0-0\.crt .* not a certificate and its key"):
        nodes[0].server([nodes[1]])
    nodes[1].certificate.unlink()
    with pytest.raises(ConfigurationError, match="restore both files"):
        nodes[1].server([])
