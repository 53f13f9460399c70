"""Who signs in to the console, and whose request this is."""

import asyncio
from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from appliance.base.limits import SIGN_INS_WAITING_MAX
from appliance.drivers.host.operator_sign_in import (
    SESSION_S,
    THIS_MACHINE,
    OperatorSignIn,
    SecretExpired,
)
from appliance.drivers.network.address import address_group
from appliance.drivers.network.operator_port import secret_in
from appliance.formats.operator_act import bounded

COOKIE = "__Host-tigerchat-console"  # a browser keeps this prefix to this host, path / and TLS
FRESH = {"cache-control": "no-store"}
SCREEN_REQUESTS = {"secret", "session", "leave", "renew"}  # at the console's socket


def refusal(code: int, why: str) -> Response:
    return JSONResponse({"error": why}, status_code=code, headers=FRESH)


class SignInRefused(Exception):
    """`code` of HTTP, and why, in words."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why


class SignIns:
    """At the door of one console: secrets are judged one by one."""

    def __init__(self, sign_in: OperatorSignIn) -> None:
        self._operator = sign_in
        self._entering = asyncio.Lock()
        self._waiting: Counter[str] = Counter()  # sign-ins by address

    def routes(self) -> list[Route]:
        return [
            Route("/console/sign-in", self._sign_in, methods=["POST"]),
            Route("/console/sign-out", self._sign_out, methods=["POST"]),
        ]

    def allowed(self, request: Request) -> bool:
        allowed = self._operator.knows(request.cookies.get(COOKIE))
        request.state.visitor.signed_in = allowed
        return allowed

    def who(self, request: Request) -> str:
        """The session of a request that is allowed, in words that open nothing."""
        return self._name(request.cookies[COOKIE])

    def _name(self, token: str) -> str:
        return f"console session {self._operator.name_of(token)}"

    def who_at_the_machine(self, asked: dict[str, Any]) -> str | None:
        """Who asks there: `{"session": ...}`, or `{"who": ...}` as the screen knows him where it is
        not locked; None: neither, or a session that has ended."""
        token, who = asked.get("session"), asked.get("who")
        if token is not None:
            known = type(token) is str and self._operator.knows(token)
            return self._name(token) if known else None
        return bounded(who) if type(who) is str and who else None

    async def at_the_machine(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the console's screen on this machine asks: `{"secret": ...}` for a session, whether
        `{"session": ...}` goes on, to `{"leave": ...}` one, and `{"renew": true}` for a new secret:
        whoever may ask here may read the node's keys."""
        if "renew" in asked:
            async with self._entering:
                return {"new_secret": await asyncio.to_thread(self._operator.renew)}
        if "leave" in asked:
            self._operator.leave(asked["leave"] if type(asked["leave"]) is str else None)
            return {"signed_in": False}
        if "session" in asked:
            token = asked["session"]
            return {"signed_in": type(token) is str and self._operator.knows(token)}
        secret = asked.get("secret")
        if type(secret) is not str:
            return {"error": "expected the secret that the console printed last"}
        try:
            token = await self._session(secret, THIS_MACHINE[0])
        except SignInRefused as refused:
            return {"error": refused.why}
        return {"session": token, "who": self._name(token)}

    async def _sign_in(self, request: Request) -> Response:
        """The secret in a JSON object: a form of another site cannot send one."""
        secret = await secret_in(request)
        if secret is None:
            return refusal(400, "expected a JSON object with the secret")
        try:
            token = await self._session(
                secret, address_group(request.client.host) if request.client else ""
            )
        except SignInRefused as refused:
            return refusal(refused.code, refused.why)
        request.state.visitor.signed_in = True
        response = Response(status_code=204)
        response.set_cookie(
            COOKIE,
            token,
            max_age=SESSION_S,
            path="/",
            secure=True,
            httponly=True,
            samesite="strict",
        )
        return response

    async def _session(self, secret: str, address: str) -> str:
        """The token of a new session; SignInRefused."""
        if self._is_crowded(address):
            raise SignInRefused(503, "others are signing in; try again in a second")
        self._waiting[address] += 1
        try:
            async with self._entering:
                shut = self._operator.shut_for(address)
                if shut > 0:
                    raise SignInRefused(429, f"too many wrong secrets; try again in {shut:.0f} s")
                token = await asyncio.to_thread(self._operator.enter, secret, address)
        except SecretExpired:
            raise SignInRefused(
                403, "the secret has expired; a new one was printed just now"
            ) from None
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]
        if token is None:
            raise SignInRefused(403, "this is not the secret printed last")
        return token

    def _is_crowded(self, address: str) -> bool:
        """Secrets are judged one by one. A stranger waits for few, this machine for all."""
        if address in THIS_MACHINE:
            return False
        return self._waiting[address] > 0 or self._waiting.total() >= SIGN_INS_WAITING_MAX

    async def _sign_out(self, request: Request) -> Response:
        self._operator.leave(request.cookies.get(COOKIE))
        response = Response(status_code=204)
        response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
        return response
