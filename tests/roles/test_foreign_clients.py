"""Programs of others speak to an edge by HTTP/3, attack it slowly, and leave no token behind."""

import asyncio
import json
import os
import re
import resource
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from curl_cffi import CurlHttpVersion
from curl_cffi.requests import Session

from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import encode_json
from appliance.formats.client.rooms import CreateRoom
from appliance.formats.client.sending import SendMessage
from appliance.formats.client.sign_in import Hello
from appliance.formats.client.subscribing import SubscribeRoom
from appliance.formats.room_name import room_id_of
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.removal import folder_on_disk
from tests.roles.edge_site import EdgeSite, until
from tests.roles.talk import Talk
from tests.roles.ways import WAYS, Ended, Way

JWT = re.compile(rb"eyJ[\w-]{8,}\.[\w-]{8,}")  # two parts of a token are as bad as three
SEARCHED_SIZE_MAX = 8 << 20  # of a file: larger ones are volumes
SLOW = {"head": "-H", "body": "-B", "range": "-R", "read": "-X"}
SLOW_CONNECTIONS, SLOW_CONNECTIONS_SOAK = 300, 2000  # of each kind
SLOW_S = 1  # of all, and two more for each thousand: so many begin in one
GROWTH_MAX = 1.1


@pytest.fixture(scope="module")
def site(free_ports: FreePorts) -> Iterator[EdgeSite]:
    """One node."""
    ports = next(port for port in free_ports(310) if port % 10 == 0)
    with folder_on_disk() as place:
        all_come = {"address_connect_rate": 1_000_000, "log_level": "debug"}
        with EdgeSite(place / "a", nodes=1, ports=ports, geometry="small", **all_come) as made:
            made.start_all()
            yield made


