"""What the core of an edge tells about itself: values for the status, lines for the metrics."""

from collections.abc import Mapping
from typing import Any

from appliance.cores.edge.edge import Edge


def sessions_of(edge: Edge) -> dict[str, int]:
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
    }


def metrics_of(
    edge: Edge,
    *,
    connections: int,
    process: dict[str, Any],
    connection_events: Mapping[str, int],
    drops: Mapping[str, int],
) -> str:
    """All figures in Prometheus' text format."""
    lines = [
        f"tigerchat_edge_connections {connections}",
        f"tigerchat_edge_sessions {len(edge.sessions)}",
        f"tigerchat_edge_rooms_known {len(edge.lookup.catalogue.rooms)}",
        f"tigerchat_edge_live_events_total {edge.fanout.live_events}",
        f"tigerchat_edge_stored_events_total {edge.fanout.stored_events}",
        f"tigerchat_edge_resident_bytes {process['rss']}",
        f"tigerchat_edge_cpu_seconds_total {process['cpu_seconds']}",
    ]
    for name, counts in (
        ("events", edge.counters),
        ("connection_events", connection_events),
        ("drops", drops),
    ):
        lines += [
            f'tigerchat_edge_{name}_total{{name="{key}"}} {value}'
            for key, value in sorted(counts.items())
        ]
    for shard, lanes in edge.lanes.items():
        lines += [
            f'tigerchat_edge_lane_records{{shard="{shard}",lane="{lane.index}"}} {lane.depth}'
            for lane in lanes
        ]
    for shard, log in edge.logs.items():
        lines.append(f'tigerchat_edge_log_seq{{shard="{shard}"}} {log.log_seq}')
    return "\n".join(lines) + "\n"
