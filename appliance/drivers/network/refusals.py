"""Who was refused at the client port: by what would have carried the conversation, and why.

Both are names of short lists, so that no client can make rows of its own.
"""

from collections import Counter

from appliance.formats.client_errors import CLIENT_ERRORS, NodeFull

# what carries conversations
WEBSOCKET_TCP, WEBSOCKET_HTTP3, WEBTRANSPORT = "websocket", "websocket_http3", "webtransport"
EVENTS, LONG_POLL = "events", "long_poll"
HTTP, HTTP3 = "http", "http3"  # pages, files and probes; what bears conversations in plain HTTP
TCP, QUIC = "tcp", "quic"  # nobody knows yet what is spoken there
CONVERSATIONS = (WEBSOCKET_TCP, WEBSOCKET_HTTP3, WEBTRANSPORT, EVENTS, LONG_POLL)
SERVED = (*CONVERSATIONS, HTTP, HTTP3)
TRANSPORTS = (*SERVED, TCP, QUIC)

FULL = NodeFull.__new__(NodeFull).name
# why, beside the errors of the client protocol
TOO_FAST, TOO_MANY = "too_fast_of_address", "too_many_of_address"
DISPLACED = "stranger_displaced"
NO_DESCRIPTOR = "no_descriptor"
OTHER_SITE = "other_site"  # a page of another site, or a host that is none of ours
NO_PATH = "no_path"
MALFORMED = "malformed_handshake"  # no subprotocol of ours, another version or draft among them
NO_PROTOCOL = "no_protocol"
SESSIONS = "sessions_too_many"
REASONS = frozenset(
    {
        TOO_FAST,
        TOO_MANY,
        DISPLACED,
        NO_DESCRIPTOR,
        OTHER_SITE,
        NO_PATH,
        MALFORMED,
        NO_PROTOCOL,
        SESSIONS,
    }
    | {error.__new__(error).name for error in CLIENT_ERRORS}
)


class Refusals:
    """Of one edge."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def count(self, transport: str, reason: str) -> None:
        assert transport in TRANSPORTS, transport
        assert reason in REASONS, reason
        self._counts.setdefault(transport, Counter())[reason] += 1

    def told(self) -> dict[str, dict[str, int]]:
        """Plain values for the status."""
        return {name: dict(row) for name, row in self._counts.items()}
