"""First packets of QUIC that bear the addresses of others, ten thousand a second: little is sent to
those, and who chats over TCP goes on."""

import asyncio
import json
import random
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.drivers.chat.client import Client
from appliance.drivers.network.ask import ask_status
from tests.patience import HUNG_S
from tests.system.network import LOAD_HOST, Switch
from tests.system.networked_site import NetworkedSite

OTHERS, OTHERS_FIRST, OTHERS_COUNT = "198.18.0.0/15", 198 << 24 | 18 << 16, 1 << 17
OFFERED = 10_000  # a second
SECONDS = 2
AMPLIFIED_MAX = 3.0  # bytes out, of those that came
INITIAL_SIZE = 1200


@pytest.fixture
def site(tmp_path: Path) -> Iterator[NetworkedSite]:
    """One node, whose answers to the others all go to where the load is, which has no use for
    them."""
    with Switch(1) as switch, NetworkedSite(tmp_path / "site", switch) as made:
        words = ["ip", "-n", switch.namespace(0), "route", "add", OTHERS, "via", LOAD_HOST]
        subprocess.run(words, check=True)
        yield made


def initials(chance: random.Random, target: str, port: int) -> Iterator[bytes]:
    """Packets of IP. What is inside an Initial is not looked at before the address is known."""
    noise = chance.randbytes(INITIAL_SIZE)
    while True:
        ids = b"\x08" + chance.randbytes(8) + b"\x08" + chance.randbytes(8)
        head = b"\xc3\x00\x00\x00\x01" + ids + b"\x00"  # no token
        size = INITIAL_SIZE - len(head) - 2
        data = head + struct.pack(">H", 0x4000 | size) + noise[:size]
        udp = struct.pack(">HHHH", chance.randrange(1024, 1 << 16), port, 8 + len(data), 0) + data
        source = OTHERS_FIRST + chance.randrange(OTHERS_COUNT)
        yield (
            struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0)
            + source.to_bytes(4, "big")
            + socket.inet_aton(target)
            + udp
        )


def offer(target: str, port: int, seed: int) -> float:
    """Send so many; how many a second it were."""
    begun, sent = time.monotonic(), 0
    packets = initials(random.Random(seed), target, port)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        while sent < OFFERED * SECONDS:  # not one more, also after a moment of standing still
            due = min(OFFERED * SECONDS, int((time.monotonic() - begun) * OFFERED))
            while sent < due:
                raw.sendto(next(packets), (target, 0))
                sent += 1
            time.sleep(0.001)
    return sent / (time.monotonic() - begun)


def carried(site: NetworkedSite) -> tuple[int, int]:
    """Bytes that came to the node, and that it sent."""
    words = ["ip", "-n", site.switch.namespace(0), "-s", "-j", "link", "show", "dev", "eth0"]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    counted = json.loads(told)[0]["stats64"]
    return counted["rx"]["bytes"], counted["tx"]["bytes"]


async def chat(site: NetworkedSite, ended: threading.Event) -> int:
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        room = (await client.create_room("aside")).room_id
        said = 0
        while not ended.is_set():
            await client.send(room, f"{said}")
            said += 1
            await asyncio.sleep(0.01)
        return said


def test_spoofed_initials_are_answered_with_less_than_came_and_chat_goes_on(
    site: NetworkedSite, seed: int
) -> None:
    ended, said, rates = threading.Event(), [], []
    port = site.site.nodes[0].client_port

    def talk() -> None:
        said.append(asyncio.run(chat(site, ended)))

    def flood() -> None:
        rates.append(offer(site.host(0), port, seed))

    before = carried(site)
    talking, flooding = (
        threading.Thread(target=site.switch.in_load, args=(call,)) for call in (talk, flood)
    )
    talking.start()
    flooding.start()
    flooding.join()
    ended.set()
    talking.join(HUNG_S)
    came, sent = (now - then for now, then in zip(carried(site), before, strict=True))
    print(f"{rates[0]:.0f} a second; {came} bytes in, {sent} out; {said} sent beside")
    assert said and said[0] > 0
    assert came >= OFFERED * SECONDS * INITIAL_SIZE
    assert sent <= AMPLIFIED_MAX * came
    sockets = site.place(0) / "sockets"
    status = ask_status(sockets, cluster=site.site.cluster, shard=0, kind="edge", timeout_s=HUNG_S)
    assert status is not None
    counted = status["connection_events"]
    assert counted["quic_retry"] > 0 and not counted.get("quic_accepted")
    assert counted["quic_retry"] + counted.get("quic_answers_too_many", 0) <= OFFERED * SECONDS
