"""Text that another process or machine wrote: each place that reads JSON takes it, or refuses it as
it refuses what is no JSON. Any other error would end the process that reads."""

import asyncio
import base64
import contextlib
import dataclasses
import gc
import hashlib
import inspect
import io
import json
import os
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from appliance.base.checksum import blake2b_256
from appliance.base.errors import ApplianceError, FormatError
from appliance.base.json_text import parse_json
from appliance.base.prng import Prng
from appliance.base.signature import CONTEXT_UPDATE, SigningKey
from appliance.commands.object import show, watch
from appliance.cores.directory.directory import Directory, snapshot_fits
from appliance.cores.directory.signed import open_directory, sign_delegation, sign_directory
from appliance.cores.federation.parameters import Parameters
from appliance.cores.raft.invitation import Code, parse_code
from appliance.drivers.host.site_watch import SiteWatch
from appliance.drivers.network import local, objects_link
from appliance.drivers.network.ask import ask_status
from appliance.drivers.network.farm_stream import server_tls
from appliance.drivers.network.framing import Signer
from appliance.drivers.network.joining import ask_to_join
from appliance.drivers.network.local import LocalLink, LocalServer, make_ring
from appliance.drivers.network.objects_link import ObjectsLink
from appliance.formats import manifest, update_bundle, volume_label, webhdfs
from appliance.formats.envelope import SENDER_CLIENT, decode
from appliance.formats.geometry import HEADER_SIZE
from appliance.formats.join_code import JoinCode
from appliance.formats.local import LOCAL_OBJECTS, LOCAL_STATUS, answer, told
from appliance.formats.raft_legacy.frame import APPLICATION, Entry
from appliance.formats.site import SITE_FILE, encode_site
from appliance.formats.site_view import SiteView
from appliance.formats.status.part import plain
from appliance.node.child import Child
from appliance.node.supervisor import REFUSED, Supervisor
from appliance.reports import ledger
from appliance.roles.attached.log_session import LogSession
from appliance.roles.edge.replicas import Local, ReplicaFeed
from appliance.roles.farm import publisher
from appliance.roles.farm.founding import join
from appliance.roles.farm.guests import unseal
from appliance.roles.federation.participant import ANSWER, COMMAND, Attached, Participant, frame
from appliance.simulation.federation.store import MemoryStore
from tests.drivers.network.site import TestNode, make_node
from tests.drivers.network.test_local import Heard
from tests.patience import HUNG_S, within
from tests.roles.objects_site import site_of
from tests.statuses import attachment

DIGITS = b"9" * 3_500  # of a number that is just no longer than the library takes
VALUES = {
    "deep": b"[" * 1_500,
    "deep objects": b'{"a":' * 600,
    "deep and closed": b"[" * 1_500 + b"]" * 1_500,
    "deeper than we bear": b"[" * 300 + b"]" * 300,
    "objects deeper than we bear": b'{"a":' * 300 + b"0" + b"}" * 300,
    "no UTF-8": b'"\xff\xfe"',
    "half a sequence": b'"\xc3"',
    "half a character as bytes": b'"\xed\xa0\x80"',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "cut off": b'{"a":"',
    "no word": b"nil",
    "two values": b"1 2",
    "nothing": b"",
}
# what the library takes: whoever reads it has to tell himself that it is nothing of his
TAKEN = {
    "half a character": b'"\\ud800"',
    "half a character in a key": b'{"\\udfff":"\\ud800"}',
    "a number that is none": b"NaN",
    "without end": b"-Infinity",
    "more than a float": b"1e999",
    "a long number": DIGITS,
    "a long number in a text": b'"' + DIGITS + b'"',
    "a long number for a key": b'{"' + DIGITS + b'":[1]}',
    "a number for a key that is too long for one": b'{"' + b"9" * 5_000 + b'":[1]}',
    "null": b"null",
    "a list": b"[]",
    "an object": b"{}",
    "a text": b'"x"',
    "signs that are no ASCII": '"\u00e9\u0663"'.encode(),
}
VALUE = b"VALUE"