def frames_of(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def test_curl_reads_pages_and_converses_by_http3_alone(site: EdgeSite) -> None:
    base = f"https://127.0.0.1:{site.ports[0]}"
    version = CurlHttpVersion.V3ONLY
    with Session(verify=False, http_version=version, timeout=HUNG_S) as curl:
        page = curl.get(f"{base}/")
        assert page.status_code == 200 and page.text == site.get(0, "/")[1]
        assert page.http_version == CurlHttpVersion.V3
        assert curl.get(f"{base}/nowhere").status_code == 404

        hello = Hello(token=site.token(), client_id=uuid.uuid4())
        opened = curl.post(f"{base}/v1/session", data=encode_json(hello))
        assert opened.status_code == 201
        fields = {"tigerchat-session": opened.headers["tigerchat-session"]}

        def send(*frames: Any) -> None:
            body = b"\n".join(encode_json(frame) for frame in frames)
            took = curl.post(f"{base}/v1/session/frames", data=body, headers=fields)
            assert took.status_code == 202

        room = id_of(room_id_of("by-curl"))
        reading = f"{base}/v1/session/events?after={opened.json()['next']}"
        send(CreateRoom(name="by-curl"))  # curl begins a stream when the first of it comes
        with curl.stream("GET", reading, headers=fields) as events:
            heard = frames_of(events.iter_lines())
            assert next(heard)["room_id"] == str(room)
            send(SubscribeRoom(room_id=room))
            assert next(heard)["type"] == "subscribed"
            send(*[SendMessage(room_id=room, client_seq=seq, body=f"{seq}") for seq in (1, 2, 3)])
            came = [next(heard) for _ in range(6)]
            events.quit_now.set()  # curl ends a stream when the next of it comes, here the answer
            send(SendMessage(room_id=room, client_seq=4, body="4"))
        assert [one["client_seq"] for one in came if one["type"] == "message_ack"] == [1, 2, 3]
        bodies = [one["body"] for one in came if one["type"] == "message_event"]
        assert bodies == ["1", "2", "3"]


def test_ngtcp2_fetches_the_page(site: EdgeSite) -> None:
    port = site.ports[0]
    with tempfile.TemporaryDirectory(prefix="ngtcp2-") as folder:
        done = subprocess.run(
            [
                "gtlsclient",
                "--exit-on-all-streams-close",
                "--quiet",
                "--download",
                folder,
                "127.0.0.1",
                str(port),
                f"https://127.0.0.1:{port}/",
            ],
            capture_output=True,
            text=True,
            timeout=HUNG_S,
        )
        found = [path.read_text() for path in Path(folder).iterdir()]
    assert found == [site.get(0, "/")[1]], done.stderr[-2000:]


def attack(port: int, mode: str, connections: int, seconds: int) -> "subprocess.Popen[bytes]":
    """Slow requests of one kind; what it does not write in time is held open."""
    return subprocess.Popen(
        [
            "slowhttptest",
            SLOW[mode],
            *("-c", str(connections), "-r", "1000", "-l", str(seconds)),
            *("-i", "2", "-p", "2", "-u", f"https://127.0.0.1:{port}/"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192)),
    )


@pytest.mark.parametrize(
    "count", [SLOW_CONNECTIONS, pytest.param(SLOW_CONNECTIONS_SOAK, marks=pytest.mark.soak)]
)
def test_many_slow_requests_of_each_kind_hold_nobody_up(site: EdgeSite, count: int) -> None:
    edge = psutil.Process(site.edges[0].pid)

    def at_once(connections: int, seconds: int) -> list[int]:
        running = [attack(site.ports[0], mode, connections, seconds) for mode in SLOW]
        return [one.wait(HUNG_S) for one in running]

    at_once(count // 10, 1)  # what is made once is made
    before, accepted = edge.memory_info().rss, events(site)["accepted"]
    with Talk(site) as talk:
        at_once(count, SLOW_S + 2 * (count // 1000))
    counted = events(site)
    print(f"{before >> 10} KiB; {talk.said} sent beside; {counted}")
    assert talk.said > 0
    until(
        lambda: edge.memory_info().rss <= GROWTH_MAX * before,
        lambda: f"what they took is given back: {edge.memory_info().rss >> 10} KiB",
    )
    assert counted["accepted"] > accepted
    assert site.edges[0].poll() is None


def events(site: EdgeSite) -> dict[str, int]:
    status = site.edge_status(0)
    assert status is not None
    return dict(status["connection_events"])


async def sign_in(way: type[Way], port: int, token: str, how: str) -> None:
    """With the token in `hello`, in the head of the handshake, or in its list of protocols."""
    one = way(port, binary=way.speaks(True))
    if how == "head":
        one.authorization = f"Bearer {token}"
    elif how == "offer":
        one.offers = [f"tigerchat.token.{token}"]
    try:
        async with one:
            hello = Hello(client_id=uuid.uuid4(), **({"token": token} if how == "hello" else {}))
            await one.send(hello)
            await one.next()
    except Ended:
        pass  # a wrong one


def test_no_token_is_found_in_what_a_node_writes(site: EdgeSite) -> None:
    port, good = site.ports[0], site.token()
    forged = good[:-8] + "AAAAAAAA"
    assert JWT.match(good.encode())

    async def test() -> None:
        for way in WAYS:
            for token in (good, forged):
                await sign_in(way, port, token, "hello")
        for how in ("head", "offer"):
            for token in (good, forged):
                await sign_in(WAYS[0], port, token, how)
                await sign_in(WAYS[1], port, token, how)

    asyncio.run(test())
    site.get(0, f"/v1?token={good}")  # where it does not belong
    site.get(0, f"/web/{good}")
    status = json.dumps(site.edge_status(0)).encode()
    code, said = site.stop_edge(0)
    site.start_edge(0)
    site.wait_serving(0)
    assert code == 0
    assert JWT.findall(said.encode() + status) == []
    searched = 0
    for folder, _, names in os.walk(site.folder):
        for path in (Path(folder, name) for name in names):
            if path.is_file() and path.stat().st_size <= SEARCHED_SIZE_MAX:
                searched += 1
                assert JWT.findall(path.read_bytes()) == [], path
    assert searched > 3
