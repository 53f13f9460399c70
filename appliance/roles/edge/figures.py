"""What the core of an edge tells about itself: values for the status and for the metrics."""

from typing import Any

from appliance.cores.edge.edge import Edge


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
