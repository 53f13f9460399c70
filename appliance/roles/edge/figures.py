"""What an edge tells about itself: values for the status and for the metrics, whether it serves,
whether all that it took is answered."""

import asyncio
from typing import Any

from appliance.base.limits import DRAIN_MS_MAX, TICK_MS
from appliance.cores.edge.edge import Edge
from appliance.drivers.host.node_folder import NodeFolder
from appliance.roles.edge.lanes import Lanes


def sessions_of(edge: Edge) -> dict[str, Any]:
    """How many are served, and with what success, as plain values."""
    followed = [
        subscription
        for session in edge.sessions.values()
        for subscription in session.subscriptions.values()
    ]
    return {
        "sessions": len(edge.sessions),
        "subscriptions": len(followed),
        "lagging": sum(subscription.state == "lagging" for subscription in followed),
        "acked": edge.counters.get("records_answered", 0),
        "refused": sum(count for name, count in edge.counters.items() if name.startswith("error_")),
        "rooms_known": len(edge.lookup.catalogue.rooms),
        "live_events": edge.fanout.live_events,
        "stored_events": edge.fanout.stored_events,
        "log_seq": {str(shard): log.log_seq for shard, log in edge.logs.items()},
        "waiting": {
            str(shard): sum(lane.depth for lane in lanes) for shard, lanes in edge.lanes.items()
        },
    }


def why_unhealthy(node: NodeFolder, edge: Edge, lanes: Lanes) -> str:
    """Why this node does not serve; empty while it does."""
    for shard in node.shards:
        if shard.number not in edge.logs:
            return f"the replica of shard {shard.number} is not attached"
        if shard.number in edge.behind:
            why = edge.behind[shard.number]
            return f"the replica of shard {shard.number} is {why}"
        if shard.number in edge.stale:
            since_us = edge.stale[shard.number]
            return (
                f"the replica of shard {shard.number} hears no quorum; "
                f"stale_since {since_us // 1_000_000}"
            )
    for shard in node.site.shards:
        if not lanes.sessions.has_session(shard.number):
            return f"shard {shard.number} has no primary that answers"
    return ""


async def answered(edge: Edge) -> None:
    """Wait until every message that was taken is answered; where there is no quorum, not for
    long."""
    for _ in range(DRAIN_MS_MAX // TICK_MS):
        if not any(session.in_flight for session in edge.sessions.values()):
            return
        await asyncio.sleep(TICK_MS / 1000)
