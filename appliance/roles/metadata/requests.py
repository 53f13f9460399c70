"""What may be asked of a replica, one JSON object each; `docs/objects.md` lists them.

    {"do": "new", "class": "a-1", "values": ["\\"Ann\\"", "(5)"]}  ->  {"id": "a-2"}

Every answer is an object; a refusal is {"error": code, "reason": sentence}. An edit is answered
when it is durable here; other replicas have it later.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from appliance.base.errors import ApplianceError, EditRefused, TextRefused
from appliance.cores.metadata import writing
from appliance.cores.metadata.objects import Objects
from appliance.cores.metadata.replica import FieldWrite, Replica
from appliance.cores.metadata.states import empty
from appliance.cores.metadata.terms import Term
from appliance.formats.rdx.notation import Value, parse_value
from appliance.formats.rdx.text import state_text
from appliance.formats.status.metadata import ObjectsSession, StoreStatus
from appliance.formats.status.part import plain
from appliance.formats.toytlv.ids import ID0, Id, parse_id
from appliance.formats.toytlv.version_vectors import vector_text
from appliance.roles.metadata.arguments import text_of, whole_of
from appliance.roles.metadata.product_requests import PRODUCT, READS
from appliance.roles.metadata.service import Service
from appliance.roles.metadata.site_links import SiteLinks

BATCH_MAX = 4000

Request = dict[str, Any]
Handler = Callable[[Service, Request], Awaitable[Request]]


async def answer(service: Service, request: Any, objects: Objects | None = None) -> Request:
    """Never raises for what the request holds. With `objects`, those of a node, whose links are
    the site's affair."""
    verbs = [*OF_A_NODE, *PRODUCT] if objects is not None else list(HANDLERS)
    try:
        if not isinstance(request, dict) or request.get("do") not in verbs:
            raise TextRefused(f"a request is an object with `do`, one of {', '.join(verbs)}")
        if objects is None or request["do"] in OF_A_NODE:
            return await HANDLERS[request["do"]](service, request)
        act, shown_of = PRODUCT[request["do"]], objects
        turn = service.read if request["do"] in READS else service.ask
        return await turn(lambda replica: act(shown_of, request))
    except ApplianceError as error:
        return {"error": error.code, "reason": str(error)}


# --- edits ----------------------------------------------------------------------------------------


async def _class(service: Service, request: Request) -> Request:
    """`terms`: [letter, name] each; with `edit` more terms of that class, from `first` on."""
    rows = request.get("terms")
    if not isinstance(rows, list) or not all(_is_term(row) for row in rows):
        raise TextRefused("`terms` is a list of [letter, name]")
    edited = parse_id(text_of(request, "edit")) if "edit" in request else ID0
    first = request.get("first", 1)
    if type(first) is not int:
        raise TextRefused("`first` is the number of the first term")
    terms = [Term(first + index, row[0], row[1]) for index, row in enumerate(rows)]
    made = await service.ask(lambda replica: replica.create_class(terms, edited))
    return {"id": str(made)}


