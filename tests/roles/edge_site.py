"""Three nodes of a small site, replica and edge processes each, and chat clients that see every
frame."""

import os
import random
import socket
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.sync.client import ClientConnection, connect

from appliance.drivers.chat.access import local_token
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, open_node
from appliance.drivers.network.ask import ask_status
from appliance.drivers.network.metrics import Said, exposition
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.frame import (
    SUBPROTOCOL_BINARY,
    SUBPROTOCOL_JSON,
    Frame,
    encode_binary,
    encode_json,
)
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.rooms import CreateRoom, RoomAnswer
from appliance.formats.client.sending import MessageAck, SendMessage
from appliance.formats.client.sign_in import Hello, Welcome
from appliance.formats.client.subscribing import MessageEvent, Subscribed, SubscribeRoom
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.status import parse
from tests import forked
from tests.patience import HUNG_S
from tests.roles.replica_group import REPO, Group

HURRIED = {"appliance.drivers.host.service.HEARTBEAT_S": 0.3}
RIGHTS = {"*": ["read", "send", "moderate"]}


def until(condition: Callable[[], object], what: str | Callable[[], str]) -> None:
    """Wait until something holds; an assertion fails when it does not in time."""
    deadline = time.monotonic() + HUNG_S
    while not condition():
        assert time.monotonic() < deadline, f"not yet: {what if isinstance(what, str) else what()}"
        time.sleep(0.02)


