"""The chat page when a node, an acknowledgement, a page or a token is lost: what was said is stored
once, in order."""

import json
import re
from typing import Any

from tests.web.rooms_of_page import beside, room_name, stored
from tests.web.site import LiveSite, wait_for
from tests.web.window import Window, Windows, expect, without_webtransport


def test_a_killed_node_costs_neither_message_nor_order(window: Windows, site: LiveSite) -> None:
    room = room_name("kill")
    alice = window("alice", node=0)
    alice.create(room)
    bob = beside(window, room, node=1)
    alice.write("before the kill")
    bob.wait_text("before the kill")
    site.kill(0)
    for i in range(10):
        alice.write(f"alice {i}")
        bob.write(f"bob {i}")
    alice.wait_live()
    assert alice.node != 0
    for each in (alice, bob):
        for who in ("alice", "bob"):
            each.wait_text(f"{who} 9")
    wait_for(lambda: alice.texts("pending") == [], "all of alice acknowledged")
    messages = stored(site, room)
    bodies = [message.body for message in messages[1:]]
    assert sorted(bodies) == sorted(
        ["before the kill"] + [f"{who} {i}" for who in ("alice", "bob") for i in range(10)]
    )
    for who in ("alice", "bob"):
        assert [body for body in bodies if body.startswith(who)] == [
            f"{who} {i}" for i in range(10)
        ]
    for each in (alice, bob):
        assert each.texts() == bodies
        assert each.ops() == [message.op for message in messages[1:]]


def test_a_killed_node_is_left_and_messages_wait_meanwhile(window: Windows, site: LiveSite) -> None:
    alice = window("alice", node=2)
    alice.create(room_name("leave"))
    site.kill(2)
    alice.write("written while nobody listens")
    alice.wait_text("written while nobody listens")
    assert alice.node in (0, 1)
    assert alice.texts().count("written while nobody listens") == 1


def test_without_any_node_messages_wait_and_a_return_sends_them_once(
    window: Windows, site: LiveSite
) -> None:
    room = room_name("dark")
    alice = window("alice", node=1)
    alice.create(room)
    alice.write("light")
    alice.wait_text("light")
    for node in range(3):
        site.kill(node)
    expect(alice.page.locator(".short-link")).to_be_visible()
    alice.write("one in the dark")
    alice.write("two in the dark")
    alice.wait_text("two in the dark", state="pending")
    assert alice.texts("pending") == ["one in the dark", "two in the dark"]
    expect(alice.page.locator(".connection .waiting")).to_have_text("2 messages wait")
    site.start()
    alice.wait_text("two in the dark")
    assert [message.body for message in stored(site, room)[1:]] == [
        "light",
        "one in the dark",
        "two in the dark",
    ]
    assert alice.texts("acknowledged") == ["light", "one in the dark", "two in the dark"]


class Wire:
    """Stands in the wire between page and node: notes what passes, and lets acks be lost. From the
    next load of the page on it speaks by WebSocket, into which can be looked.

    Frames pass while the test talks to the page, so waiting means asking the page something.
    """

    def __init__(self, window: Window) -> None:
        self.lose_acks = self.lose_sends = False
        self.sent: list[dict[str, Any]] = []
        self.acks: list[dict[str, Any]] = []
        self._sockets: list[Any] = []
        without_webtransport(window.page.context)
        window.page.route_web_socket(re.compile("/v1$"), self._on_socket)

    def _on_socket(self, page_side: object) -> None:
        node_side = page_side.connect_to_server()
        self._sockets.append(page_side)

        def to_node(text: str) -> None:
            frame = json.loads(text)
            if frame["type"] == "send_message":
                self.sent.append(frame)
                if self.lose_sends:
                    return
            node_side.send(text)

        def to_page(text: str) -> None:
            frame = json.loads(text)
            if frame["type"] == "message_ack":
                self.acks.append(frame)
            if not (self.lose_acks and frame["type"] in ("message_ack", "message_event")):
                page_side.send(text)

        page_side.on_message(to_node)
        node_side.on_message(to_page)

    def cut(self) -> None:
        self._sockets.pop().close(code=1001)


