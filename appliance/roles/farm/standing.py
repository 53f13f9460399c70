"""How a member stands, as others are told: its log, who else is a member, what all agree on."""

from collections.abc import Mapping

from appliance.cores.directory.directory import Directory
from appliance.cores.raft.node import PeerStatus, Status
from appliance.cores.raft.settings import TICK_MS
from appliance.formats.raft_legacy.configuration import Server
from appliance.formats.status.farm import FarmServer, MemberStatus


def standing_of(status: Status, directory: Directory, counts: Mapping[str, int]) -> MemberStatus:
    """`counts`: of what has been refused and noted, by reason."""
    peers = {peer.id: peer for peer in status.peers}
    return MemberStatus(
        role=status.role,
        standing=status.standing,
        term=status.term,
        leader=status.leader,
        commit=status.commit,
        last=status.last,
        snapshot=status.snapshot,
        change=status.change,
        members_committed=status.configuration_index <= status.commit,
        members=[
            FarmServer(id=server.id, endpoint=server.endpoint, match=status.last)
            if server.id == status.id
            else _other(server, peers.get(server.id))
            for server in status.servers
        ],
        view=directory.view(),
        counts=dict(counts),
    )


def _other(server: Server, peer: PeerStatus | None) -> FarmServer:
    heard_ticks = None if peer is None else peer.heard_ticks
    return FarmServer(
        id=server.id,
        endpoint=server.endpoint,
        match=0 if peer is None else peer.match,
        connected=peer is not None and peer.connected,
        silent_ms=None if heard_ticks is None else heard_ticks * TICK_MS,
    )
