"""Two edge processes of one node: a client on QUIC that moves keeps its conversation."""

import asyncio
import json
import uuid
from collections import Counter

from cryptography.hazmat.primitives import hashes

from appliance.drivers.network.ask import ask_status
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom
from tests.drivers.network.quic.quic_client import dial
from tests.drivers.network.quic.test_neighbours import move
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.removal import folder_on_disk
from tests.roles.edge_site import EdgeSite, until
from tests.roles.ways import WebSocketHttp3

MOVES = 50
LOOKS = 6  # by connections of their own, which the kernel spreads over both processes


def test_a_conversation_goes_on_over_fifty_changes_of_address(free_ports: FreePorts) -> None:
    ports = next(port for port in free_ports(310) if port % 10 == 0)
    with folder_on_disk() as place:
        with EdgeSite(place / "a", nodes=1, ports=ports, edge_processes=2) as site:
            site.start_all()
            site.start_edge(0, 1)
            until(lambda: told(site, 1), "the second process is there")
            asyncio.run(see_one_certificate(site))
            asyncio.run(converse(site))
            both: Counter[str] = Counter()
            for number in range(2):
                both += Counter(told(site, number)["connection_events"])
            assert both["quic_accepted"] == 1 + LOOKS == both["http3"]
            assert both["quic_handed_over"] > MOVES // 10


def told(site: EdgeSite, number: int) -> dict:
    folder = site.node(0) / "sockets"
    found = ask_status(
        folder,
        cluster=site.cluster,
        shard=number,
        kind="edge",
        timeout_s=HUNG_S,
    )
    return found or {}


async def see_one_certificate(site: EdgeSite) -> None:
    """Whichever process answers: one of those whose digests it tells pages is shown, the same."""
    shown, hashes_told = set(), set()
    for _ in range(LOOKS):
        async with dial(site.ports[0]) as client:
            answer = await client.fetch("/v1/webtransport")
            offer = json.loads(bytes(answer.body))
            certificate = client._quic.tls._peer_certificate
            assert certificate is not None
            shown.add(certificate.fingerprint(hashes.SHA256()).hex())
            hashes_told.add(tuple(offer["certificate_hashes"]))
            assert offer["path"] == "/v1/tigerchat.v1.json"
    (seen,), (known,) = shown, hashes_told
    assert known.index(seen) == 1


async def converse(site: EdgeSite) -> None:
    """Each message is acknowledged and delivered once, in order, whatever address it comes from."""
    async with WebSocketHttp3(site.ports[0], binary=True) as way:
        await way.send(Hello(token=site.token(), client_id=uuid.uuid4()))
        assert isinstance(await way.next(), Welcome)
        await way.send(CreateRoom(name="moving"))
        answer = await way.next()
        assert isinstance(answer, RoomAnswer)
        await way.send(SubscribeRoom(room_id=answer.room_id, since_op=0))
        assert isinstance(await way.next(), Subscribed)
        bodies, acked = [], []
        for seq in range(1, MOVES + 1):
            await way.send(SendMessage(room_id=answer.room_id, client_seq=seq, body=f"{seq}"))
            await move(way.client)
            while len(acked) < seq or len(bodies) < seq:
                frame = await way.next()
                if isinstance(frame, MessageAck):
                    acked.append(frame.client_seq)
                elif isinstance(frame, MessageEvent) and frame.kind == 0:
                    bodies.append(frame.body)
        assert acked == list(range(1, MOVES + 1))
        assert bodies == [f"{seq}" for seq in range(1, MOVES + 1)]