class At:
    """What a place needs to be reached."""

    def __init__(self, node: TestNode) -> None:
        self.node = node

    @contextlib.asynccontextmanager
    async def answering(self, said: bytes) -> AsyncIterator[int]:
        """A machine that hears something by TLS, says that and ends."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                await reader.read(1)
                writer.write(said)
                await writer.drain()
            writer.close()

        tls = server_tls(self.node.certificate, self.node.private)
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        yield server.sockets[0].getsockname()[1]
        server.close()


# --- formats and cores: bytes in; whether they were taken

KEY = SigningKey(bytes(32))
CLUSTER = bytes(range(16))


def name_node(text: bytes, at: At) -> bool:
    said = webhdfs.parse_refusal(500, "Server Error", text)
    assert said.status == 500 and said.message
    return bool(webhdfs.parse_status(text) or webhdfs.parse_list(text) or webhdfs.parse_done(text))


def shipped_keys(text: bytes, at: At) -> bool:
    assert manifest.claimed_cluster(text) is None
    with pytest.raises(FormatError):
        manifest.parse_head(b"{}\n" + text.replace(b"\n", b"") + b"\n", [KEY.public])
    return bool(manifest.parse_keys(text))


def update(text: bytes, at: At) -> bool:
    text = text[:4096]
    signed = update_bundle._HEAD.pack(update_bundle._MAGIC, len(text)) + text
    found, _ = update_bundle.parse_head(signed + KEY.sign(CONTEXT_UPDATE, signed), KEY.public)
    return bool(found)


def label(text: bytes, at: At) -> bool:
    size = min(len(text), volume_label.TEXT_SIZE_MAX)
    head = volume_label._HEAD.pack(b"", volume_label.MAGIC, volume_label.VERSION, size)
    tail = (head[32:] + text[:size]).ljust(volume_label.LABEL_SIZE - 32, b"\0")
    found = volume_label.decode_label(blake2b_256(tail) + tail)
    return found is not None


def directory(text: bytes, at: At) -> bool:
    return bool(open_directory(text, cluster="farm", offline=KEY.public, version_least=0))


def document(text: bytes, at: At) -> bool:
    """Posted by a member of the farm, and then all that each member makes of it."""
    found = Directory("farm")
    for index in (1, 2):
        found.take(index, Entry(1, APPLICATION, text))
    data = found.snapshot()
    assert snapshot_fits(data)
    again = Directory("farm")
    assert again.restore(2, 1, data)
    assert again.snapshot() == data
    sign_directory(KEY, again.content(), sign_delegation(KEY, "farm", {1: KEY.public}))
    json.dumps(plain(again.view()))
    publisher._carried(text)
    return found.skipped == 0


def snapshot(text: bytes, at: At) -> bool:
    """Of a farm's leader, with a digest that fits: what is taken is of another make."""
    rest = text + b"\n"
    head = {"farm-snapshot": 1, "sha256": hashlib.sha256(rest).hexdigest()}
    for data in (rest, json.dumps(head).encode() + b"\n" + rest):
        taken = snapshot_fits(data)
        assert not taken or not Directory("farm").restore(1, 1, data)
    return taken


def invitation(text: bytes, at: At) -> bool:
    return bool(parse_code(base64.urlsafe_b64encode(text).decode()[:1000]))


def guest(text: bytes, at: At) -> bool:
    key, nonce = bytes(32), bytes(12)
    sealed = nonce + AESGCM(key).encrypt(nonce, text, b"node7")
    return unseal(key, {"id": 7, "sealed": base64.b64encode(sealed).decode()}) is not None


def tables(text: bytes, at: At) -> bool:
    return bool(ledger.decode(text, "hdfs://x/ledger"))


# --- processes of a node


async def status_answer(text: bytes, at: At) -> bool:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = told(LOCAL_STATUS, cluster=CLUSTER, shard=0, body=text)
        writer.write(Signer(sender=SENDER_CLIENT, key=None).frame(header, text))
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(serve, "shard-0"):
        found = await asyncio.to_thread(
            ask_status, Path(), cluster=CLUSTER, shard=0, timeout_s=HUNG_S
        )
    assert found is None or isinstance(found, dict)
    return found is not None


class Owner:
    """Of what is attached to a replica: as the real one, but it needs no ring and no log."""

    def __init__(self, on_message: Callable[[Any, Any], None]) -> None:
        self.on_message = on_message
        self.attached, self.detached = asyncio.Event(), asyncio.Event()

    def on_attached(self, link: Any, attached: Any, ring: Any) -> None:
        self.attached.set()

    def on_batch(self, link: Any) -> None: ...

    def on_detached(self, link: Any) -> None:
        self.detached.set()


