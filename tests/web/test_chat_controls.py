"""The chat page as it is used: by keyboard, on narrow screens, in the dark; what it remembers, and
forbids."""

import re

from tests.web.rooms_of_page import numbers, room_name
from tests.web.site import LiveSite
from tests.web.window import Kept, Windows, expect


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
    kept: Kept,
) -> None:
    number = next(numbers)
    above, new, *below = (f"{name}-soon-{number}" for name in ("aaaa", "aaab", "aaac", "aaad"))
    alice = kept("alice", 0)
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
    kept: Kept,
) -> None:
    number = next(numbers)
    hidden, *found = (f"{name}-ends-{number}" for name in ("hidden", "find-a", "find-b", "find-c"))
    alice = kept("alice", 0)
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


def test_narrow_screens_show_the_room_and_slide_the_list_over_it(kept: Kept) -> None:
    room = room_name("narrow")
    alice = kept("alice", 0)
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


def test_long_lines_of_code_scroll_in_their_box_on_a_telephone(kept: Kept) -> None:
    alice = kept("alice", 0)
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
