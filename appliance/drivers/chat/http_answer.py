"""Plain HTTP with a node: a connection, and why an answer is none that was wanted."""

import http.client

from appliance.base.errors import FormatError
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import Refused
from appliance.drivers.chat.refusal import refusal_in

_REFUSAL_SIZE_MAX = 64 * 1024


def connection_to(endpoint: Endpoint, patience_s: float) -> http.client.HTTPConnection:
    """Not dialled yet."""
    if endpoint.tls is None:
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=patience_s)
    return http.client.HTTPSConnection(
        endpoint.host, endpoint.port, timeout=patience_s, context=endpoint.tls
    )


def reason_in(answer: http.client.HTTPResponse) -> str:
    """Why one has to try again; raises Refused where that would change nothing."""
    told = refusal_in(answer.read(_REFUSAL_SIZE_MAX))
    if told is None and answer.status == 404:  # no path of that node: amid an update, others know
        return "its program is of a version that cannot answer this; update the node"
    if told is None:
        raise FormatError(f"an answer with status {answer.status} that is none of ours")
    if not told.temporary:
        raise Refused(told)
    return f"{told.name}: {told.detail}"