async def told_by_replica(text: bytes, on_message: Callable[[Any, Any], None]) -> bool:
    """Whether the link stands after that came as a status."""
    ring_fd, _ = make_ring(4096)
    counters: Counter[str] = Counter()
    common: dict[str, Any] = {"cluster": CLUSTER, "shard": 0, "message_size_max": 1 << 20}
    common |= {"counters": counters, "drops": Counter()}
    server = LocalServer(
        Heard(), sender=0, ring_fd=ring_fd, attachment=lambda: attachment(4096), **common
    )
    await server.start(Path("shard-0"))
    heard = asyncio.Event()

    def hears(link: Any, message: Any) -> None:
        try:
            on_message(link, message)
        finally:
            heard.set()

    owner = Owner(hears)
    link = LocalLink(owner, Path("shard-0"), replica=0, attach=True, prng=Prng(1), **common)
    link.start()
    await owner.attached.wait()
    while not server.attached_count():  # noqa: ASYNC110
        await asyncio.sleep(0)
    header = told(LOCAL_STATUS, cluster=CLUSTER, shard=0, body=text)
    server._attached[0].send(server.signer.frame(header, text))
    await heard.wait()
    stands = link.connected
    if not stands:
        await owner.detached.wait()
        assert counters["closed_malformed"] == 1
        owner.attached.clear()
        await owner.attached.wait()  # it is dialled again
    await link.close()
    await server.close()
    os.close(ring_fd)
    return stands


async def status_to_edge(text: bytes, at: At) -> bool:
    edge: Any = SimpleNamespace(on_replica_status=lambda shard, why, since_us: None)
    site: Any = SimpleNamespace(shards=[None])
    groups = SiteWatch(Path("site.toml"), SiteView(site))
    nobody: Any = None
    attached = Local(ReplicaFeed(nobody, lambda: None, 0, bytes(16)), edge, groups.on_status)
    return await told_by_replica(text, attached.on_message)


async def status_to_session(text: bytes, at: At) -> bool:
    session = SimpleNamespace(source=SimpleNamespace(), _on_status=lambda status: None)
    hears: Any = LogSession.on_message
    return await told_by_replica(text, lambda link, message: hears(session, link, message))


async def objects(text: bytes, at: At) -> bool:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = told(LOCAL_OBJECTS, cluster=CLUSTER, shard=0, body=text)
        writer.write(Signer(sender=SENDER_CLIENT, key=None).frame(header, text))
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    again = asyncio.Event()
    gone: list[int] = []

    def on_detached() -> None:
        gone.append(1)
        if len(gone) == 2:
            again.set()

    user = SimpleNamespace(
        on_attached=lambda: None,
        on_detached=on_detached,
        on_answer=lambda number, answer: None,
        on_changes=lambda changes: None,
    )
    async with await asyncio.start_unix_server(serve, "objects"):
        link = ObjectsLink(
            Path("objects"), user, cluster=CLUSTER, on_live=lambda said: None, wake=lambda: None
        )
        link.start()
        await again.wait()
        assert link._task is not None and not link._task.done()
        await link.close()
    return True


async def object_command(text: bytes, at: At) -> bool:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = decode(await reader.readexactly(HEADER_SIZE))
        assert asked is not None
        for header in (answer(asked, LOCAL_OBJECTS, body=text), told_unasked):
            writer.write(Signer(sender=SENDER_CLIENT, key=None).frame(header, text))
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    told_unasked = told(LOCAL_OBJECTS, cluster=CLUSTER, shard=0, body=text)

    def run() -> None:
        for verb, words in ((show, ["room", "lobby"]), (watch, ["--count", "1"])):
            arguments = ["--node-folder", ".", *words]
            with contextlib.suppress(ApplianceError), contextlib.redirect_stdout(io.StringIO()):
                verb.main(arguments, standalone_mode=False)

    async with await asyncio.start_unix_server(serve, "sockets/objects"):
        await asyncio.to_thread(run)
    return True


