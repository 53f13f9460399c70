"""A way for datagrams that loses some of them, and may change the address it comes from."""

import asyncio
import random


class _Side(asyncio.DatagramProtocol):
    def __init__(self, way: "LossyWay", to_server: bool) -> None:
        self.way, self.to_server = way, to_server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.way.pass_on(data, addr, self.to_server)


class LossyWay:
    """Between one client and the server at `server_port`; `port` is where the client sends."""

    def __init__(self, server_port: int, loss: float, seed: int) -> None:
        self.server_port, self.loss = server_port, loss
        self.random = random.Random(seed)
        self.lost = self.passed = 0
        self.cut = False
        self.client: tuple[str, int] | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.front, _ = await loop.create_datagram_endpoint(
            lambda: _Side(self, True), local_addr=("127.0.0.1", 0)
        )
        await self.move()

    async def move(self) -> None:
        """From now on the server sees another port."""
        loop = asyncio.get_running_loop()
        if hasattr(self, "back"):
            self.back.close()
        self.back, _ = await loop.create_datagram_endpoint(
            lambda: _Side(self, False), local_addr=("127.0.0.1", 0)
        )

    @property
    def port(self) -> int:
        return self.front.get_extra_info("sockname")[1]

    def pass_on(self, data: bytes, addr: tuple[str, int], to_server: bool) -> None:
        if to_server:
            self.client = addr
        if self.cut or self.random.random() < self.loss:
            self.lost += 1
            return
        self.passed += 1
        if to_server:
            self.back.sendto(data, ("127.0.0.1", self.server_port))
        elif self.client is not None:
            self.front.sendto(data, self.client)

    def close(self) -> None:
        self.front.close()
        self.back.close()
