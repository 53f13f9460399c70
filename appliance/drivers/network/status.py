"""Answers how a process is, at a socket of its own; for processes that answer nothing else there.

A question without a body is answered with the status. With one, a JSON object, it is a wish, if the
process takes wishes. Anything else ends the connection.
"""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from appliance.base.json_text import parse_json
from appliance.base.limits import CONNECTIONS_MAX
from appliance.drivers.network.questions import Asker, QuestionServer
from appliance.formats.local import LOCAL_STATUS
from appliance.formats.status.part import plain
from appliance.formats.status.status import Status

WISH_SIZE_MAX = 4096  # bytes of JSON
Granted = Status | dict[str, Any]  # what a process says to a wish


class StatusServer(QuestionServer):
    """`status` is called for each question, `on_wish` for each wish; one may take its time."""

    def __init__(
        self,
        path: Path,
        *,
        cluster: bytes,
        number: int,
        status: Callable[[], Status | dict[str, Any]],
        on_wish: Callable[[dict[str, Any]], Granted | Awaitable[Granted]] | None = None,
    ) -> None:
        super().__init__(
            path,
            self._told,
            command=LOCAL_STATUS,
            cluster=cluster,
            number=number,
            question_size_max=WISH_SIZE_MAX if on_wish else 0,
            connections_max=CONNECTIONS_MAX,
        )
        self._status, self._on_wish = status, on_wish

    async def _told(self, asker: Asker, body: bytes) -> bytes | None:
        wish: dict[str, Any] = {}
        if body:
            try:
                asked = parse_json(body)
            except ValueError:
                return None
            if not isinstance(asked, dict):
                return None
            wish = asked
        found = self._on_wish(wish) if wish and self._on_wish else self._status()
        said = await found if isinstance(found, Awaitable) else found
        return json.dumps(plain(said) if isinstance(said, Status) else said).encode()
