"""Two ports that link over a way which loses and delays: in time that is told, without a socket."""

import gc
import heapq
import os
import random
import weakref
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from appliance.base.limits import LINK_IDLE_S, LINK_PING_S, LINK_PROOF_S_MAX
from appliance.drivers.network.quic_links.quic_endpoint import QuicEndpoint
from appliance.drivers.network.quic_links.quic_link import Down, Identity, Up
from tests.drivers.network.site import TestNode, make_node

ADDRESSES = (("127.0.0.1", 1), ("127.0.0.1", 2))
STEADY_S = 10.0  # a link that lasts so long is one
DIAL_AGAIN_S = 1.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[TestNode]:
    folder = tmp_path_factory.mktemp("sites")
    places = [folder / str(index) for index in (0, 1)]
    for place in places:
        place.mkdir()
    return [make_node(place, index) for index, place in enumerate(places)]


def port(nodes: list[TestNode], index: int) -> QuicEndpoint:
    node = nodes[index]
    return QuicEndpoint(
        Identity(f"site-{index}", node.key, node.spki),
        {f"site-{other.index}": other.key.public for other in nodes},
        certificate=x509.load_pem_x509_certificate(Path(node.certificate).read_bytes()),
        private_key=load_pem_private_key(Path(node.private).read_bytes(), None),
        random_bytes=os.urandom,
    )


class World:
    """The second site dials the first, and again whenever its link ends."""

    def __init__(self, nodes: list[TestNode], seed: int, *, loss: float, delay_s: float) -> None:
        self.ports = [port(nodes, index) for index in (0, 1)]
        self.pin = nodes[0].spki
        self.chance = random.Random(seed)
        self.loss, self.delay_s = loss, delay_s
        self.now, self.dial_at, self.ping_at = 0.0, 0.0, LINK_PING_S
        self.up, self.turns = [0, 0], 0
        self._way: list[tuple[float, int, int, bytes]] = []

    def turn(self) -> None:
        """All that is due now; then time goes on to what is due next."""
        self.turns += 1
        if self.now >= self.dial_at:
            self.ports[1].dial(ADDRESSES[0], "site-0", self.pin, self.now)
            self.dial_at = float("inf")
        for index, one in enumerate(self.ports):
            for link, events in one.events():
                for event in events:
                    self._hear(index, event, is_proved=bool(link.site))
            for data, _ in one.datagrams(self.now):
                if self.chance.random() >= self.loss:
                    at = self.now + self.delay_s * self.chance.uniform(0.9, 1.5)
                    heapq.heappush(self._way, (at, self.turns, 1 - index, data))
        due = [self.dial_at, self.ping_at, *(row[0] for row in self._way[:1])]
        due += [at for one in self.ports if (at := one.deadline(self.now)) is not None]
        self.now = max(self.now + 0.001, min(due))
        while self._way and self._way[0][0] <= self.now:
            _, _, index, data = heapq.heappop(self._way)
            self.ports[index].on_datagram(data, ADDRESSES[1 - index], self.now)
        for one in self.ports:
            one.on_timer(self.now)
            if self.now >= self.ping_at:
                one.ping()
        if self.now >= self.ping_at:
            self.ping_at = self.now + LINK_PING_S

    def _hear(self, index: int, event: object, *, is_proved: bool) -> None:
        if isinstance(event, Up):
            self.up[index] += 1
        elif isinstance(event, Down):
            self.up[index] -= is_proved
            if index == 1:
                self.dial_at = self.now + DIAL_AGAIN_S

    def steady_s(self, within_s: float) -> float:
        """When both have begun to hold a link that lasts."""
        since = None
        while self.now < within_s:
            self.turn()
            if not all(self.up):
                since = None
            elif since is None:
                since = self.now
            elif self.now - since > STEADY_S:
                return since
        raise AssertionError(f"no link within {within_s} s")


@pytest.mark.parametrize(("loss", "delay_s", "within_s"), [(0.3, 0.05, 60), (0.3, 1.5, 600)])
def test_a_link_comes_about_over_a_way_that_loses_a_third_and_is_slow(
    nodes: list[TestNode], seed: int, loss: float, delay_s: float, within_s: float
) -> None:
    for number in range(4):
        World(nodes, seed + number, loss=loss, delay_s=delay_s).steady_s(within_s)


def test_a_link_that_ended_leaves_nothing_for_the_collector(nodes: list[TestNode]) -> None:
    world = World(nodes, 1, loss=0.0, delay_s=0.01)
    world.steady_s(60)
    kept = [weakref.ref(link.connection) for one in world.ports for link in one.links]
    assert len(kept) == 2
    gc.disable()
    try:
        for link in world.ports[0].links:
            link.close("gone")
        del link
        ended_s = world.now + LINK_IDLE_S + STEADY_S
        while any(reference() for reference in kept):
            world.turn()
            assert world.now < ended_s
    finally:
        gc.enable()


def test_who_does_not_prove_itself_in_time_is_closed_once_and_costs_few_turns(
    nodes: list[TestNode],
) -> None:
    world = World(nodes, 1, loss=0.0, delay_s=0.01)
    listener, dialler = world.ports
    while not any(link.is_encrypted for link in listener.links):
        world.turn()
    for link in dialler.links:
        link.site = "site-0"  # it takes no challenge, so that it never answers with a proof
    began = world.turns
    while world.now < LINK_PROOF_S_MAX + STEADY_S:
        world.turn()
    assert listener.counters["proof_late"] == 1
    assert world.turns - began < 1_000
