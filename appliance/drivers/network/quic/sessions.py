"""Extended CONNECT: a request that becomes a conversation, or is refused with the reason."""

from collections.abc import Iterable
from typing import Any

from appliance.base.errors import InputError
from appliance.base.limits import QUIC_SESSIONS_MAX
from appliance.drivers.network.closings import HTTP_STATUSES
from appliance.drivers.network.quic.request import Request
from appliance.drivers.network.quic.stream_transport import StreamTransport
from appliance.drivers.network.quic.streams import Carrier, Services
from appliance.drivers.network.quic.webtransport import DRAFT, Session
from appliance.drivers.network.refusal import Refusal, refusal_of
from appliance.drivers.network.refusals import (
    MALFORMED,
    NO_PATH,
    NO_PROTOCOL,
    OTHER_SITE,
    SESSIONS,
    WEBSOCKET_HTTP3,
    WEBTRANSPORT,
)
from appliance.drivers.network.websocket import Connection
from appliance.formats.client.address import PATH
from appliance.formats.client.frame import SUBPROTOCOLS

_OFFER = f"offer subprotocol {' or '.join(SUBPROTOCOLS)}\n"
_PATHS = f"conversations are at {' and '.join(f'{PATH}/{name}' for name in SUBPROTOCOLS)}\n"
_DRAFTS = "this port has WebTransport as in draft-ietf-webtrans-http3-02\n"
_WEBSOCKET_VERSION = "13"

Refused = tuple[str, Refusal]  # why, for figures, and the answer


def open_session(
    client: Carrier, stream_id: int, request: Request, services: Services, speaks_draft: bool
) -> None:
    """`speaks_draft`: the client has our draft of WebTransport."""
    wants_transport = request.protocol == "webtransport"
    refused = _refusal(client, request, services)
    if refused is None and wants_transport:
        refused = _open_webtransport(client, stream_id, request, services, speaks_draft)
    elif refused is None:
        refused = _open_websocket(client, stream_id, request, services)
    if refused is not None:
        why, answer = refused
        services.server.on_refused(WEBTRANSPORT if wants_transport else WEBSOCKET_HTTP3, why)
        client.refuse(stream_id, *answer)


def conversations_on(client: Carrier) -> int:
    """How many streams of it are conversations."""
    return sum(isinstance(user, StreamTransport | Session) for user in client.users.values())


def _refusal(client: Carrier, request: Request, services: Services) -> Refused | None:
    if request.protocol not in ("websocket", "webtransport"):
        return NO_PROTOCOL, Refusal(501, "this port has CONNECT for websocket and webtransport\n")
    host, origin = request.authority, request.values(b"origin")
    hosts = services.hosts
    if (
        len(origin) > 1
        or not hosts.may_ask(host)
        or not hosts.may_connect(origin[0] if origin else None, host)
    ):
        services.server.counters["origin_refused"] += 1
        return OTHER_SITE, Refusal(403, "not a page of this site\n")
    if conversations_on(client) >= QUIC_SESSIONS_MAX:
        text = f"a connection has at most {QUIC_SESSIONS_MAX} conversations\n"
        return SESSIONS, Refusal(429, text)
    return None


def _open_websocket(
    client: Carrier, stream_id: int, request: Request, services: Services
) -> Refused | None:
    """RFC 9220."""
    if request.path != PATH:
        return NO_PATH, Refusal(404, "conversations are at /v1\n")
    if request.values(b"sec-websocket-version") != [_WEBSOCKET_VERSION]:
        return MALFORMED, Refusal(400, "sec-websocket-version must be 13\n")
    offered = {
        name.strip()
        for value in request.values(b"sec-websocket-protocol")
        for name in value.split(",")
    }
    subprotocol = next((name for name in SUBPROTOCOLS if name in offered), None)
    if subprotocol is None:
        return MALFORMED, Refusal(400, _OFFER)
    try:
        admitted = _admitted(client, request, services, offered)
    except InputError as error:
        return error.name, refusal_of(error, HTTP_STATUSES)
    transport = StreamTransport(client, stream_id)
    client.users[stream_id] = transport
    fields = [(b":status", b"200"), (b"sec-websocket-protocol", subprotocol.encode())]
    client.send_headers(stream_id, fields)
    connection = Connection.over(
        services.server,
        transport,
        address=client.address,
        subprotocol=subprotocol,
        admitted=admitted,
        on_welcome=transport.welcome,
    )
    transport.protocol = connection
    return None


def _open_webtransport(
    client: Carrier, stream_id: int, request: Request, services: Services, speaks_draft: bool
) -> Refused | None:
    if not speaks_draft:
        return MALFORMED, Refusal(400, _DRAFTS)
    subprotocol = request.path.removeprefix(PATH + "/")
    if subprotocol not in SUBPROTOCOLS:
        return NO_PATH, Refusal(404, _PATHS)
    try:
        admitted = _admitted(client, request, services)
    except InputError as error:
        return error.name, refusal_of(error, HTTP_STATUSES)
    session = Session(
        client, stream_id, services.server, subprotocol=subprotocol, admitted=admitted
    )
    client.users[stream_id] = session
    client.send_headers(stream_id, [(b":status", b"200"), DRAFT])
    services.server.on_open(session)
    return None


def _admitted(
    client: Carrier, request: Request, services: Services, offered: Iterable[str] = ()
) -> Any:
    """As whom the client comes; None while it does not say. Raises InputError."""
    return services.server.admitted(client.address, request.values(b"authorization"), offered)
