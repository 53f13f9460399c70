"""The chat page against a real site of three nodes, in headless Chromium."""

import asyncio
import itertools
import json
import re
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from appliance.drivers.chat.access import local_access
from appliance.drivers.chat.client import Client
from appliance.formats.client.fields import id_of
from appliance.formats.room_name import room_id_of
from tests.web.site import LiveSite, wait_for
from tests.web.window import Window, Windows, expect, without_webtransport

_numbers = itertools.count(1)


def room_name(what: str) -> str:
    return f"{what}-{next(_numbers)}"


def ask(question: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine beside the loop that drives the browser."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, question).result(60)


def fill_room(site: LiveSite, room: str, count: int) -> None:
    """Store `count` messages of another user, as fast as they are taken."""

    async def post() -> None:
        access = local_access(site.folder, "archivist")
        async with Client(access.endpoints, access.token) as client:
            made = await client.create_room(room)
            acks = [await client.post(made.room_id, f"entry {i}") for i in range(count)]
            await asyncio.gather(*acks)

    ask(post())


def stored(site: LiveSite, room: str) -> list[Any]:
    """What the log holds of a room, as another client reads it."""

    async def read() -> list[Any]:
        access = local_access(site.folder, "auditor")
        async with Client(access.endpoints, access.token) as client:
            room_id = id_of(room_id_of(room))
            chunk = await client.snapshot(room_id, limit=1000)
            return chunk.messages

    return ask(read())


def beside(window: Windows, room: str, *, node: int) -> Window:
    """Bob's, in a room that is there when he comes: a page asks for rooms every few seconds."""
    bob = window("bob", node=node)
    bob.open(room)
    return bob


def test_two_windows_chat_with_each_other(window: Windows) -> None:
    """In a room that the one makes while the other looks."""
    room = room_name("two")
    alice, bob = window("alice", node=0), window("bob", node=1)
    alice.create(room)
    bob.open(room)
    for i in range(5):
        alice.write(f"alice {i}")
        bob.wait_text(f"alice {i}")
        bob.write(f"bob {i}")
        alice.wait_text(f"bob {i}")
    expected = [f"{who} {i}" for i in range(5) for who in ("alice", "bob")]
    for each in (alice, bob):
        wait_for(lambda each=each: each.texts("acknowledged") == expected, "all acknowledged")
        assert each.page.locator(".block .author").all_text_contents() == ["alice", "bob"] * 5
        assert each.page.locator(".day").count() == 1


def test_a_closed_room_takes_no_text_and_says_so_until_it_is_opened(window: Windows) -> None:
    alice, bob = window("alice", node=0), window("bob", node=1)
    room = room_name("closing")
    alice.create(room)
    bob.open(room)
    bob.write("in time")
    alice.wait_text("in time")
    alice.page.get_by_role("button", name="About this room").click()
    alice.page.get_by_role("button", name="Close this room").click()
    for each in (alice, bob):
        note = each.page.locator(".composer.closed")
        expect(note).to_contain_text("This room is closed: it takes no messages.")
        expect(each.page.locator("#message")).to_have_count(0)
        expect(each.page.locator(".event").last).to_contain_text("alice closed the room")
        expect(each.page.locator(f'[data-room="{room}"] .closed-mark')).to_have_text("closed")
        expect(each.page.locator(".title .room-closed")).to_have_text("closed")
    bob.page.reload()  # who comes later is told too
    bob.wait_live()
    expect(bob.page.locator(".composer.closed")).to_be_visible()
    bob.page.get_by_role("button", name="Open it again").click()
    for each, text in ((alice, "again"), (bob, "and again")):
        expect(each.page.locator("#message")).to_be_visible()
        each.write(text)
        bob.wait_text(text)
    expect(alice.page.locator(".closed-mark")).to_have_count(0)


def test_messages_of_one_author_stand_in_one_block(window: Windows) -> None:
    alice = window("alice")
    alice.create(room_name("block"))
    for i in range(4):
        alice.write(f"line {i}")
    alice.wait_text("line 3")
    assert alice.page.locator(".block").count() == 1
    assert alice.page.locator(".block header").count() == 1


def test_unread_messages_are_counted_until_the_room_is_opened(window: Windows) -> None:
    busy, quiet = room_name("busy"), room_name("quiet")
    alice = window("alice")
    alice.create(busy)
    alice.create(quiet)
    bob = beside(window, busy, node=2)
    for i in range(3):
        bob.write(f"are you there {i}")
    line = alice.page.locator(f'[data-room="{busy}"]')
    expect(line).to_have_attribute("data-unread", "3")
    expect(line.locator(".unread .hidden")).to_have_text("3 unread messages")
    expect(alice.page).to_have_title(re.compile(r"^\(\d+\) "))
    alice.open(busy)
    expect(line).to_have_attribute("data-unread", "0")
    assert alice.page.locator(".new").count() == 1
    assert alice.texts()[-1] == "are you there 2"


def test_history_is_fetched_on_scroll_and_the_reader_keeps_the_place(
    window: Windows, site: LiveSite
) -> None:
    room = room_name("history")
    fill_room(site, room, 400)
    alice = window("alice", node=1)
    alice.open(room)
    assert alice.texts()[-1] == "entry 399"
    assert len(alice.texts()) < 200
    page = alice.page
    while "entry 0" not in alice.texts():
        count = len(alice.texts())
        seen = page.evaluate(SCROLL_UP)
        wait_for(lambda count=count: len(alice.texts()) > count, "older messages")
        # What was at the reader's eyes stays there when older messages arrive above it.
        assert page.evaluate(PLACE, seen["id"]) == seen["top"]
    assert alice.texts() == [f"entry {i}" for i in range(400)]
    assert alice.ops() == list(range(2, 402))
    expect(page.locator(".beginning")).to_have_text(f"This is where {room} begins.")
    page.get_by_role("button", name="Newest").click()
    wait_for(lambda: page.evaluate(AT_END), "the newest end")


SCROLL_UP = """() => {
  const box = document.querySelector('.messages');
  box.scrollTop = 300;
  const { top } = box.getBoundingClientRect();
  const node = [...document.querySelectorAll('.text')].find(
    (each) => each.getBoundingClientRect().bottom > top);
  return { id: node.id, top: Math.round(node.getBoundingClientRect().top) };
}"""
PLACE = "id => Math.round(document.getElementById(id).getBoundingClientRect().top)"
AT_END = """() => { const box = document.querySelector('.messages');
  return box.scrollHeight - box.scrollTop - box.clientHeight < 3 }"""


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


def test_a_long_text_becomes_one_thread_and_is_shown_whole(window: Windows, site: LiveSite) -> None:
    room = room_name("long")
    alice = window("alice")
    alice.create(room)
    bob = beside(window, room, node=1)
    text = "Grüße, 虎! 🐅👩‍👩‍👧 " * 200 + "end"
    alice.page.locator("#message").fill(text)
    expect(alice.page.locator("#message-hint")).to_contain_text("records of one thread")
    alice.page.keyboard.press("Enter")
    bob.wait_text(text)
    assert bob.texts() == [text]
    first, *others = stored(site, room)[1:]
    assert len(others) >= 3
    assert first.parent_id is None
    assert {record.parent_id for record in others} == {first.msg_id}
    assert "".join(record.body for record in (first, *others)) == text
    assert max(len(record.body.encode()) for record in (first, *others)) <= 2048
    bob.page.reload()
    bob.wait_text(text)
    assert bob.texts() == [text]


def test_an_answer_shows_what_it_answers(window: Windows, site: LiveSite) -> None:
    room = room_name("answer")
    alice = window("alice")
    alice.create(room)
    bob = beside(window, room, node=1)
    alice.write("shall we ship it?")
    bob.wait_text("shall we ship it?")
    bob.page.locator(".text").hover()
    bob.page.get_by_role("button", name="Answer this message").click()
    expect(bob.page.locator(".answering")).to_contain_text("shall we ship it?")
    bob.write("yes")
    alice.wait_text("yes")
    expect(alice.page.locator(".parent")).to_have_text("alice shall we ship it?")
    question, answer = stored(site, room)[1:]
    assert answer.parent_id == question.msg_id


def test_markup_in_messages_and_names_stays_text(window: Windows) -> None:
    evil = '<img src="https://elsewhere.invalid/x.png" onerror="document.title=\'owned\'"><b>x</b>'
    alice, bob = window("alice"), window("bob")
    alice.create(f"<i>{room_name('html')}</i>")
    alice.write(evil + " https://example.org/a?b=c. javascript:alert(1)")
    alice.wait_text(evil + " https://example.org/a?b=c. javascript:alert(1)")
    assert alice.page.locator(".messages img, .messages .body b, .rooms i").count() == 0
    links = alice.page.locator(".body a")
    assert links.evaluate_all("nodes => nodes.map(node => node.getAttribute('href'))") == [
        "https://elsewhere.invalid/x.png",
        "https://example.org/a?b=c",
    ]
    assert "owned" not in alice.page.title()
    bob.page.reload()  # faults of both are judged at the end


def test_code_is_shown_as_code_and_never_run(window: Windows) -> None:
    evil = "<script>document.title = 'owned'</script>"
    fenced = f"```python\nif ready:\n    {evil} `x` https://example.org/\n```"
    alice, room = window("alice"), room_name("code")
    alice.create(room)
    bob = beside(window, room, node=1)
    message = alice.page.locator("#message")
    message.fill(f"Run `make <b>` first:\n{fenced}\nthen ``` stays")
    alice.page.keyboard.press("Enter")
    for each in (alice, bob):
        body = each.page.locator(".text[data-state='acknowledged'] .body")
        expect(body.locator("pre > code")).to_have_text(
            f"if ready:\n    {evil} `x` https://example.org/", use_inner_text=True
        )
        assert body.locator(":scope > code").all_text_contents() == ["make <b>"]
        assert body.locator("script, b, pre a, pre code code").count() == 0
        assert "then ``` stays" in body.inner_text()
        assert "python" not in body.inner_text()
        assert "owned" not in each.page.title()
    alice.write("```\nnobody closes this")
    alice.wait_text("```\nnobody closes this")
    assert alice.page.locator(".body pre").count() == 1


def test_the_room_last_used_is_open_again_in_a_new_tab(window: Windows, site: LiveSite) -> None:
    first, last = (room_name(f"{letter}-last") for letter in "az")
    alice = window("alice")
    alice.create(last)
    alice.create(first)
    alice.open(last)
    alice.page.reload()
    expect(alice.page.locator(".title h2")).to_have_text(last)
    tab = alice.page.context.new_page()
    tab.goto(f"{site.chat_url(0)}#token={site.token('alice')}")
    expect(tab.locator(".title h2")).to_have_text(last)
    kept = alice.page.evaluate("() => JSON.stringify(localStorage)")
    assert "eyJ" not in kept


def test_the_token_leaves_the_address_bar_and_stays_in_the_tab(
    window: Windows, site: LiveSite
) -> None:
    alice = window("alice")
    assert "token" not in alice.page.url
    assert alice.page.evaluate("() => JSON.stringify(localStorage)").count("eyJ") == 0
    alice.page.reload()
    alice.wait_live()
    alice.page.get_by_role("button", name="Sign out").click()
    expect(alice.page.get_by_label("Your token")).to_be_visible()
    assert alice.page.evaluate("() => JSON.stringify(sessionStorage)").count("eyJ") == 0
    alice.page.get_by_label("Your token").fill("nonsense")
    alice.page.keyboard.press("Enter")
    expect(alice.page.get_by_role("alert")).to_have_text("This is not a token.")
    forged = site.token("alice")[:-6] + "AAAAAA"
    alice.page.get_by_label("Your token").fill(forged)
    alice.page.keyboard.press("Enter")
    expect(alice.page.get_by_role("alert")).to_be_visible()
    alice.page.get_by_label("Your token").fill(site.token("alice"))
    alice.page.keyboard.press("Enter")
    alice.wait_live()


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


def test_everything_can_be_done_with_the_keyboard(window: Windows) -> None:
    first, second = room_name("aaa-keys-a"), room_name("aaa-keys-b")  # neighbours
    alice = window("alice")
    alice.create(first)
    alice.create(second)
    press = alice.page.keyboard.press
    press("Alt+ArrowUp")
    expect(alice.page.locator(".title h2")).to_have_text(first)
    press("Alt+ArrowDown")
    expect(alice.page.locator(".title h2")).to_have_text(second)
    alice.page.keyboard.type("typed at once")
    press("Shift+Enter")
    alice.page.keyboard.type("on two lines")
    press("Enter")
    alice.wait_text("typed at once\non two lines")
    press("Control+k")
    alice.page.keyboard.type(first)
    expect(alice.page.locator(".room")).to_have_count(1)
    press("Tab")  # the button for a new room
    press("Tab")  # the room that was found
    press("Enter")
    expect(alice.page.locator(".title h2")).to_have_text(first)


PRESS_WHEN_TITLE_CHANGES = """(key) => new MutationObserver((_, observer) => {
  observer.disconnect();
  dispatchEvent(new KeyboardEvent("keydown", { key, altKey: true, cancelable: true }));
}).observe(document.querySelector(".title h2"), { characterData: true, subtree: true })"""


def test_the_neighbour_is_that_of_the_room_in_sight_however_soon_the_key_is_pressed(
    window: Windows,
) -> None:
    number = next(_numbers)
    above, new, *below = (f"{name}-soon-{number}" for name in ("aaaa", "aaab", "aaac", "aaad"))
    alice = window("alice")
    for room in (above, *below):
        alice.create(room)
    title = alice.page.locator(".title h2")
    alice.page.get_by_role("button", name="Create a room").click()
    alice.page.get_by_label("Name of the room").fill(new)
    alice.page.evaluate(PRESS_WHEN_TITLE_CHANGES, "ArrowUp")  # the moment the new room is shown
    alice.page.keyboard.press("Enter")
    expect(title).to_have_text(above)
    alice.page.locator("#message").press("Alt+ArrowDown")
    expect(title).to_have_text(new)


def test_the_neighbours_of_a_room_that_the_search_hides_are_the_ends_of_what_it_found(
    window: Windows,
) -> None:
    number = next(_numbers)
    hidden, *found = (f"{name}-ends-{number}" for name in ("hidden", "find-a", "find-b", "find-c"))
    alice = window("alice")
    for room in (*found, hidden):
        alice.create(room)
    title = alice.page.locator(".title h2")
    for key, end in (("ArrowUp", found[-1]), ("ArrowDown", found[0])):
        alice.open(hidden)
        alice.page.keyboard.press("Control+k")
        alice.page.keyboard.type("find-")
        expect(alice.page.locator(".room")).to_have_count(len(found))
        alice.page.keyboard.press(f"Alt+{key}")
        expect(title).to_have_text(end)
        alice.page.get_by_label("Find a room").fill("")


NAMELESS = """() => [...document.querySelectorAll('button, input, textarea, a, summary')].filter(
  (node) => node.checkVisibility() && !(node.ariaLabel || node.textContent.trim()
    || node.labels?.length)).map((node) => node.outerHTML)"""


def test_every_control_has_a_name(window: Windows) -> None:
    alice = window("alice")
    alice.create(room_name("names"))
    alice.write("hello")
    alice.wait_text("hello")
    alice.page.get_by_role("button", name="Create a room").click()
    alice.page.locator(".connection summary").click()
    assert alice.page.evaluate(NAMELESS) == []


def test_narrow_screens_show_the_room_and_slide_the_list_over_it(window: Windows) -> None:
    room = room_name("narrow")
    alice = window("alice")
    alice.create(room)
    alice.page.set_viewport_size({"width": 380, "height": 640})
    expect(alice.page.locator(".sidebar")).not_to_be_in_viewport()
    alice.page.get_by_role("button", name="Rooms", exact=True).click()
    expect(alice.page.locator(".sidebar")).to_be_in_viewport()
    alice.open(room)
    expect(alice.page.locator(".sidebar")).not_to_be_in_viewport()
    assert alice.page.evaluate("() => document.documentElement.scrollWidth") == 380
    alice.write("x" * 500)
    alice.wait_text("x" * 500)
    assert alice.page.evaluate("() => document.querySelector('.messages').scrollWidth") == 380


def test_long_lines_of_code_scroll_in_their_box_on_a_telephone(window: Windows) -> None:
    alice = window("alice")
    alice.create(room_name("telephone"))
    alice.page.set_viewport_size({"width": 360, "height": 640})
    alice.write("```\n" + "x" * 300 + "\n```")
    alice.wait_text("x" * 300)
    assert alice.page.evaluate("() => document.documentElement.scrollWidth") == 360
    assert alice.page.evaluate("() => document.querySelector('.messages').scrollWidth") == 360
    assert alice.page.locator(".body pre").evaluate("pre => pre.scrollWidth > pre.clientWidth")


def test_the_page_follows_the_system_into_the_dark(window: Windows) -> None:
    background = "() => getComputedStyle(document.body).backgroundColor"
    alice = window("alice", color_scheme="light")
    light = alice.page.evaluate(background)
    alice.page.emulate_media(color_scheme="dark")
    assert alice.page.evaluate(background) != light


def test_pages_forbid_what_they_do_not_need(window: Windows, site: LiveSite) -> None:
    alice = window("alice")
    places = {
        f"{scheme}://127.0.0.1:{node.client_port}"
        for scheme in ("https", "wss")
        for node in site.site.nodes
    }
    for url, allowed in ((site.chat_url(0), places), (site.console_url(0), set())):
        policy = alice.page.request.get(url).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert set(re.findall(r"[a-z]+:[^\s;]*", policy)) == allowed
    nodes = alice.page.request.get(site.chat_url(1) + "nodes.json").json()["nodes"]
    assert [node["url"] for node in nodes] == [
        f"wss://127.0.0.1:{node.client_port}/v1" for node in site.site.nodes
    ]
