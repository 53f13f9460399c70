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
from appliance.drivers.network.websocket import Connection
from appliance.formats.client.address import PATH
from appliance.formats.client.frame import SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON

_SUBPROTOCOLS = (SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON)
_OFFER = "offer subprotocol tigerchat.v1.json or tigerchat.v1.binary\n"
_PATHS = "conversations are at /v1/tigerchat.v1.json and /v1/tigerchat.v1.binary\n"
_WEBSOCKET_VERSION = "13"


def open_session(
    client: Carrier, stream_id: int, request: Request, services: Services, speaks_draft: bool
) -> None:
    """`speaks_draft`: the client has our draft of WebTransport."""
    refusal = _refusal(client, request, services)
    if refusal is None and request.protocol == "webtransport":
        refusal = _open_webtransport(client, stream_id, request, services, speaks_draft)
    elif refusal is None:
        refusal = _open_websocket(client, stream_id, request, services)
    if refusal is not None:
        name = "webtransport" if request.protocol == "webtransport" else "websocket_http3"
        services.server.on_refused(name, refusal.status)
        client.refuse(stream_id, *refusal)


def _refusal(client: Carrier, request: Request, services: Services) -> Refusal | None:
    if request.protocol not in ("websocket", "webtransport"):
        return Refusal(501, "this port has CONNECT for websocket and webtransport\n")
    host, origin = request.authority, request.values(b"origin")
    hosts = services.hosts
    if (
        len(origin) > 1
        or not hosts.may_ask(host)
        or not hosts.may_connect(origin[0] if origin else None, host)
    ):
        services.server.counters["origin_refused"] += 1
        return Refusal(403, "not a page of this site\n")
    held = sum(isinstance(user, StreamTransport | Session) for user in client.users.values())
    if held >= QUIC_SESSIONS_MAX:
        return Refusal(429, f"a connection has at most {QUIC_SESSIONS_MAX} conversations\n")
    return None


def _open_websocket(
    client: Carrier, stream_id: int, request: Request, services: Services
) -> Refusal | None:
    """RFC 9220."""
    if request.path != PATH:
        return Refusal(404, "conversations are at /v1\n")
    if request.values(b"sec-websocket-version") != [_WEBSOCKET_VERSION]:
        return Refusal(400, "sec-websocket-version must be 13\n")
    offered = {
        name.strip()
        for value in request.values(b"sec-websocket-protocol")
        for name in value.split(",")
    }
    subprotocol = next((name for name in _SUBPROTOCOLS if name in offered), None)
    if subprotocol is None:
        return Refusal(400, _OFFER)
    try:
        admitted = _admitted(client, request, services, offered)
    except InputError as error:
        return refusal_of(error, HTTP_STATUSES)
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
) -> Refusal | None:
    if not speaks_draft:
        return Refusal(400, "this port has WebTransport as in draft-ietf-webtrans-http3-02\n")
    subprotocol = request.path.removeprefix(PATH + "/")
    if subprotocol not in _SUBPROTOCOLS:
        return Refusal(404, _PATHS)
    try:
        admitted = _admitted(client, request, services)
    except InputError as error:
        return refusal_of(error, HTTP_STATUSES)
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
