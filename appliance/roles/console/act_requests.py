"""Acts over HTTP: `POST /console/acts`, a JSON object with the act, what it is about, the name that
was typed, and what was written; `POST /console/acts/given` takes what an act gave, once, and by the
session that began it. Whoever is not signed in learns nothing; what is refused is told with its
reason. The console's screen asks the same at the console's socket: `act_at_the_machine`."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from appliance.cores.console.about import About
from appliance.drivers.network.operator_port import json_in
from appliance.roles.console.doer import ActRefused, ActUnknown, Doer
from appliance.roles.console.sign_ins import FRESH, SignIns, refusal
from appliance.roles.operator.noting import TERMINAL

ACT_SIZE_MAX = 4096  # bytes of a request's body
ACT_REQUESTS = {"begin", "take"}  # at the console's socket
NOT_SIGNED_IN = "sign in first: nothing was changed"
_UNKNOWN = "expected a JSON object with an act that the site has, and what it is about"


def act_routes(doer: Doer, sign_ins: SignIns, tell: Callable[[], Awaitable[None]]) -> list[Route]:
    """`tell` shows every page what was begun."""

    async def begin(request: Request) -> Response:
        if not sign_ins.allowed(request):
            return refusal(401, "sign in first")
        asked = _asked(await json_in(request, ACT_SIZE_MAX))
        if asked is None:
            return refusal(400, _UNKNOWN)
        who, where = sign_ins.who(request), request.client.host if request.client else "nowhere"
        try:
            name, about, typed, written = asked
            number = await doer.begin(name, about, typed, who, where, written)
        except ActUnknown:
            return refusal(400, _UNKNOWN)
        except ActRefused as why:
            return refusal(409, str(why))
        await tell()
        return JSONResponse({"number": number}, status_code=202, headers=FRESH)

    async def give(request: Request) -> Response:
        if not sign_ins.allowed(request):
            return refusal(401, "sign in first")
        body = await json_in(request, ACT_SIZE_MAX)
        number = None if body is None else body.get("number")
        if type(number) is not int:
            return refusal(400, "expected a JSON object with the number of an act")
        outcome = doer.take(number, sign_ins.who(request))
        if outcome is None:
            return refusal(404, "nothing is left to be taken: it is given once")
        await tell()
        if not outcome.file:
            return JSONResponse({"text": outcome.text}, headers=FRESH)
        heads = FRESH | {"content-disposition": f'attachment; filename="{outcome.file_name}"'}
        return Response(outcome.file, media_type="application/gzip", headers=heads)

    return [
        Route("/console/acts", begin, methods=["POST"]),
        Route("/console/acts/given", give, methods=["POST"]),
    ]


async def act_at_the_machine(
    doer: Doer, sign_ins: SignIns, asked: dict[str, Any]
) -> dict[str, Any]:
    """To `{"begin": ...}` an act, as the body of `POST /console/acts` has it, and to `{"take": 7}`
    what act 7 gave; beside that who asks, as `SignIns.who_at_the_machine` has it."""
    who = sign_ins.who_at_the_machine(asked)
    if who is None:
        return {"error": NOT_SIGNED_IN}
    if "take" in asked:
        number = asked["take"]
        outcome = doer.take(number, who) if type(number) is int else None
        return {"error": "nothing is left"} if outcome is None else {"text": outcome.text}
    body = asked["begin"]
    found = _asked(body) if type(body) is dict else None
    if found is None:
        return {"error": _UNKNOWN}
    name, about, typed, written = found
    try:
        return {"number": await doer.begin(name, about, typed, who, TERMINAL, written)}
    except ActUnknown:
        return {"error": _UNKNOWN}
    except ActRefused as why:
        return {"error": str(why)}


def _asked(body: dict[str, Any] | None) -> tuple[str, About, str, dict[str, str]] | None:
    """The act's name, what it is about, what was typed, and what was written; None: it is no such
    object."""
    if body is None:
        return None
    name, about, typed = body.get("act"), body.get("about"), body.get("typed", "")
    if type(name) is not str or type(about) is not dict or type(typed) is not str:
        return None
    written = body.get("written", {})
    if type(written) is not dict or any(type(word) is not str for word in written.values()):
        return None
    kinds = {"node": int, "process": str, "shard": int, "other": int}
    if any(type(value) is not kinds.get(key) for key, value in about.items()):
        return None
    return name, About(**about), typed, written