class EdgeSite(Group):
    """A group of replicas with an edge beside each; `settings` go into every node.toml. What edges
    do each second, `hurried` ones do several times a second."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int,
        ports: int,
        geometry: str = "production",
        hurried: bool = False,
        **settings: int | bool | str,
    ) -> None:
        super().__init__(folder, nodes=nodes, ports=ports, geometry=geometry)
        self.constants = HURRIED if hurried else forked.NO_CONSTANTS
        self.edges: dict[int, forked.Started] = {}
        for index in range(nodes):
            (self.node(index) / SETTINGS_FILE).write_text(encode_settings(index, **settings))
        self.tls = bool(settings.get("client_tls", True))
        self.ports = [open_node(self.node(index)).node.client_port for index in range(nodes)]

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.edges.values():
            process.kill()
            process.wait()
            with process.stderr as said:
                print(said.read())  # shown when a test failed
        super().__exit__(kind, error, trace)

    def start_edge(self, index: int, number: int = 0) -> None:
        """Process `number` of a node; those beyond the first stand behind the nodes in `edges`."""
        self.edges[index + self.count * number] = forked.start(
            ["start", "edge", "--node-folder", str(self.node(index)), "--number", str(number)],
            environment={**os.environ, "PYTHONPATH": str(REPO)},
            constants=self.constants,
        )

    def stop_edge(self, index: int) -> tuple[int, str]:
        """SIGTERM; exit code and what it said."""
        process = self.edges.pop(index)
        process.terminate()
        code = process.wait(HUNG_S)
        with process.stderr as said:
            return code, said.read()

    def start_all(self) -> None:
        """Replicas and edges side by side: an edge serves once its replica does."""
        for index in range(self.count):
            self.start(index)
            self.start_edge(index)
        for index in range(self.count):
            self.wait_serving(index)

    def wait_serving(self, index: int) -> None:
        """Until the edge says that it serves."""
        until(
            lambda: self.get(index, "/healthz")[0] == 200,
            lambda: f"edge {index}: {self.get(index, '/healthz')[:2]}, {self.status(index)}",
        )

    def get(self, index: int, path: str) -> tuple[int, str, dict[str, Any]]:
        """Status, text and headers of a page; 0 when nobody answers."""
        url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.ports[index]}{path}"
        try:
            with urllib.request.urlopen(
                url, timeout=60, context=insecure() if self.tls else None
            ) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), dict(error.headers)
        except OSError:
            return 0, "", {}

    def edge_status(self, index: int) -> dict[str, Any] | None:
        """What the edge says of itself to operators; None when it does not answer."""
        node = open_node(self.node(index))
        return ask_status(
            node.path / SOCKETS_FOLDER,
            cluster=node.site.cluster,
            shard=0,
            kind="edge",
            timeout_s=HUNG_S,
        )

    def figures(self, index: int) -> bytes:
        """Those of an edge, as Prometheus would read them."""
        raw = self.edge_status(index)
        status = None if raw is None else parse(EdgeStatus, raw)
        return exposition([Said(EdgeStatus.kind, index, 0, status)])

    def metric(self, name: str, index: int) -> float:
        """One figure of an edge, as Prometheus would read it; 0 when it is not there."""
        text = self.figures(index).decode()
        for line in text.splitlines():
            labels = f'node="{index}",number="0"'
            plain = line.replace("{" + labels + "}", "").replace("," + labels, "")
            plain = plain.replace(labels + ",", "")
            if plain.rpartition(" ")[0] == name:
                return float(plain.rpartition(" ")[2])
        return 0.0

    def chat(
        self,
        index: int,
        *,
        binary: bool = True,
        user: str = "anna",
        device: int | None = None,
        token: str | None = None,
    ) -> "Chat":
        return Chat(self, index, binary=binary, user=user, device=device, token=token)

    def token(
        self, user: str = "anna", rights: dict[str, Any] | None = None, ttl_s: int = 3600
    ) -> str:
        return local_token(self.folder, user, rights or RIGHTS, ttl_s)

    def raw(self, index: int) -> socket.socket:
        """A bare connection, TLS if the site has it."""
        sock = socket.create_connection(("127.0.0.1", self.ports[index]), 5)
        return insecure().wrap_socket(sock) if self.tls else sock


def insecure() -> ssl.SSLContext:
    """TLS that trusts anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Chat:
    """A chat client that has said hello."""

    def __init__(
        self,
        site: EdgeSite,
        index: int,
        *,
        binary: bool,
        user: str,
        device: int | None,
        token: str | None,
    ) -> None:
        self.binary = binary
        self.device = uuid.UUID(int=device or random.SystemRandom().getrandbits(128))
        self.socket = dial(site, index, binary)
        self.frames: list[Any] = []
        self.send(Hello(token=token or site.token(user), client_id=self.device))
        self.welcome = self.next(Welcome)

    def __enter__(self) -> "Chat":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *frames: Frame) -> None:
        if self.binary:
            self.socket.send(encode_binary(*frames))
        else:
            for frame in frames:
                self.socket.send(encode_json(frame).decode())

    def next(self, of: type, timeout_s: float = HUNG_S) -> Frame:
        """The next frame of a class; those of others stay for later."""
        deadline = time.monotonic() + timeout_s
        while True:
            for i, frame in enumerate(self.frames):
                if type(frame) is of:
                    return self.frames.pop(i)
                assert type(frame) is not ErrorFrame, frame
            data = self.socket.recv(timeout=max(0.01, deadline - time.monotonic()))
            self.frames += parse_binary_edge(data) if self.binary else [parse_json_edge(data)]

    def ask(self, frame: Frame, of: type) -> Frame:
        """The answer of a class; asked for again while the node cannot read for the moment, as
        during a view change, which a busy machine may bring at any time."""
        deadline = time.monotonic() + HUNG_S
        while True:
            self.send(frame)
            try:
                return self.next(of)
            except AssertionError as refused:
                answer = refused.args[0]
                if not getattr(answer, "temporary", False) or time.monotonic() > deadline:
                    raise
                self.frames.remove(answer)
                time.sleep(max(100, answer.retry_after or 0) / 1000)

    def follow(self, room: uuid.UUID, since_op: int = 0) -> None:
        """Subscribe; events come from `since_op` on."""
        self.ask(SubscribeRoom(room_id=room, since_op=since_op), Subscribed)

    def room(self, name: str) -> uuid.UUID:
        self.send(CreateRoom(name=name))
        return self.next(RoomAnswer).room_id

    def say(self, room: uuid.UUID, first: int, count: int, body: str = "hello") -> list[int]:
        """Ops of `count` messages, once all are acknowledged."""
        self.send(
            *[
                SendMessage(room_id=room, client_seq=seq, body=body)
                for seq in range(first, first + count)
            ]
        )
        acks = {}
        while len(acks) < count:
            ack = self.next(MessageAck)
            acks[ack.client_seq] = ack.op
        return [acks[seq] for seq in range(first, first + count)]

    def ops(self, count: int) -> list[int]:
        """Ops of the next events."""
        return [self.next(MessageEvent).op for _ in range(count)]


def dial(site: EdgeSite, index: int, binary: bool) -> ClientConnection:
    scheme = "wss" if site.tls else "ws"
    return connect(
        f"{scheme}://127.0.0.1:{site.ports[index]}/v1",
        ssl=insecure() if site.tls else None,
        subprotocols=[SUBPROTOCOL_BINARY if binary else SUBPROTOCOL_JSON],
        compression=None,
        max_queue=None,
        legacy=True,
    )


def held_by(pid: int) -> int:
    """Bytes of a process in memory, but those of shared memory."""
    rows = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(rows[name].split()[0]) << 10 for name in ("RssAnon", "RssFile"))
