"""Where the message lies that has an id: asked over HTTP of an edge with its real drivers."""

import asyncio
import http.client
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from appliance.base import limits
from appliance.cores.edge import message_search
from appliance.cores.edge.message_search import MessageSearch
from appliance.drivers.chat.access import local_token
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.chat.errors import Refused, SiteUnreachable
from appliance.drivers.chat.find_message import find_message
from appliance.formats.client.history import SnapshotChunk, SnapshotRequest
from appliance.roles.edge.role import EdgeRole
from tests.patience import HUNG_S
from tests.roles.conftest import MakeSite
from tests.roles.edge_site import RIGHTS
from tests.roles.test_wired_edge import Wire, written
from tests.roles.wired_site import WiredSite, until

ABSENT = uuid.UUID("00000000-0000-7000-8000-00000000abcd")


async def asked(
    site: WiredSite, edge: EdgeRole, msg_id: object, user: str = "reader", **rights: list[str]
) -> tuple[int, Any]:
    """Status and body of a request, by who has these rights; without any he brings no token."""

    def ask() -> tuple[int, Any]:
        bearer = local_token(site.folder, user, dict(rights), 3600)
        headers = {"authorization": f"Bearer {bearer}"} if rights else {}
        connection = http.client.HTTPConnection("127.0.0.1", edge._listeners.port, timeout=HUNG_S)
        try:
            connection.request("GET", f"/v1/messages/{msg_id}", headers=headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


def test_a_message_is_found_by_its_id_by_who_may_read_it(make_site: MakeSite) -> None:
    """In a sealed segment, and in the open one."""

    async def story(site: WiredSite) -> None:
        own = await site.start_replica(0)
        edge = await site.start_edge(0)
        await until(lambda: not edge.health())
        wire = await Wire.dial(site, edge)
        await written(wire, own.status().log_seq)
        wire.say(SnapshotRequest(room_id=wire.room, limit=3))
        old = (await wire.next(SnapshotChunk)).messages[2]
        wire.say(SnapshotRequest(room_id=wire.room, limit=1, backward=True))
        (new,) = (await wire.next(SnapshotChunk)).messages
        await wire.close()
        for message in (old, new):
            status, found = await asked(site, edge, message.msg_id, long=["read"])
            assert (status, found["room"], found["op"]) == (200, "long", message.op)
            assert (found["author"], found["timestamp"]) == ("anna", message.timestamp)
            assert found["room_id"] == str(wire.room) and "body" not in found
        unknown = await asked(site, edge, ABSENT, long=["read"])
        assert (unknown[0], unknown[1]["error"]["name"]) == (404, "message_unknown")
        for rights in ({"long": ["send"]}, {"other": ["read"]}):
            assert await asked(site, edge, old.msg_id, "reader", **rights) == unknown
        assert (await asked(site, edge, old.msg_id))[0] == 401
        status, told = await asked(site, edge, "lobby", long=["read"])
        assert (status, told["error"]["name"]) == (400, "field_invalid")
        await asyncio.to_thread(found_by_client, site, edge, new.msg_id, new.op)

    make_site(1).run(story)


def found_by_client(site: WiredSite, edge: EdgeRole, msg_id: uuid.UUID, op: int) -> None:
    """The product's own client goes on to the next node, but for what that would not change."""
    endpoints = [Endpoint("127.0.0.1", port, None) for port in (1, edge._listeners.port)]
    waited: list[float] = []

    def token() -> str:
        return local_token(site.folder, "reader", RIGHTS, 3600)

    assert find_message(endpoints, token, msg_id, waited.append).op == op
    with pytest.raises(Refused, match="message_unknown"):
        find_message(endpoints[1:], token, ABSENT, waited.append)
    assert len(waited) == 1
    with HTTPServer(("127.0.0.1", 0), Earlier) as earlier:
        threading.Thread(target=earlier.serve_forever, daemon=True).start()
        endpoints[0] = Endpoint("127.0.0.1", earlier.server_port, None)
        assert find_message(endpoints, token, msg_id, waited.append).op == op
        with pytest.raises(SiteUnreachable, match="is of a version that cannot answer this"):
            find_message(endpoints[:1], token, msg_id, waited.append)
        earlier.shutdown()


class Earlier(BaseHTTPRequestHandler):
    """A node whose program has no such path, as others of its site have amid an update."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"Not Found")

    def log_message(self, *words: object) -> None:
        pass


def test_an_edge_that_has_no_replica_denies_nothing(make_site: MakeSite) -> None:
    async def story(site: WiredSite) -> None:
        edge = await site.start_edge(0)
        status, told = await asked(site, edge, ABSENT, long=["read"])
        assert (status, told["error"]["name"]) == (503, "unavailable")
        assert told["error"]["temporary"]

    make_site(1).run(story)


class Watched:
    """Searches of an edge from now on, none of which ends by itself."""

    def __init__(self, edge: EdgeRole, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: list[MessageSearch] = []
        self.stirred = 0  # times that the edge was told of them
        for name in ("ROOM_WAIT_MS_MAX", "MESSAGE_SEARCH_MS_MAX"):
            monkeypatch.setattr(message_search, name, 1 << 40)
        readers, waking = edge._edge.readers, edge._waking
        search, stir = readers.search, waking.stir

        def stirring() -> None:
            self.stirred += 1
            stir()

        def searching(address: str, token: str, msg_id: bytes) -> MessageSearch:
            made = search(address, token, msg_id)
            close = made.close

            def closing() -> None:
                self.open.remove(made)
                close()

            monkeypatch.setattr(made, "close", closing)
            self.open.append(made)
            return made

        monkeypatch.setattr(readers, "search", searching)
        monkeypatch.setattr(waking, "stir", stirring)

    async def are(self, count: int) -> None:
        """Until so many are under way, and have looked through all there is."""
        await until(lambda: len(self.open) == count and all(made.waits for made in self.open))


async def hanging(site: WiredSite, edge: EdgeRole, user: str) -> asyncio.StreamWriter:
    """One who has asked for a message and takes no answer."""
    _, writer = await asyncio.open_connection("127.0.0.1", edge._listeners.port)
    lines = (
        f"GET /v1/messages/{ABSENT} HTTP/1.1",
        f"host: 127.0.0.1:{edge._listeners.port}",
        f"authorization: Bearer {local_token(site.folder, user, RIGHTS, 3600)}",
    )
    writer.write("\r\n".join((*lines, "", "")).encode())
    return writer


def test_users_and_a_node_have_so_many_searches_and_who_hangs_up_has_none(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(site: WiredSite) -> None:
        await site.start_replica(0)
        edge = await site.start_edge(0)
        await until(lambda: not edge.health())
        searches, writers = Watched(edge, monkeypatch), []
        of_user, of_node = limits.MESSAGE_SEARCHES_OF_USER_MAX, limits.MESSAGE_SEARCHES_MAX
        for number in range(of_node):
            if number == of_user:
                status, told = await asked(site, edge, ABSENT, "user 0", long=["read"])
                assert (status, told["error"]["name"]) == (503, "busy")
                assert f"{of_user} searches" in told["error"]["detail"]
            writers.append(await hanging(site, edge, f"user {number // of_user}"))
            await searches.are(number + 1)
        status, told = await asked(site, edge, ABSENT, "somebody else", long=["read"])
        assert (status, told["error"]["name"]) == (503, "busy")
        assert f"{of_node} searches" in told["error"]["detail"]
        assert searches.stirred == of_node + 2
        for writer in writers:
            writer.close()
        await searches.are(0)
        again = await hanging(site, edge, "user 0")
        await searches.are(1)
        again.close()
        await searches.are(0)

    make_site(1).run(story)
