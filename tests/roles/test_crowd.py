"""Many people behind one address come at once, each from far away: all get in."""

import asyncio
import random
import ssl
import time
import uuid
from collections.abc import Iterator

import pytest

from appliance.formats.client.frame import encode_binary
from appliance.formats.client.parse import parse_binary_edge
from appliance.formats.client.sign_in import Hello, Welcome
from tests.patience import HUNG_S, within
from tests.ports import FreePorts
from tests.removal import folder_on_disk
from tests.roles.edge_site import EdgeSite
from tests.security.attacks import HANDSHAKE, frame
from tests.speed import machine_speed

FAR_S = 0.8  # between a client's first byte and its hello, by the way that they take
AGAIN_S = 0.5  # before a client that was thrown out comes again, on average
ALL_IN_S = 10.0


@pytest.fixture
def site(free_ports: FreePorts) -> Iterator[EdgeSite]:
    """One node with the settings that a new site has."""
    ports = next(port for port in free_ports(310) if port % 10 == 0)
    with folder_on_disk() as place:
        with EdgeSite(place / "a", nodes=1, ports=ports, geometry="small") as made:
            made.start_all()
            yield made


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Crowd:
    """Clients of one address, one user each."""

    def __init__(self, site: EdgeSite, size: int) -> None:
        self._port = site.ports[0]
        self._tokens = [site.token(f"user-{number}") for number in range(size)]
        self._tls = trusting()
        self.thrown_out = 0

    async def _welcome(self, token: str) -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._tls, ssl_handshake_timeout=HUNG_S
        )
        try:
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(FAR_S)
            writer.write(frame(encode_binary(Hello(token=token, client_id=uuid.uuid4()))))
            head = await reader.readexactly(2)
            size = head[1]
            if size == 126:
                size = int.from_bytes(await reader.readexactly(2), "big")
            (answer,) = parse_binary_edge(await reader.readexactly(size))
            assert isinstance(answer, Welcome), answer
        except BaseException:
            writer.transport.abort()
            raise
        return writer

    async def _come(self, token: str) -> asyncio.StreamWriter:
        while True:
            try:
                return await self._welcome(token)
            except (OSError, asyncio.IncompleteReadError):
                self.thrown_out += 1
                await asyncio.sleep(random.uniform(0, 2 * AGAIN_S))

    async def come(self) -> float:
        """All of them; seconds until the last one was welcome."""
        started = time.monotonic()
        async with within(HUNG_S):
            writers = await asyncio.gather(*map(self._come, self._tokens))
        took_s = time.monotonic() - started
        for writer in writers:
            writer.transport.abort()
        return took_s


@pytest.mark.parametrize("size", [150, pytest.param(1000, marks=pytest.mark.soak)])
def test_all_of_a_crowd_behind_one_address_are_welcome_in_seconds(
    site: EdgeSite, size: int
) -> None:
    crowd = Crowd(site, size)
    took_s = asyncio.run(crowd.come())
    status = site.edge_status(0)
    assert status is not None
    counted = status["connection_events"]
    print(f"{size} welcome in {took_s:.1f} s, {crowd.thrown_out} came again; {counted}")
    assert took_s <= ALL_IN_S / machine_speed()