def _is_term(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(isinstance(one, str) for one in row)


async def _new(service: Service, request: Request) -> Request:
    """`values`: in the notation, for the fields of `class` in order; missing ones stay empty."""
    of_class = parse_id(text_of(request, "class"))
    values = [parse_value(text) for text in _texts(request.get("values", []))]

    def make(replica: Replica) -> Id:
        terms = replica.terms_of(of_class)
        if len(values) > len(terms):
            raise EditRefused(f"class {of_class} has {len(terms)} fields, not {len(values)}")
        rows = []
        for index, term in enumerate(terms):
            given = index < len(values)
            state = (
                writing.initial(term.letter, values[index], replica.source)
                if given
                else empty(term.letter)
            )
            rows.append((term.letter, state))
        return replica.create_object(of_class, rows)

    return {"id": str(await service.ask(make))}


async def _edit(service: Service, request: Request) -> Request:
    """`fields`: number of the field -> value that it becomes, several in one packet."""
    fields = request.get("fields")
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise TextRefused("`fields` maps numbers of fields to values")
    wanted = {_number(key): parse_value(text) for key, text in zip(
        fields, _texts(list(fields.values())), strict=True)}  # fmt: skip
    of = parse_id(text_of(request, "object"))
    return await _write(service, lambda replica: (of, wanted), writing.delta)


async def _set(service: Service, request: Request) -> Request:
    return await _write(service, _one(request), writing.delta)


async def _add(service: Service, request: Request) -> Request:
    return await _write(
        service, _one(request), lambda l, state, v, source: writing.addition(l, state, v)
    )


async def _remove(service: Service, request: Request) -> Request:
    return await _write(
        service, _one(request), lambda l, state, v, source: writing.removal(l, state, v)
    )


async def _write(
    service: Service,
    which: Callable[[Replica], tuple[Id, dict[int, Value]]],
    delta: Callable[[str, bytes, Value, int], bytes],
) -> Request:
    def make(replica: Replica) -> Id | None:
        of, wanted = which(replica)
        writes: list[FieldWrite] = []
        for field, value in wanted.items():
            letter = writing.declared_letter(replica, of, field)
            state = replica.table.state(of.with_field(field), letter)
            made = delta(letter, empty(letter) if state is None else state, value, replica.source)
            if made:
                writes.append((field, letter, made))
        return replica.edit(of, writes) if writes else None

    made = await service.ask(make)
    return {"id": str(made) if made is not None else None}


async def _batch(service: Service, request: Request) -> Request:
    """`requests` in one beat, with one flush; their `answers` in order."""
    requests = request.get("requests")
    if not isinstance(requests, list) or len(requests) > BATCH_MAX:
        raise TextRefused(f"`requests` is a list of at most {BATCH_MAX} requests")
    if any(isinstance(one, dict) and one.get("do") == "batch" for one in requests):
        raise TextRefused("a batch holds no batch")
    answers = await asyncio.gather(*[answer(service, one) for one in requests])
    return {"answers": list(answers)}


# --- looking --------------------------------------------------------------------------------------


async def _field(service: Service, request: Request) -> Request:
    named = _named(request)

    def read(replica: Replica) -> Request:
        of, field = named(replica)
        letter = writing.declared_letter(replica, of, field)
        state = replica.table.state(of.with_field(field), letter)
        shown = empty(letter) if state is None else state
        return {"letter": letter, "text": state_text(letter, shown), "state": shown.hex()}

    return await service.read(read)


async def _object(service: Service, request: Request) -> Request:
    of = parse_id(text_of(request, "object"))
    return {"text": await service.read(lambda replica: writing.object_text(replica, of))}


async def _vv(service: Service, request: Request) -> Request:
    return {"vv": await service.read(lambda replica: vector_text(replica.table.vector))}


async def _dump(service: Service, request: Request) -> Request:
    rows = await service.read(lambda replica: replica.dump())
    return {"rows": [[key.hex(), value.hex()] for key, value in rows]}


async def _verify(service: Service, request: Request) -> Request:
    return {"digest": await service.read(lambda replica: replica.verify())}


async def _status(service: Service, request: Request) -> Request:
    return plain(await service.read(lambda replica: status_of(service)))


def status_of(service: Service) -> StoreStatus:
    """Sessions, vectors and counters as they are now."""
    table = service.replica.table
    return StoreStatus(
        source=f"{service.replica.source:x}",
        vv=vector_text(table.vector),
        map_size=service.store.map_size,
        alarm=service.alarm,
        counters=dict(sorted(service.counters.items())),
        sessions=[
            ObjectsSession(
                peer=codec.stream.peer,
                source=f"{codec.session.peer.last.source:x}" if codec.session.peer else None,
                state=codec.session.feed.name.lower(),
                complete=codec.session.complete,
                fields_sent=codec.session.diff.fields_sent if codec.session.diff else 0,
                waiting_bytes=codec.session.queued + codec.stream.waiting,
                bytes_in=codec.stream.bytes_in,
                bytes_out=codec.stream.bytes_out,
            )
            for codec in service.codecs
        ],
    )


# --- connections ----------------------------------------------------------------------------------


async def _listen(service: Service, request: Request) -> Request:
    host, port = address_of(text_of(request, "address"))
    return {"port": await service.listen(host, port)}


async def _connect(service: Service, request: Request) -> Request:
    host, port = address_of(text_of(request, "address"))
    service.connect(host, port)
    return {"connecting": f"{host}:{port}"}


async def _disconnect(service: Service, request: Request) -> Request:
    """Close all streams that we dialled, and dial no more."""
    for dialler in list(service.diallers):
        await service.disconnect(dialler)
    return {}


async def _raw(service: Service, request: Request) -> Request:
    """Send bytes, given in hex, to all peers as they are: to see what another one refuses."""
    try:
        data = bytes.fromhex(text_of(request, "bytes"))
    except ValueError as error:
        raise TextRefused(f"`bytes` is hexadecimal: {error}") from error
    return {"sent": sum(codec.stream.send(data) for codec in service.codecs)}


HANDLERS: dict[str, Handler] = {
    "class": _class,
    "new": _new,
    "edit": _edit,
    "set": _set,
    "add": _add,
    "remove": _remove,
    "batch": _batch,
    "field": _field,
    "object": _object,
    "vv": _vv,
    "dump": _dump,
    "verify": _verify,
    "status": _status,
    "listen": _listen,
    "connect": _connect,
    "disconnect": _disconnect,
    "raw": _raw,
}

LINK_VERBS = ("peers", "peers_add", "peers_remove")


async def answer_links(links: SiteLinks, request: Request) -> Request:
    """`peers`; `peers_add` with `site`, `address` and `fingerprint`; `peers_remove` with `site`."""
    try:
        if request["do"] == "peers_add":
            host, _, port = text_of(request, "address").rpartition(":")
            if not host or not port.isascii() or not port.isdecimal():
                raise TextRefused("`address` is host:port")
            site = whole_of(request, "site")
            return await links.add(site, host, int(port), text_of(request, "fingerprint"))
        if request["do"] == "peers_remove":
            return await links.remove(whole_of(request, "site"))
        return {"peers": [plain(one) for one in links.shown()]}
    except ApplianceError as error:
        return {"error": error.code, "reason": str(error)}


# what a node's own socket answers
OF_A_NODE = ("field", "object", "vv", "dump", "verify", "status")


# --- arguments ------------------------------------------------------------------------------------


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise TextRefused("values are texts in the notation, such as 12 or {1,2}")
    return values


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 4:
        raise TextRefused(f"{text[:20]!r} is no number of a field")
    return int(text)


def _named(request: Request) -> Callable[[Replica], tuple[Id, int]]:
    """The field of `object` whose number is `field`; without that, the one that `object` names."""
    id = parse_id(text_of(request, "object"))
    if "field" not in request:
        return lambda replica: writing.named_field(replica, id)
    field = _number(str(request["field"]))
    return lambda replica: (id, field)


def _one(request: Request) -> Callable[[Replica], tuple[Id, dict[int, Value]]]:
    """That field, and the value that is given for it."""
    named, value = _named(request), parse_value(text_of(request, "value"))

    def which(replica: Replica) -> tuple[Id, dict[int, Value]]:
        of, field = named(replica)
        return of, {field: value}

    return which


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `[tcp://]host:port`, on loopback only: these streams are plain."""
    host, _, port = text.removeprefix("tcp://").rpartition(":")
    if host not in ("127.0.0.1", "localhost", "::1") or not port.isascii() or not port.isdecimal():
        raise TextRefused(f"{text[:60]!r} is no address on this machine, such as 127.0.0.1:5000")
    return host, int(port)
