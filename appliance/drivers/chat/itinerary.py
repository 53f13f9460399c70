"""To which node a device goes next: in turn, or as the farm's directory weighs them."""

from collections.abc import Sequence
from typing import Protocol

from appliance.drivers.chat.endpoint import Endpoint


class Guide(Protocol):
    """Who reads directories: it verifies what a node hands out, and believes nothing else."""

    def take(self, signed: bytes) -> bool:
        """Whether these bytes are a directory to go by, newer than what was known."""

    def order(self, known: Sequence[Endpoint]) -> list[Endpoint]:
        """All nodes, each once, by chance and weight; empty before there is a directory."""


class Itinerary:
    """`known`: the nodes that were named to the device; a directory may name further ones."""

    def __init__(self, known: Sequence[Endpoint], first: int, guide: Guide | None) -> None:
        self.guide = guide
        self._known, self._turn = list(known), first
        self._round: list[Endpoint] = []  # of the order by weight, what was not tried yet
        self._left = ""  # address of the node that was tried last
        self._sent_to: Endpoint | None = None  # by the node that was left

    def next(self) -> Endpoint:
        """The node to try now: to which we were sent, else the one that was tried before comes
        last."""
        if (sent_to := self._sent_to) is not None:
            self._sent_to, self._left = None, sent_to.url
            return sent_to
        if not self._round and self.guide is not None:
            order = self.guide.order(self._known)
            self._round = sorted(order, key=lambda endpoint: endpoint.url == self._left)
        if self._round:
            endpoint = self._round.pop(0)
        else:
            endpoint = self._known[self._turn % len(self._known)]
            self._turn += 1
        self._left = endpoint.url
        return endpoint

    def go_to(self, url: str) -> bool:
        """A node sends us there: whether that is one that we know, by name or by the directory."""
        listed = self.guide.order(self._known) if self.guide is not None else []
        nodes = (node for node in (*self._known, *listed) if node.url == url)
        self._sent_to = next(nodes, None)
        return self._sent_to is not None

    def learn(self, signed: bytes) -> None:
        """A node handed out a directory."""
        if self.guide is not None and self.guide.take(signed):
            self._round.clear()
