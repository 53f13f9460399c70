"""What an edge tells about itself: values for the status and for the metrics, whether it serves,
whether all that it took is answered."""

import asyncio
from dataclasses import dataclass

from appliance.base.limits import DRAIN_MS_MAX, TICK_MS
from appliance.cores.edge.edge import Edge
from appliance.drivers.host.node_folder import NodeFolder
from appliance.formats.status.directory import HeldDirectory
from appliance.formats.status.edge import EdgeStatus, Slackness
from appliance.formats.status.process import Latencies, ProcessFigures, Turns
from appliance.roles.edge.listeners import Listeners
from appliance.roles.edge.log_sessions import EdgeLogSessions
from appliance.roles.edge.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Served:
    """How many clients are served, and with what success."""

    sessions: int
    subscriptions: int
    lagging: int
    refused: int
    waiting: dict[int, int]


def served(edge: Edge) -> Served:
    followed = [
        subscription
        for session in edge.sessions.values()
        for subscription in session.subscriptions.values()
    ]
    return Served(
        sessions=len(edge.sessions),
        subscriptions=len(followed),
        lagging=sum(subscription.state == "lagging" for subscription in followed),
        refused=sum(count for name, count in edge.counters.items() if name.startswith("error_")),
        waiting={
            shard: sum(log_session.depth for log_session in log_sessions)
            for shard, log_sessions in edge.log_sessions.items()
        },
    )


def edge_status(
    edge: Edge,
    listeners: Listeners,
    traffic: Traffic,
    *,
    node: int,
    number: int,
    health: str,
    directory: HeldDirectory,
    remote: dict[int, str],
    ack: Latencies,
    process: ProcessFigures,
    beat: Turns,
    knobs: dict[str, str],
    memory: Slackness,
    dropped: dict[str, int],
    connection_events: dict[str, int],
) -> EdgeStatus:
    """Everything an operator may want to know."""
    server, clients = listeners.server, served(edge)
    return EdgeStatus(
        node=node,
        edge=number,
        health=health,
        directory=directory,
        connections=server.count(),
        connections_max=server.entrance.visitors_max,
        connections_by_transport=listeners.connections(),
        refused_by_transport=server.entrance.refusals.told(),
        quic_connections=listeners.quic_connections,
        bytes_received=traffic.received(),
        bytes_sent=traffic.sent(),
        ended_by_transport=traffic.ended(),
        sessions=clients.sessions,
        subscriptions=clients.subscriptions,
        lagging=clients.lagging,
        acked=edge.counters.get("records_answered", 0),
        refused=clients.refused,
        rooms_known=len(edge.lookup.catalogue.rooms),
        live_events=edge.fanout.live_events,
        stored_events=edge.fanout.stored_events,
        log_seq={shard: log.log_seq for shard, log in edge.logs.items()},
        remote=remote,
        waiting=clients.waiting,
        ack=ack,
        process=process,
        beat=beat,
        knobs=knobs,
        memory=memory,
        counters=dict(edge.counters),
        dropped=dropped,
        connection_events=connection_events,
    )


def why_unhealthy(
    node: NodeFolder, edge: Edge, log_sessions: EdgeLogSessions, remote: dict[int, str]
) -> str:
    """Why this node does not serve; empty while it does. `remote`: as `EdgeStatus.remote`."""
    for shard in node.site.shards:
        number = shard.number
        teller = remote.get(number)
        whose = f"the replica of shard {number}" + (f" on {teller}" if teller else "")
        if teller == "" and (number not in edge.logs or number in edge.stale):
            return f"no node tells the log of shard {number}"
        if number not in edge.logs:
            return f"{whose} is not attached"
        if number in edge.behind:
            return f"{whose} is {edge.behind[number]}"
        if number in edge.stale:
            return f"{whose} hears no quorum; stale_since {edge.stale[number] // 1_000_000}"
    for shard in node.site.shards:
        if not log_sessions.sessions.has_session(shard.number):
            return f"shard {shard.number} has no primary that answers"
    return ""


async def answered(edge: Edge) -> None:
    """Wait until every message that was taken is answered; where there is no quorum, not for
    long."""
    for _ in range(DRAIN_MS_MAX // TICK_MS):
        if not any(session.in_flight for session in edge.sessions.values()):
            return
        await asyncio.sleep(TICK_MS / 1000)
