"""Where clients reach an edge."""

from appliance.base.authority import authority

PATH = "/v1"  # of the protocol's first version
SESSION_PATH = f"{PATH}/session"  # of conversations in plain HTTP
WEBTRANSPORT_PATH = f"{PATH}/webtransport"  # what a page needs to know for it
HEALTH_PATH = "/healthz"  # whether the node serves
READY_PATH = "/readyz"  # ... and has room for somebody new
# what a client may have its conversation carried by, the usual one first
WEBSOCKET, WEBTRANSPORT, EVENTS, LONG_POLL = TRANSPORTS = (
    "websocket",
    "webtransport",
    "events",
    "long-poll",
)


def client_url(host: str, port: int, *, tls: bool) -> str:
    """The address of the WebSocket of a node's client port."""
    return f"{'wss' if tls else 'ws'}://{authority(host, port)}{PATH}"
