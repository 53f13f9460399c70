"""What requests of plain HTTP weigh, whatever carries them: the bodies of theirs and of answers."""

from collections.abc import Callable
from typing import Any

from appliance.drivers.network.refusals import HTTP, HTTP3

OnBody = Callable[[str, int, int], None]  # transport, bytes received, bytes sent


def unweighed(transport: str, received: int, sent: int) -> None:
    """For whoever keeps no figures."""


class Weighed:
    """An application as it is, told of by `on_body`; but for requests below the path `besides`,
    whose frames are weighed elsewhere."""

    def __init__(self, app: Any, *, on_body: OnBody, besides: str) -> None:
        self._app, self._on_body, self._besides = app, on_body, besides

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith(self._besides):
            await self._app(scope, receive, send)
            return
        on_body, name = self._on_body, HTTP3 if scope["http_version"] == "3" else HTTP

        async def receive_weighed() -> Any:
            message = await receive()
            on_body(name, len(message.get("body", b"")), 0)
            return message

        async def send_weighed(message: Any) -> None:
            on_body(name, 0, len(message.get("body", b"")))
            await send(message)

        await self._app(scope, receive_weighed, send_weighed)
