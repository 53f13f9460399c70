"""A request that pages of this site may make, whichever of its nodes they came from: a page whose
node is gone goes on with another one (CORS). Pages of other sites may not; clients that are no
pages may."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from appliance.drivers.network.origin import Hosts

_REMEMBERED_S = 600  # a page of another node need not ask again whether it may ask
Handler = Callable[[Request], Awaitable[Response]]


def site_route(
    path: str, handlers: dict[str, Handler], hosts: Hosts, *, fields: str = "", shown: str = ""
) -> Route:
    """`handlers` by method; of the head, `fields` may be sent and `shown` may be read by pages of
    other nodes."""

    async def answer(request: Request) -> Response:
        origins = request.headers.getlist("origin")
        origin = origins[0] if origins else None
        if len(origins) > 1 or not hosts.may_connect(origin, request.headers.get("host")):
            return PlainTextResponse("not a page of this site\n", status_code=403)
        if request.method == "OPTIONS":
            response = Response(status_code=204)
            response.headers["access-control-allow-methods"] = ", ".join(handlers)
            response.headers["access-control-max-age"] = str(_REMEMBERED_S)
            if fields:
                response.headers["access-control-allow-headers"] = fields
        else:
            handler = handlers.get(request.method)
            if handler is None:
                return PlainTextResponse("no such request\n", status_code=405)
            response = await handler(request)
        if origin is not None:
            response.headers["access-control-allow-origin"] = origin
            response.headers["vary"] = "origin"
            if shown:
                response.headers["access-control-expose-headers"] = shown
        return response

    return Route(path, answer, methods=[*handlers, "OPTIONS"])
