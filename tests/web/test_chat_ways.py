"""By which way the chat page speaks to a node, where some are let through and others not."""

import pytest
from playwright.sync_api import BrowserContext, Route

from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_status
from tests.patience import HUNG_S
from tests.web.site import LiveSite, wait_for
from tests.web.window import Window, Windows, expect, without_webtransport

pytestmark = pytest.mark.browser


def transports(site: LiveSite, node: int) -> dict[str, int]:
    """How many conversations a node has now, by what carries them."""
    sockets = site.folder / f"node-{node}" / SOCKETS_FOLDER
    status = ask_status(sockets, cluster=site.site.cluster, shard=0, kind="edge", timeout_s=HUNG_S)
    assert status is not None
    return dict(status["connections_by_transport"])


def is_carried_by(window: Window, words: str) -> None:
    """It says so where it names the node."""
    window.wait_live()
    expect(window.page.locator(".connection .carrier")).to_have_text(f"Carried by {words}.")


def test_the_page_speaks_webtransport_types_in_datagrams_and_goes_on_when_its_node_is_killed(
    window: Windows, site: LiveSite
) -> None:
    """A WebTransport, that is: the browser believes the certificate for its digest."""
    anna = window("anna")
    is_carried_by(anna, "WebTransport")
    assert transports(site, 0)["webtransport"] >= 1
    anna.create("by-webtransport")
    anna.write("on a stream")
    anna.wait_text("on a stream")
    bert = window("bert", node=1)
    is_carried_by(bert, "WebTransport")
    bert.open("by-webtransport")
    bert.wait_text("on a stream")
    anna.page.locator("#message").press_sequentially("some words")
    expect(bert.page.locator("p.typing")).to_contain_text("anna")
    anna.write("typed")
    bert.wait_text("typed")

    site.kill(0)
    anna.write("while the node is gone")
    bert.wait_text("while the node is gone")
    anna.wait_text("while the node is gone")
    is_carried_by(anna, "WebTransport")
    assert anna.texts() == bert.texts() == ["on a stream", "typed", "while the node is gone"]
    node = bert.node
    there = transports(site, node)["webtransport"]
    bert.page.goto("about:blank")
    wait_for(
        lambda: transports(site, node)["webtransport"] < there, "the node to hear that he left"
    )


def no_quic(context: BrowserContext) -> None:
    """As where what answers by QUIC is not the node: the browser lets the page hear nothing."""
    told = {"path": "/v1/tigerchat.v1.json", "certificate_hashes": ["00" * 32]}
    context.route("**/v1/webtransport", lambda route: route.fulfill(json=told))


def no_socket(context: BrowserContext) -> None:
    """As where something on the way takes each WebSocket and ends it."""
    without_webtransport(context)
    context.route_web_socket("**/*", lambda socket: socket.close())


def no_stream(context: BrowserContext) -> None:
    """As where something on the way waits for the end of each answer before it passes it on."""
    context.add_init_script(
        "const ask = fetch; globalThis.fetch = (place, options) =>"
        " String(place).includes('/events') ? new Promise(() => {}) : ask(place, options)"
    )


def soon_deaf(context: BrowserContext) -> None:
    """Its pages wait for the first of a stream no longer than a test need last."""

    def answer(route: Route) -> None:
        told = route.fetch()
        text = told.text()
        assert STALL in text
        route.fulfill(response=told, body=text.replace(STALL, "STALL_MS_MAX = 1000"))

    context.route("**/by_requests.js", answer)


STALL = "STALL_MS_MAX = 4000"


def test_where_there_is_no_webtransport_the_page_speaks_by_websocket(window: Windows) -> None:
    is_carried_by(window("anna", prepare=no_quic), "WebSocket")
    is_carried_by(window("bert", prepare=without_webtransport), "WebSocket")


def test_where_nothing_but_requests_gets_through_two_pages_chat_by_them(
    window: Windows, site: LiveSite
) -> None:
    """The one hears by a stream of events, the other, whose streams do not come, by polls."""
    anna = window("anna", prepare=no_socket)
    is_carried_by(anna, "requests and a stream of events")
    anna.create("by-requests")
    anna.write("by a POST")
    anna.wait_text("by a POST")

    def neither(context: BrowserContext) -> None:
        no_socket(context)
        no_stream(context)
        soon_deaf(context)

    bert = window("bert", node=1, prepare=neither)
    is_carried_by(bert, "requests")
    bert.open("by-requests")
    bert.wait_text("by a POST")
    for number in range(3):
        bert.write(f"answer {number}")
    anna.wait_text("answer 2")
    assert transports(site, 0).get("events")
    assert any(transports(site, node).get("long_poll") for node in range(3))
    site.kill(0)
    anna.write("from another node")
    bert.wait_text("from another node")
    answers = [f"answer {number}" for number in range(3)]
    for each in (anna, bert):
        each.wait_text("from another node")
        assert each.texts() == ["by a POST", *answers, "from another node"]
