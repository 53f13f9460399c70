"""Curves over HTTP: `GET /console/curves?span=hour`, or `day`, for who is signed in; with `&of=` a
subject alone, each row of it. Either answer has a bounded size."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from appliance.cores.console.console import Console
from appliance.cores.console.curve_drawing import SPANS, drawing
from appliance.cores.console.curves import Curves
from appliance.roles.console.sign_ins import FRESH, SignIns, refusal


def curve_routes(
    curves: Curves, console: Console, sign_ins: SignIns, fresh: Callable[[], Awaitable[None]]
) -> list[Route]:
    """`fresh` waits until what is known is young enough for somebody who watches."""

    async def give(request: Request) -> Response:
        if not sign_ins.allowed(request):
            return refusal(401, "sign in first")
        span = request.query_params.get("span")
        if span not in SPANS:
            return refusal(400, f"expected a span: {' or '.join(SPANS)}")
        await fresh()
        names = {node.index: node.name for node in console.view.site.nodes}
        drawn = drawing(curves, span, names, request.query_params.get("of", ""))
        return JSONResponse(drawn, headers=FRESH)

    return [Route("/console/curves", give)]
