"""How the nodes of the site file become members: who leads takes them in, and one that waits to be
taken in asks for it, as whoever leads may not have heard of it.

    joiner ──AddServer──▶ any member ──who leads──▶ leader ──JoinCluster, log──▶ joiner
                                       site file ──▶ leader
"""

import contextlib
import time
from collections.abc import Sequence

from appliance.base.errors import FarmPostFailed
from appliance.cores.raft.effects import JOINING
from appliance.cores.raft.member import LEADER
from appliance.formats.raft_legacy.configuration import Server, encode_server
from appliance.formats.raft_legacy.frame import ADD_SERVER, CLUSTER_SERVER, Entry, Request
from appliance.formats.site import Node
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.node_files import endpoint_of
from appliance.roles.farm.posts import Posts

_ASK_S, _ASK_AGAIN_S = 2.0, 5.0  # for a leader to begin; between two times that it is asked
# Between two tries of a leader with one node, doubled: as long as that does not answer, no other
# change can begin.
_PAUSE_S_MIN, _PAUSE_S_MAX = 15.0, 240.0


class Joiners:
    """Polled each second, by each member."""

    def __init__(self, posts: Posts) -> None:
        self._posts = posts
        self._ask_due_s = 0.0
        self._again: dict[int, tuple[float, float]] = {}  # tried: when again, and pause after that

    async def poll(self, member: FarmMember, nodes: Sequence[Node]) -> None:
        """Take in the next of these nodes that is no member, if this one leads, and lead no more if
        it is to go; ask to be taken in, if it waits for that."""
        status = member.node.status()
        listed = {server.id for server in status.servers}
        if status.standing == JOINING and status.id not in listed:
            await self._ask(status.id, member.settings.endpoint)
        if status.role != LEADER or status.change or len(member.inbox) > 0:
            return
        for server_id in listed & set(self._again):
            del self._again[server_id]
        out = set(member.directory.departed[1])  # by an operator, and not by themselves in again
        if status.id in out:  # no leader takes itself out
            member.yield_leadership()
            return
        for node in nodes:
            if node.farm_port and node.farm_id not in listed | out and self._is_due(node.farm_id):
                await self._take_in(status.id, node)
                return  # if it is not taken, at a later poll

    async def _ask(self, own_id: int, endpoint: str) -> None:
        if time.monotonic() < self._ask_due_s:
            return
        with contextlib.suppress(FarmPostFailed):
            await self._posts.client.ask(addition(own_id, endpoint), _ASK_S)
        self._ask_due_s = time.monotonic() + _ASK_AGAIN_S

    async def _take_in(self, own_id: int, node: Node) -> None:
        client = self._posts.client
        client.guess = own_id
        answer = await client.ask_once(addition(node.farm_id, endpoint_of(node)))
        if answer is not None and answer.accepted:
            _, pause_s = self._again.get(node.farm_id, (0.0, _PAUSE_S_MIN))
            due_s = time.monotonic() + pause_s
            self._again[node.farm_id] = (due_s, min(2 * pause_s, _PAUSE_S_MAX))

    def _is_due(self, server_id: int) -> bool:
        return server_id not in self._again or time.monotonic() >= self._again[server_id][0]


def addition(server_id: int, endpoint: str) -> Request:
    """That a server becomes a member."""
    value = encode_server(Server(server_id, endpoint))
    return Request(ADD_SERVER, entries=(Entry(0, CLUSTER_SERVER, value),))
