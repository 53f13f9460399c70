"""A room as a signed file, fetched over HTTP from whichever node serves it.

What has arrived is kept when a connection breaks: the same node is asked for the rest. Another node
signs with a key of its own, so from there the file comes anew.
"""

import http.client
from collections.abc import Callable, Sequence
from typing import BinaryIO
from uuid import UUID

from appliance.base.limits import MIB
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import ConnectionLost, SiteUnreachable
from appliance.drivers.chat.http_answer import connection_to, reason_in
from appliance.formats.client.address import PATH

TRIES_MAX = 8  # connections that break or are refused for now, in all
ANSWER_S_MAX = 30.0
_PIECE = MIB


def fetch(
    endpoints: Sequence[Endpoint],
    token: Callable[[], str],
    room_id: UUID,
    until_op: int | None,
    file: BinaryIO,
    wait: Callable[[float], None],
) -> None:
    """Write the room up to an op, or all there is, into the empty `file`; `wait` takes seconds.

    Raises Refused, or SiteUnreachable with the last reason after `TRIES_MAX` tries.
    """
    question = "" if until_op is None else f"?until_op={until_op}"
    path, tag, reason = f"{PATH}/rooms/{room_id}/snapshot{question}", "", ""
    for attempt in range(TRIES_MAX):
        endpoint = endpoints[attempt // 2 % len(endpoints)]  # twice the same: it may go on there
        headers = {"authorization": f"Bearer {token()}"}
        if tag:
            headers |= {"range": f"bytes={file.tell()}-", "if-range": tag}
        connection = connection_to(endpoint, ANSWER_S_MAX)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            if answer.status == 200:
                file.seek(0)
                file.truncate()
                tag = answer.headers.get("etag", "")
            elif answer.status != 206:
                raise ConnectionLost(reason_in(answer))
            _copy(answer, file)
            return
        except (OSError, http.client.HTTPException, ConnectionLost) as error:
            reason = f"{endpoint.host}:{endpoint.port}: {error or type(error).__name__}"
            wait(min(2.0, 0.1 * 2**attempt))
        finally:
            connection.close()
    raise SiteUnreachable(f"the room's file did not come whole; last, {reason}")


def _copy(answer: http.client.HTTPResponse, file: BinaryIO) -> None:
    """All bytes that the answer says it has; what came before a break stays in the file."""
    left = int(answer.headers.get("content-length", "-1"))
    if left < 0:
        raise http.client.HTTPException("an answer without its length")
    while left:
        piece = answer.read1(min(_PIECE, left))
        if not piece:
            raise ConnectionLost(f"the connection ended {left} bytes before the file did")
        file.write(piece)
        left -= len(piece)