def test_a_lost_ack_is_asked_for_again_under_the_same_number(
    window: Windows, site: LiveSite
) -> None:
    room = room_name("ack")
    alice = window("alice")
    wire = Wire(alice)
    alice.page.reload()
    alice.wait_live()
    alice.create(room)
    alice.write("first")
    alice.wait_text("first")
    wire.lose_acks = True
    alice.write("second")
    wait_for(
        lambda: alice.texts("pending") == ["second"] and len(wire.acks) == 2,
        "the ack that gets lost",
    )
    wire.lose_acks = False
    wire.cut()
    alice.wait_text("second")
    first, again = [frame for frame in wire.sent if frame["body"] == "second"]
    assert first == again
    assert wire.acks[-1] == wire.acks[-2]
    assert [message.body for message in stored(site, room)[1:]] == ["first", "second"]
    assert alice.texts() == ["first", "second"]


def test_what_is_unsent_survives_a_reload(window: Windows, site: LiveSite) -> None:
    room = room_name("reload")
    alice = window("alice")
    wire = Wire(alice)
    alice.page.reload()
    alice.wait_live()
    alice.create(room)
    alice.write("sent")
    alice.wait_text("sent")
    wire.lose_sends = True
    alice.write("unsent")
    wait_for(
        lambda: alice.texts("pending") == ["unsent"] and wire.sent[-1]["body"] == "unsent",
        "the message to be on the wire",
    )
    wire.lose_sends = False
    alice.page.reload()
    alice.wait_live()
    alice.wait_text("unsent")
    numbers = [frame["client_seq"] for frame in wire.sent if frame["body"] == "unsent"]
    assert numbers == [2, 2]
    assert [message.body for message in stored(site, room)[1:]] == ["sent", "unsent"]


def test_a_duplicated_tab_is_another_device(window: Windows, site: LiveSite) -> None:
    room = room_name("twin")
    alice = window("alice")
    alice.create(room)
    alice.write("one")
    alice.wait_text("one")
    with alice.page.expect_popup() as popup:
        alice.page.evaluate("() => { window.open(location.href) }")
    twin = popup.value
    expect(twin.locator(".connection")).to_have_attribute("data-link", "live")
    expect(twin.locator(".title h2")).to_have_text(room)
    twin.locator("#message").fill("two")
    twin.keyboard.press("Enter")
    alice.wait_text("two")
    alice.write("three")
    alice.wait_text("three")
    messages = stored(site, room)[1:]
    assert [message.body for message in messages] == ["one", "two", "three"]
    assert messages[0].client_id == messages[2].client_id != messages[1].client_id


def test_an_expired_token_asks_to_sign_in_again_and_loses_nothing(
    window: Windows, site: LiveSite
) -> None:
    room = room_name("expire")
    alice = window("alice")
    alice.create(room)
    live = alice.page.locator(".connection[data-link=live]")
    asks = alice.page.get_by_label("Your token")
    for ttl_s in (2, 10, 50):  # a slow machine may need longer than that to become live at all
        alice.page.goto("about:blank")
        alice.page.goto(f"{site.chat_url(0)}#token={site.token('alice', ttl_s=ttl_s)}")
        expect(live.or_(asks)).to_be_visible()
        if live.is_visible():
            break
    else:
        raise AssertionError("not live within 50 s")
    expect(asks).to_be_visible()
    expect(alice.page.get_by_role("alert")).to_contain_text("expired")
    alice.page.get_by_label("Your token").fill(site.token("alice"))
    alice.page.keyboard.press("Enter")
    alice.wait_live()
    expect(alice.page.locator(".title h2")).to_have_text(room)
