"""Where a message lies: `GET /v1/messages/<msg_id>`, with a bearer's token.

A search is many short steps; between two of them everything else has its turn. Who hangs up ends
it.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from appliance.base.errors import InputError
from appliance.base.limits import TICK_MS
from appliance.drivers.network.bearer_request import id_in, refused, token_of
from appliance.drivers.network.entrance import Bearer
from appliance.drivers.network.proxies import client_of
from appliance.drivers.network.refusal import MEDIA_TYPE
from appliance.formats.client.address import PATH
from appliance.formats.client.found_message import FoundMessage
from appliance.formats.client_errors import Unavailable


class Search(Protocol):
    """A search for one user; `step` raises InputError."""

    @property
    def waits(self) -> bool:
        """Whether the next step is to be taken with the next tick, not at once."""

    def step(self) -> FoundMessage | None:
        """The answer; None: not yet."""

    def close(self) -> None:
        """Nobody waits for the answer."""


# of a client's address, its token, an id
Open = Callable[[str, str, bytes], Search]


class FoundMessages:
    """Serves what `open_search` gives; `all` is for the application."""

    def __init__(self, open_search: Open) -> None:
        self._open = open_search
        self.all = [Route(f"{PATH}/messages/{{msg_id}}", self._get, methods=["GET"])]

    async def _get(self, request: Request) -> Response:
        try:
            found = await self._answer(request)
        except InputError as error:
            return refused(error)
        return Response(msgspec.json.encode(found), media_type=MEDIA_TYPE)

    async def _answer(self, request: Request) -> FoundMessage:
        token, msg_id = token_of(request), id_in(request, "msg_id")
        search = self._open(client_of(request), token, msg_id)
        try:
            return await _searched_by(request, search)
        finally:
            search.close()


async def _searched_by(request: Request, search: Search) -> FoundMessage:
    """The answer, for whoever asks and has not gone: a guest as long as it takes."""
    bearer: Bearer | None = request.scope["state"].get("bearer")
    if bearer is not None:
        bearer.welcome()
    gone = asyncio.create_task(_gone(request.receive))
    try:
        while (found := search.step()) is None:
            await asyncio.sleep(TICK_MS / 1000 if search.waits else 0)
            if gone.done():
                raise Unavailable("whoever asked has gone")
        return found
    finally:
        gone.cancel()
        if bearer is not None:
            bearer.leave()


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