def child(text: bytes, at: At) -> bool:
    """It tells its supervisor how it was tuned."""
    supervisor = Supervisor([Child("edge", ["true"], 0)], report=print)
    kept = supervisor._kept[0]
    kept.process = SimpleNamespace(pid=os.getpid())  # type: ignore[assignment]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect("\0" + supervisor._listener.address[1:])
        sender.send(REFUSED.encode() + text[:4000] + b"\nSTATUS=heard")
    supervisor._on_notification()
    assert kept.status == "heard" or b"\n" in text
    json.dumps(plain(supervisor.status()))
    supervisor._listener.close()
    return bool(kept.refused)


# --- other machines


async def founder(text: bytes, at: At) -> bool:
    async with at.answering(text + b"\n") as port:
        code = JoinCode("127.0.0.1", port, bytes(16), at.node.spki, bytes(16))
        return bool(await ask_to_join(code, {"name": "m1"}))


async def farm_by_code(text: bytes, at: At) -> bool:
    async with at.answering(b"HTTP/1.1 200 OK\r\n\r\n" + text) as port:
        code = Code("farm", f"tcp://127.0.0.1:{port}", at.node.spki, "00" * 16)
        with tempfile.TemporaryDirectory() as folder:
            return bool(await join(code, Path(folder), "tcp://127.0.0.1:1"))


