"""Three nodes under load: a key is rotated and a user's tokens are taken back, and nobody else
loses a connection."""

import json
import threading
from collections.abc import Iterator

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from websockets.exceptions import ConnectionClosed, WebSocketException

from appliance.commands.token import command
from appliance.drivers.chat.token import key_id, sign
from appliance.drivers.host.node_folder import open_node
from appliance.formats.client.connection import ErrorFrame
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import encode_json
from appliance.formats.client.parse import parse_json_edge
from appliance.formats.client.sign_in import Hello, Welcome
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.removal import folder_on_disk
from tests.roles.edge_site import RIGHTS, Chat, EdgeSite, dial, until

NODES = range(3)
NEW_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(7, 39)))


@pytest.fixture
def site(free_ports: FreePorts) -> Iterator[EdgeSite]:
    ports = next(port for port in free_ports(310) if port % 10 == 0)
    with folder_on_disk() as place:
        folder = place / "a"
        with EdgeSite(folder, nodes=3, ports=ports, geometry="small", hurried=True) as made:
            made.start_all()
            yield made


def new_token(site: EdgeSite, user: str) -> str:
    """By the new key."""
    told = open_node(site.node(0)).site
    return sign(
        NEW_KEY,
        issuer=told.token_issuer,
        audience=told.token_audience,
        user=user,
        rights=RIGHTS,
        ttl_s=3600,
    )


def refusal(site: EdgeSite, node: int, token: str) -> str:
    """The error that a hello with it is answered with; empty: it is welcome."""
    with dial(site, node, False) as chat:
        hello = Hello(token=token, client_id=id_of(b"c" * 16))
        chat.send(encode_json(hello).decode())
        frame = parse_json_edge(chat.recv(timeout=HUNG_S))
        return "" if type(frame) is Welcome else str(frame.name)  # type: ignore[attr-defined]


def set_keys(site: EdgeSite, keys: list[dict[str, str]]) -> None:
    for node in NODES:
        (site.node(node) / "jwks.json").write_text(json.dumps({"keys": keys}))


def left_with(chat: Chat) -> str:
    """Why the node ended this connection."""
    error = chat.next(ErrorFrame)
    assert isinstance(error, ErrorFrame)
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            chat.socket.recv(timeout=HUNG_S)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4003
    return error.name


class Sender:
    """Says one message after the other on one connection, until it is told to stop."""

    def __init__(self, chat: Chat, name: str) -> None:
        self.said, self.failure = 0, ""
        self._chat, self._name, self._ended = chat, name, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            room = self._chat.room(self._name)
            while not self._ended.is_set():
                self._chat.say(room, self.said + 1, 1)
                self.said += 1
        except (AssertionError, OSError, WebSocketException) as error:
            self.failure = repr(error)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def test_only_who_is_meant_loses_a_connection(site: EdgeSite) -> None:
    (old,) = json.loads((site.node(0) / "jwks.json").read_text())["keys"]
    raw = NEW_KEY.public_key().public_bytes_raw()
    x = jwt.utils.base64url_encode(raw).decode()
    new = {"kty": "OKP", "crv": "Ed25519", "kid": key_id(NEW_KEY), "x": x}
    set_keys(site, [old, new])
    for node in NODES:
        until(lambda node=node: not refusal(site, node, new_token(site, "kept")), "the new key")
    taken = new_token(site, "gone")
    senders = [
        Sender(site.chat(node, token=new_token(site, f"kept-{node}")), f"load-{node}")
        for node in NODES
    ]
    before = [site.chat(node, user="late") for node in NODES]  # by the old key
    meant = [site.chat(node, token=taken) for node in NODES]
    set_keys(site, [new])
    assert [left_with(chat) for chat in before] == ["token_key_unknown"] * 3
    arguments = ["revoke", "--user", "gone", "--node-folder", str(site.node(1))]
    command.main(arguments, standalone_mode=False)
    assert [left_with(chat) for chat in meant] == ["token_revoked"] * 3
    assert [refusal(site, node, taken) for node in NODES] == ["token_revoked"] * 3
    for sender in senders:
        count = sender.said
        until(lambda sender=sender, count=count: sender.said > count + 5 or sender.failure, "more")
        sender.stop()
    assert [sender.failure for sender in senders] == [""] * 3
    site.stop_edge(2)
    site.start_edge(2)
    site.wait_serving(2)
    until(lambda: refusal(site, 2, taken) == "token_revoked", "what was said before it began")
    assert not refusal(site, 2, new_token(site, "kept"))
