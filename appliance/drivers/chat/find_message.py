"""Where a message lies, asked over HTTP of whichever node can tell."""

import http.client
from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from appliance.base.errors import FormatError
from appliance.base.limits import MESSAGE_SEARCH_MS_MAX
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import ConnectionLost, SiteUnreachable
from appliance.drivers.chat.http_answer import connection_to, reason_in
from appliance.formats.client.address import PATH
from appliance.formats.client.found_message import FoundMessage

TRIES_MAX = 8  # connections that break or are refused for now, in all
ANSWER_S_MAX = MESSAGE_SEARCH_MS_MAX / 1000 + 10.0
_ANSWER_SIZE_MAX = 64 * 1024


def find_message(
    endpoints: Sequence[Endpoint],
    token: Callable[[], str],
    msg_id: UUID,
    wait: Callable[[float], None],
) -> FoundMessage:
    """The answer of the first node that can tell; `wait` takes seconds.

    Raises Refused, or SiteUnreachable with the last reason after `TRIES_MAX` tries.
    """
    reason = ""
    for attempt in range(TRIES_MAX):
        endpoint = endpoints[attempt % len(endpoints)]
        connection = connection_to(endpoint, ANSWER_S_MAX)
        try:
            headers = {"authorization": f"Bearer {token()}"}
            connection.request("GET", f"{PATH}/messages/{msg_id}", headers=headers)
            return _found_in(connection.getresponse())
        except (OSError, http.client.HTTPException, ConnectionLost) as error:
            reason = f"{endpoint.host}:{endpoint.port}: {error or type(error).__name__}"
            wait(min(2.0, 0.1 * 2**attempt))
        finally:
            connection.close()
    raise SiteUnreachable(f"no node can tell where the message lies; last, {reason}")


def _found_in(answer: http.client.HTTPResponse) -> FoundMessage:
    if answer.status != 200:
        raise ConnectionLost(reason_in(answer))
    try:
        return msgspec.json.decode(answer.read(_ANSWER_SIZE_MAX), type=FoundMessage)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError("an answer that tells of no message") from error
