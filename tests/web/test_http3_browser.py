"""A browser that speaks HTTP/3 alone to a node: the page, its WebSocket, and WebTransport with
datagrams."""

import base64
import hashlib
import json
import ssl
import uuid
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from playwright.sync_api import Browser

from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_status
from appliance.formats.client.fields import id_of
from appliance.formats.client.frame import SUBPROTOCOL_JSON, Frame, encode_json
from appliance.formats.client.objects import Typing
from appliance.formats.client.sign_in import Hello
from appliance.formats.room_name import room_id_of
from tests.patience import HUNG_S
from tests.web.conftest import ARGUMENTS, Chromium
from tests.web.site import LiveSite, wait_for
from tests.web.window import Window, expect, without_webtransport

HOW = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
OPEN = """
async url => {
  const session = new WebTransport(url);
  await session.ready;
  const stream = await session.createBidirectionalStream();
  const writer = stream.writable.getWriter();
  const unreliable = session.datagrams;
  const sent = unreliable.createWritable ? unreliable.createWritable() : unreliable.writable;
  const whispers = sent.getWriter();
  const heard = [];
  const listen = async () => {
    let inbox = new Uint8Array(0);
    const reader = stream.readable.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const joined = new Uint8Array(inbox.length + value.length);
      joined.set(inbox);
      joined.set(value, inbox.length);
      inbox = joined;
      while (inbox.length >= 4) {
        const size = new DataView(inbox.buffer).getUint32(0, true);
        if (inbox.length < 4 + size) break;
        heard.push(new TextDecoder().decode(inbox.subarray(4, 4 + size)));
        inbox = inbox.slice(4 + size);
      }
    }
  };
  listen().catch(() => {});
  window.way = {
    heard,
    say: text => {
      const data = new TextEncoder().encode(text);
      const framed = new Uint8Array(4 + data.length);
      new DataView(framed.buffer).setUint32(0, data.length, true);
      framed.set(data, 4);
      return writer.write(framed);
    },
    whisper: text => whispers.write(new TextEncoder().encode(text)),
    close: () => session.close(),
  };
}
"""


def key_digest(port: int) -> str:
    """Of the key that a node shows, as the browser wants it."""
    found = x509.load_pem_x509_certificate(ssl.get_server_certificate(("127.0.0.1", port)).encode())
    key = found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


@pytest.fixture
def on_quic(chromium: Chromium, site: LiveSite) -> Iterator[Browser]:
    """A browser that goes to each node by QUIC or not at all."""
    ports = [node.client_port for node in site.site.nodes]
    chromium.take_out()
    browser = chromium.launch(
        [
            *(argument for argument in ARGUMENTS if argument != "--disable-quic"),
            "--enable-quic",
            "--origin-to-force-quic-on=" + ",".join(f"127.0.0.1:{port}" for port in ports),
            "--ignore-certificate-errors-spki-list=" + ",".join(map(key_digest, ports)),
            "--webtransport-developer-mode",
            "--enable-features=EnableWebsocketsOverHttp3",
        ]
    )
    yield browser
    browser.close()
    chromium.put_away()


def transports(site: LiveSite, node: int) -> dict[str, int]:
    """How many conversations a node has now, by what carries them."""
    sockets = site.folder / f"node-{node}" / SOCKETS_FOLDER
    status = ask_status(sockets, cluster=site.site.cluster, shard=0, kind="edge", timeout_s=HUNG_S)
    assert status is not None
    return dict(status["connections_by_transport"])


def written(frame: Frame) -> str:
    return encode_json(frame).decode()


@pytest.mark.browser
def test_a_browser_chats_by_http3_and_types_in_datagrams(on_quic: Browser, site: LiveSite) -> None:
    alice = Window(on_quic, site, "alice", 0, without_webtransport)
    assert alice.page.evaluate(HOW) == "h3"
    wait_for(lambda: transports(site, 0).get("websocket_http3") == 1, "her WebSocket on HTTP/3")
    alice.create("over-http3")
    alice.write("over QUIC alone")
    alice.wait_text("over QUIC alone")

    bert = Window(on_quic, site, "bert", 0)  # a page of the node, in which another user is
    beside = bert.page
    address = f"{site.chat_url(0)}v1/{SUBPROTOCOL_JSON}"
    beside.evaluate(OPEN, address)
    hello = Hello(token=site.token("wanda"), client_id=uuid.uuid4())
    beside.evaluate("text => way.say(text)", written(hello))
    wait_for(lambda: beside.evaluate("way.heard.length") > 0, "the node answers her hello")
    assert json.loads(beside.evaluate("way.heard[0]"))["type"] == "welcome"
    opened = transports(site, 0)["webtransport"]
    assert opened > 0
    typing = Typing(room_id=id_of(room_id_of("over-http3")), request="mine")
    beside.evaluate("text => way.whisper(text)", written(typing))
    expect(alice.page.locator("p.typing")).to_contain_text("wanda")
    wait_for(lambda: beside.evaluate("way.heard.length") > 1, "the node answers what she types")
    assert json.loads(beside.evaluate("way.heard[1]"))["type"] == "object_ack"
    beside.evaluate("way.close()")
    wait_for(lambda: transports(site, 0)["webtransport"] < opened, "the session is over")
    assert alice.close() + bert.close() == []