async def participant(text: bytes, at: At) -> bool:
    """Of a channel by itself: every command has its answer, and the stream goes on."""
    attached = Attached()
    made = attached.participant = Participant(
        name="p", channel="c", parameters=Parameters(), store=MemoryStore(), seed=1,
        send=attached.send,
    )  # fmt: skip
    async with await asyncio.start_server(attached.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = []
        for command in (text, b'{"command":"log","id":"end"}'):
            writer.write(frame(COMMAND, command))
            answer = {"event": ""}
            while "event" in answer:
                size = int.from_bytes(await reader.readexactly(4), "big")
                body = await reader.readexactly(size)
                answer = parse_json(body[1:]) if body[0] == ANSWER else answer
            answers.append(answer)
        assert answers[1]["reply"] == "log" and answers[1]["id"] == "end"
        writer.close()
        while attached.writers:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    made.close()
    return bool(answers[0]["reply"] != "error")


STATUS = (
    b'{"cluster":"farm","date":1700000000000,"id":1,"meta":{"lastPublishedLS":%b},'
    b'"destinations":[%b],"router":{"uptime":%b}}'
)
CONFIG = b'{"cluster":"farm","date":1700000000000,"id":1,"config":%b}'
GUEST = b'{"id":7,"endpoint":%b,"pin":"","sealed":%b}'
DIRECTORY = b'{"content":%b,"delegation":%b,"signature":%b}'
CONTENT = b'{"cluster":"farm","publisher":1,"version":%b}'
DELEGATION = b'{"cluster":"farm","keys":{"1":""},"signature":""}'
WELL = (
    b'{"status":"normal","state_ready":true,"commit_min":1,"commit_max":%b,'
    b'"stale_ms":0,"oldest_segment":%b}'
)

# name -> the real code that reads it, and texts in which a value stands at some place
PLACES: dict[str, tuple[Callable[[bytes, At], Any], list[bytes]]] = {
    "name node": (name_node, [b'{"RemoteException":VALUE}',
        b'{"RemoteException":{"exception":VALUE,"message":VALUE}}', b'{"FileStatus":VALUE}']),
    "keys of shipping": (shipped_keys, [b'{"format":1,"keys":VALUE}', b'{"signer":VALUE}']),
    "update": (update, [b'{"version":VALUE}']),
    "label": (label, [b'{"id":VALUE}']),
    "signed directory": (directory, [
        DIRECTORY % (VALUE, DELEGATION, b'""'), DIRECTORY % (CONTENT % VALUE, DELEGATION, b'""'),
        DIRECTORY % (CONTENT % b'1,"x":VALUE', DELEGATION, b'""'),
        DIRECTORY % (CONTENT % b"1", VALUE, b'""'),
        DIRECTORY % (CONTENT % b"1", DELEGATION, VALUE)]),
    "document": (document, [
        STATUS % (VALUE, b"", b"1"), STATUS % (b'""', VALUE, b"1"), STATUS % (b'""', b"", VALUE),
        STATUS % (b'""', b'{"destination":VALUE,"address":"a","shard":0}', b"1"),
        STATUS % (b'""', b'{"destination":"d","address":VALUE,"shard":0}', b"1"),
        STATUS % (b'""', b'{"destination":"d","address":"a","shard":VALUE}', b"1"),
        CONFIG % VALUE, CONFIG % b'{"exclude":[VALUE]}', CONFIG % b'{"placement":VALUE}',
        CONFIG % b'{"placement":{},"placing":VALUE}',
        CONFIG % b'{"departed":[VALUE]}', CONFIG % b'{"period_ms":VALUE}',
        CONFIG % (b'{"admit":%b}' % (GUEST % (VALUE, b'""'))),
        CONFIG % (b'{"admit":%b}' % (GUEST % (b'""', VALUE))),
        b'{"cluster":VALUE,"date":1,"id":1}', b'{"cluster":"farm","date":VALUE,"id":1}',
        b'{"cluster":"farm","date":1,"id":VALUE}']),
    "snapshot": (snapshot, [b'{"farm-snapshot":VALUE}']),
    "invitation": (invitation, [b'["farm",VALUE,"",""]', b'[VALUE,"tcp://a:1","",""]',
        b'["farm","tcp://a:1",VALUE,""]', b'["farm","tcp://a:1","",VALUE]']),
    "guest": (guest, [b'{"SHA-256":VALUE}']),
    "ledger": (tables, [b'{"format":VALUE}']),
    "status": (status_answer, [b'{"a":VALUE}']),
    "status to edge": (status_to_edge, [WELL % (b"1", VALUE)]),
    "status to session": (status_to_session, [WELL % (b"1", VALUE)]),
    "objects": (objects, [b'{"n":0,"a":VALUE}']),
    "object command": (object_command, [b'{"changes":[],"a":VALUE}']),
    "child": (child, [b'{"affinity":VALUE}']),
    "founder": (founder, [b'{"error":VALUE}', b'{"row":VALUE}']),
    "farm by code": (farm_by_code, [b'{"farm":VALUE,"password":"p","id":1}',
        b'{"farm":{},"password":VALUE,"id":1}', b'{"farm":{},"password":"p","id":VALUE}']),
    "participant": (participant, [
        b'{"command":VALUE}', b'{"command":"send","text":VALUE}', b'{"command":"log","id":VALUE}',
        b'{"command":"send","content":VALUE}', b'{"command":"retrieve","ids":[VALUE]}',
        b'{"command":"send","text":"x","ephemeral":VALUE}']),
}  # fmt: skip
# they tell nothing, serve it on, or have replaced what is no UTF-8
TAKES_ANYTHING = {"objects", "object command", "snapshot", "child"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> TestNode:
    return make_node(tmp_path_factory.mktemp("node"), 0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A socket's name has 107 bytes at most. What is dialled again is so at once."""
    monkeypatch.setattr(objects_link, "_AGAIN_S", 0.001)
    monkeypatch.setattr(local, "DIAL_BACKOFF_MS_MIN", 1)
    here = os.getcwd()
    os.chdir(tmp_path)
    os.mkdir("sockets")
    (made,) = site_of(tmp_path / "made", [1])
    Path(SITE_FILE).write_text(encode_site(dataclasses.replace(made.site, cluster=CLUSTER)))
    yield
    os.chdir(here)


@pytest.mark.parametrize("name", PLACES)
def test_text_of_others_is_taken_or_refused_and_never_another_error(
    name: str, node: TestNode
) -> None:
    place, templates = PLACES[name]
    at = At(node)
    told: list[str] = []
    wrong: list[str] = []

    async def tried(text: bytes) -> bool:
        try:
            found = place(text, at)
            return bool(await found if inspect.isawaitable(found) else found)
        except ApplianceError:
            return False

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(str(context)))
        async with within(HUNG_S):
            for what, value in (VALUES | TAKEN).items():
                for template in [VALUE, *templates]:
                    if not value and b"[VALUE]" in template:
                        continue  # a list of nothing is one
                    text = template.replace(VALUE, value)
                    taken = await tried(text)
                    if taken and what in VALUES and name not in TAKES_ANYTHING:
                        wrong.append(f"{what} in {template.decode()}")
        gc.collect()  # a task whose error nobody asked for tells it when it is freed
        await asyncio.sleep(0)

    uvloop.run(story())
    assert (wrong, told) == ([], [])
