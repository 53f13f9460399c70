"""How machines that belong to no site yet are let into one: a founder, or a node that invites,
listens; each machine shows its code once, and all are answered when the last has come.

    joiner                                   who made the code
    TLS 1.3, the key that answers is that of the code
    {"secret", "cluster", "node": {...}} ──▶ known, of this site, not used, not expired
                                             waits until all have come, and lets them in
    ◀───────────────────────────── {"index", "site", "jwks", ...}  or  {"error"}
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.base.errors import ApplianceError, ConfigurationError, StorageError
from appliance.base.json_text import parse_json
from appliance.drivers.network.handlers import Handlers
from appliance.drivers.network.stream_end import end
from appliance.formats.join_code import JoinCode
from appliance.formats.site import spki_of

_LINE_SIZE_MAX = 1 << 20
_ASK_S = 20.0  # for a stranger to say what it wants
_ANSWER_S = 20.0  # for one to take the answer
_STRANGERS_MAX = 16  # at once
_WRONG_S = 0.5  # before a wrong secret is answered: with so many at once, all that can be tried
_CONNECT_S = 20.0
# what comes of reading a line that is none: cut off, without end, no JSON object
_NONSENSE = (EOFError, asyncio.LimitOverrunError, ValueError)

Row = dict[str, Any]


class JoinRefused(StorageError):
    """Who made this code does not take it: the sentence says why."""

    code = 1122


@dataclass
class _Invited:
    """One code. Invariant: `joined` is set while its machine waits, and after it was answered."""

    secret: bytes
    joined: Row | None = None
    answer: "asyncio.Future[Row] | None" = field(default=None)


class Gathering:
    """Listens for as many machines as there are `secrets`. `check(node)` raises ConfigurationError
    for a description that cannot be taken; `told(line)` hears of each that came or was refused;
    `expired` says what it means when the time is over before all came."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        secrets: list[bytes],
        *,
        cluster: bytes,
        seconds: float,
        check: Callable[[Row, list[Row]], None],
        told: Callable[[str], None],
        expired: str,
    ) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.load_cert_chain(certificate, key)
        self._invited = [_Invited(secret) for secret in secrets]
        self._cluster = cluster.hex()
        self._seconds, self._check, self._told = seconds, check, told
        self._strangers = 0
        self._is_expired, self._expired = False, expired

    async def gather(
        self,
        host: str,
        port: int,
        form: Callable[[list[Row]], Awaitable[list[Row]]],
        listens: Callable[[], None] = lambda: None,
    ) -> None:
        """Until all have come and `form(their descriptions)` has given each its answer; then until
        each has taken it. JoinRefused when the time is over before; what `form` raises is told to
        all who wait. `listens()` is called once machines may come."""
        loop = asyncio.get_running_loop()
        self._complete: asyncio.Future[None] = loop.create_future()
        handlers = Handlers(self._serve)
        server = await asyncio.start_server(
            handlers.serve, host, port, ssl=self._context, limit=_LINE_SIZE_MAX
        )
        listens()
        try:
            try:
                await asyncio.wait_for(self._complete, self._seconds)
            except TimeoutError as error:
                self._is_expired = True
                await self._refuse_waiting("this code has expired: ask for a new one")
                raise JoinRefused(self._expired) from error
            rows = [each.joined for each in self._invited if each.joined is not None]
            try:
                answers = await form(rows)
            except ApplianceError as error:
                await self._refuse_waiting(str(error))
                raise
            for each, answer in zip(self._invited, answers, strict=True):
                assert each.answer is not None
                each.answer.set_result(answer)
            await asyncio.sleep(0)
            await self._all_taken()
        finally:
            server.close()
            await handlers.end()
            await server.wait_closed()

    async def _all_taken(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                while self._strangers:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    async def _refuse_waiting(self, sentence: str) -> None:
        for each in self._invited:
            if each.answer is not None and not each.answer.done():
                each.answer.set_result({"error": sentence})
        await self._all_taken()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._strangers += 1
        try:
            if self._strangers <= _STRANGERS_MAX:
                answer = await self._answer(reader)
                async with asyncio.timeout(_ANSWER_S):
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        except (OSError, *_NONSENSE):
            pass  # a stranger that says nothing sensible
        finally:
            self._strangers -= 1
            await end(writer)

    async def _answer(self, reader: asyncio.StreamReader) -> Row:
        async with asyncio.timeout(_ASK_S):
            asked = await _row(reader)
        secret, node = bytes.fromhex(str(asked.get("secret", ""))), asked.get("node")
        found = [each for each in self._invited if hmac.compare_digest(each.secret, secret)]
        if not found or not isinstance(node, dict):
            await asyncio.sleep(_WRONG_S)
            return self._refused("this code is not one of this site's: it was changed")
        (each,) = found
        if asked.get("cluster", self._cluster) != self._cluster:
            return self._refused("this code is of another site")
        if self._is_expired:
            return self._refused("this code has expired: ask for a new one")
        if each.joined is not None:
            return self._refused(f"this code was used, by {each.joined['name']}")
        try:
            self._check(node, [other.joined for other in self._invited if other.joined])
        except ConfigurationError as error:
            return self._refused(str(error))
        return await self._wait(each, node, reader)

    async def _wait(self, each: _Invited, node: Row, reader: asyncio.StreamReader) -> Row:
        """Until all have come and are let in; one that goes away before frees its code."""
        each.joined, each.answer = node, asyncio.get_running_loop().create_future()
        self._told(f"{node['name']} has come")
        if all(other.joined is not None for other in self._invited):
            self._complete.set_result(None)
        gone = asyncio.ensure_future(reader.read(1))
        waited: list[asyncio.Future[Any]] = [each.answer, gone]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not each.answer.done():
            if self._complete.done():
                return await each.answer
            each.joined = each.answer = None
            self._told(f"{node['name']} has gone away: its code may be used again")
            raise ValueError
        return each.answer.result()

    def _refused(self, sentence: str) -> Row:
        self._told(f"refused: {sentence}")
        return {"error": sentence}


async def ask_to_join(code: JoinCode, node: Row) -> Row:
    """Show the code and describe this machine; the answer, when it is let in. JoinRefused with the
    sentence of who made the code, or when somebody else answers at its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # pinned below
    where = f"{code.host}:{code.port}"
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(
                code.host, code.port, ssl=context, limit=_LINE_SIZE_MAX
            )
    except (OSError, TimeoutError) as error:
        raise JoinRefused(
            f"nobody answers at {where}: `tigerchat found` or `tigerchat member invite` made this "
            "code and must be running there; a code that was used or has expired ends with it"
        ) from error
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        spki = spki_of(ssl.DER_cert_to_PEM_cert(der))
        if hashlib.sha256(spki).digest() != code.fingerprint:
            raise JoinRefused(
                f"another machine answers at {where} than the one that made this code: nothing was "
                "told to it"
            )
        asked = {"secret": code.secret.hex(), "cluster": code.cluster.hex(), "node": node}
        writer.write(json.dumps(asked).encode() + b"\n")
        answer = await _row(reader)
    except (OSError, *_NONSENSE) as error:
        raise JoinRefused(
            f"{where} has gone away before it let this machine in: try again"
        ) from error
    finally:
        await end(writer)
    if "error" in answer:
        raise JoinRefused(f"{where} refuses: {answer['error']}")
    return answer


async def _row(reader: asyncio.StreamReader) -> Row:
    row = parse_json(await reader.readuntil(b"\n"))
    if not isinstance(row, dict):
        raise ValueError("no object")
    return row
