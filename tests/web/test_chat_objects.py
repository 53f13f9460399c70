"""What people share besides messages, in windows on different nodes of a real site."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator

from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_status
from tests.png_file import png_of
from tests.roles.objects_site import answer_of
from tests.web.rooms_of_page import room_name
from tests.web.site import LiveSite, run, wait_for
from tests.web.window import Kept, Window, Windows, expect

TOPIC = "Who brings <b>what</b> on Thursday"
DESCRIPTION = "What belongs here:\n<i>all</i> of https://tiger.example/rules"
THUMB = "👍"


RED = (200, 60, 40)
MIDDLE = """(canvas) => [...canvas.getContext('2d')
  .getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data.slice(0, 3)]"""


def set_topic(window: Window, text: str) -> None:
    window.page.locator("button.topic").click()
    window.page.get_by_label("Topic of").fill(text)
    window.page.keyboard.press("Enter")


def describe(window: Window, text: str) -> None:
    window.page.locator("button.topic").click()
    window.page.get_by_label("Description of").fill(text)
    window.page.keyboard.press("Control+Enter")
    expect(window.page.locator("button.topic")).to_be_focused()


def topic(window: Window) -> Locator:
    return window.page.locator(".title .topic span")


def topic_on(site: LiveSite, node: int, room: str) -> str | None:
    """As the node's own objects have it; None: they are about to start."""
    sockets = site.folder / f"node-{node}" / SOCKETS_FOLDER
    try:
        return answer_of(sockets, site.site.cluster, {"do": "room", "room": room})["topic"]
    except (OSError, ValueError):
        return None


def message(window: Window, text: str) -> Locator:
    return window.page.locator(".text", has_text=text)


def act(window: Window, text: str, name: str) -> None:
    """Press one of the buttons beside a message."""
    message(window, text).hover()
    message(window, text).get_by_role("button", name=name).click()


def react(window: Window, text: str, words: str) -> None:
    act(window, text, "React to this message")
    window.page.get_by_role("group", name="React with").get_by_role("button", name=words).click()


def who_reacted(window: Window) -> Locator:
    """The names that are shown beside a reaction at the moment."""
    return window.page.locator(".reacted").filter(visible=True)


def apart(*windows: Window) -> None:
    """Each is served by a node of its own, in order: what one shows of another came across."""
    assert [each.node for each in windows] == list(range(len(windows)))


@pytest.fixture
def nobody_else(browser: Browser, windows_kept: dict[str, Window]) -> None:
    """Those whose windows are kept are in every room: they leave."""
    while windows_kept:
        _, window = windows_kept.popitem()
        assert window.close() == []


def both(at: Kept, what: str, other: str = "bob") -> tuple[Window, Window, str]:
    """Alice on node 0 and Bob on node 1, in a room with one message."""
    room = room_name(what)
    alice = at("alice", 0)
    alice.create(room)
    bob = at(other, 1)
    apart(alice, bob)
    bob.create(room)  # it is there: he enters it, before the page asks again which there are
    alice.write("first of all")
    bob.wait_text("first of all")
    alice.wait_text("first of all", "acknowledged")
    return alice, bob, room


def test_names_people_and_who_types_appear_in_the_other_window(
    nobody_else: None, kept: Kept, window: Windows
) -> None:
    # "builder": what is told of people stays
    by_name = {"alice": kept, "builder": lambda user, node: window(user, node=node)}
    alice, bob, _ = both(lambda user, node: by_name[user](user, node), "people", other="builder")
    bob.write("an answer")
    alice.wait_text("an answer")
    for each in (alice, bob):
        each.page.locator(".opens.people").click()
        for author in ("alice", "builder"):
            expect(each.page.locator(f'.person[data-author="{author}"]')).to_have_attribute(
                "data-state", "online"
            )
        expect(each.page.locator(".person")).to_have_count(2)

    bob.page.get_by_role("button", name="Edit your name and picture").click()
    name = bob.page.get_by_label("Name that others see")
    name.fill("Bob the Builder")
    bob.page.keyboard.press("Tab")
    expect(bob.page.get_by_label("Choose a picture")).to_be_focused()
    file = {"name": "me.png", "mimeType": "image/png", "buffer": png_of(90, 60, lambda x, y: RED)}
    bob.page.set_input_files("#own-picture", file)
    expect(bob.page.locator(".own-picture canvas")).to_be_visible()
    name.focus()
    bob.page.keyboard.press("Enter")
    for each in (alice, bob):
        expect(each.page.locator(".block .author").last).to_have_text("Bob the Builder")
        expect(each.page.locator(".block .login")).to_have_text("builder")  # a name proves nothing
        expect(each.page.locator('.person[data-author="builder"] .name')).to_have_text(
            "Bob the Builder"
        )
        for face in (".block .avatar", '.person[data-author="builder"] .face'):
            portrait = each.page.locator(f"{face} canvas").last
            expect(portrait).to_be_visible()
            assert all(abs(a - b) < 12 for a, b in zip(portrait.evaluate(MIDDLE), RED, strict=True))

    bob.page.locator("#message").press_sequentially("well")
    expect(alice.page.locator(".typing")).to_have_text("Bob the Builder is typing")
    expect(bob.page.locator(".typing")).to_have_count(0)
    bob.page.keyboard.press("Enter")
    alice.wait_text("well")
    expect(alice.page.locator(".typing")).to_have_count(0)
    alice.page.locator("#message").press_sequentially("then")
    expect(bob.page.locator(".typing")).to_have_text("alice is typing")
    alice.page.locator("#message").fill("")
    expect(bob.page.locator(".typing")).to_have_count(0)
    apart(alice, bob)

    bob.page.get_by_role("button", name="Sign out").click()
    expect(alice.page.locator(".person")).to_have_count(1)
    # The name is that of the user, not of a tab.
    again = window("builder", node=2)
    expect(again.page.locator(".foot .who")).to_contain_text("Bob the Builder")
    expect(again.page.locator(".foot .face canvas")).to_be_visible()
    again.page.get_by_role("button", name="Edit your name and picture").click()
    again.page.get_by_role("button", name="Remove the picture").click()
    again.page.get_by_role("button", name="Save").click()
    expect(alice.page.locator(".block .avatar canvas")).to_have_count(0)
    expect(alice.page.locator(".block .author").last).to_have_text("Bob the Builder")


def test_topic_pins_and_reactions_appear_in_the_other_window(kept: Kept, window: Windows) -> None:
    alice, bob, room = both(kept, "shared")
    set_topic(alice, TOPIC)
    expect(topic(bob)).to_have_text(TOPIC)
    set_topic(bob, "Something else")
    expect(topic(alice)).to_have_text("Something else")
    describe(alice, DESCRIPTION)
    bob.page.get_by_role("button", name="About this room").click()
    about = bob.page.get_by_role("region", name="About this room")
    expect(about.locator(".about-topic")).to_have_text("Something else")
    expect(about.locator(".description")).to_have_text(DESCRIPTION)
    expect(about.get_by_role("link")).to_have_attribute("href", "https://tiger.example/rules")
    bob.page.keyboard.press("Escape")

    act(alice, "first of all", "Pin this message")
    expect(bob.page.locator(".opens.pins")).to_have_attribute("aria-label", "1 pinned message")
    expect(message(bob, "first of all")).to_have_attribute("data-pinned", "true")
    bob.page.locator(".opens.pins").click()
    expect(bob.page.locator(".panel .pinned")).to_contain_text("first of all")
    bob.page.locator(".panel .shows").click()
    expect(message(bob, "first of all")).to_have_class("text shown")
    act(bob, "first of all", "Unpin this message")
    expect(alice.page.locator(".opens.pins")).to_have_attribute("aria-label", "0 pinned messages")

    react(alice, "first of all", "Thumbs up")
    theirs = message(bob, "first of all").locator(f'[data-emoji="{THUMB}"]')
    own = message(alice, "first of all").locator(f'[data-emoji="{THUMB}"]')
    expect(theirs).to_have_attribute("aria-label", "Thumbs up: 1 person: alice")
    expect(who_reacted(bob)).to_have_count(0)
    theirs.focus()  # by the keyboard, as the last key was one
    bob.page.keyboard.press("Shift+Tab")
    bob.page.keyboard.press("Tab")
    expect(theirs).to_be_focused()
    expect(who_reacted(bob)).to_have_text("Thumbs up alice")
    expect(theirs).to_have_attribute("aria-pressed", "false")
    theirs.click()
    expect(own.locator(".count")).to_have_text("2")
    own.hover()
    expect(who_reacted(alice)).to_have_text("Thumbs up alice, bob")
    expect(own).to_have_attribute("aria-pressed", "true")
    own.click()
    expect(theirs.locator(".count")).to_have_text("1")
    theirs.click()
    expect(own).to_have_count(0)

    # Whoever comes later, on a third node, is shown what holds.
    react(bob, "first of all", "Heart")
    carol = window("carol", node=2)
    carol.open(room)
    expect(topic(carol)).to_have_text("Something else")
    carol.page.get_by_role("button", name="About this room").click()
    expect(carol.page.locator(".description")).to_have_text(DESCRIPTION)
    expect(message(carol, "first of all").locator(".reaction")).to_have_attribute(
        "aria-label", "Heart: 1 person: bob"
    )
    apart(alice, bob, carol)


def test_what_is_said_on_a_terminal_appears_in_a_window(
    kept: Kept, site: LiveSite, tmp_path: Path
) -> None:
    alice, bob, room = both(kept, "terminal")
    dan = ("--local", str(site.folder), "--user", "dan")
    msg_id = message(alice, "first of all").get_attribute("data-id") or ""
    assert run("topic", room, *dan) == "no topic\n"
    assert run("topic", room, "Today", "at nine", "--description", "In\nall", *dan) == (
        "topic set\ndescription set\n"
    )
    expect(topic(alice)).to_have_text("Today at nine")
    assert run("topic", room, "Today at nine", *dan) == "topic was so already\n"
    assert run("topic", room, *dan) == "Today at nine\n  In\n  all\n"
    assert run("pin", room, *dan) == ""
    assert run("pin", room, msg_id, *dan) == "pinned\n"
    expect(message(bob, "first of all")).to_have_attribute("data-pinned", "true")
    assert run("pin", room, *dan) == f"{msg_id}\n"
    assert run("pin", room, msg_id, "--remove", *dan) == "unpinned\n"
    assert run("react", room, msg_id, *dan) == ""
    assert run("react", room, msg_id, THUMB, *dan) == "reacted\n"
    reaction = message(bob, "first of all").locator(".reaction")
    reaction.click()
    expect(reaction).to_have_attribute("aria-label", "Thumbs up: 2 people: dan, bob")
    wait_for(lambda: run("react", room, msg_id, *dan) == f"{THUMB}  2  bob, dan\n", "both")
    assert run("react", room, msg_id, THUMB, "--remove", *dan) == "taken back\n"
    assert run("react", room, msg_id, "--json", *dan) == (
        '{"emoji": "\\ud83d\\udc4d", "authors": ["bob"]}\n'
    )

    file = tmp_path / "me.png"
    file.write_bytes(png_of(32, 32, lambda x, y: RED))
    assert run("profile", *dan) == "no name\nno about\nno picture\n"
    run("profile", "--name", "Dan the Man", "--about", "here to stay", *dan)
    assert run("profile", "--picture", str(file), *dan) == "profile set\n"  # the rest stays
    wait_for(
        lambda: run("profile", *dan).startswith(
            "name: Dan the Man\nabout: here to stay\npicture of "
        ),
        "it on every node",
    )
    run("send", room, "from a terminal", *dan)
    alice.wait_text("from a terminal")


def test_what_was_read_in_one_window_is_read_in_the_others_of_that_user(
    kept: Kept, window: Windows
) -> None:
    quiet, busy = room_name("aaa-quiet"), room_name("marks")
    alice, bob = kept("alice", 0), kept("bob", 1)
    alice.create(busy)
    alice.create(quiet)
    bob.create(busy)
    other = window("alice", node=2)
    other.open(quiet)
    for i in range(3):
        bob.write(f"news {i}")
    for each in (alice, other):
        expect(each.page.locator(f'[data-room="{busy}"]')).to_have_attribute("data-unread", "3")
    alice.open(busy)
    expect(other.page.locator(f'[data-room="{busy}"]')).to_have_attribute("data-unread", "0")
    alice.open(quiet)
    bob.write("news 3")
    expect(alice.page.locator(f'[data-room="{busy}"]')).to_have_attribute("data-unread", "1")
    # A browser in which nothing is known counts from the marker.
    fresh = window("alice", node=1)
    expect(fresh.page.locator(f'[data-room="{busy}"]')).to_have_attribute("data-unread", "1")
    apart(alice, bob, other)
    apart(alice, fresh)


def test_nothing_of_it_is_too_wide_for_a_telephone(kept: Kept) -> None:
    alice = kept("alice", 0)
    alice.create(room_name("narrow"))
    alice.write("first of all")
    alice.wait_text("first of all", "acknowledged")
    set_topic(alice, "A topic that is far too long for the width of a telephone " * 3)
    act(alice, "first of all", "Pin this message")
    alice.page.set_viewport_size({"width": 360, "height": 640})
    act(alice, "first of all", "React to this message")
    inside(alice, ".picker")
    expect(alice.page.locator(".picker button").first).to_be_focused()
    alice.page.keyboard.press("ArrowLeft")
    expect(alice.page.locator(".picker button").last).to_be_focused()
    alice.page.keyboard.press("Escape")
    expect(alice.page.locator(".picker")).to_have_count(0)
    for panel in ("about", "pins", "people"):
        alice.page.locator(f".opens.{panel}").click()
        inside(alice, ".panel")
    alice.page.keyboard.press("Escape")
    expect(alice.page.locator(".panel")).to_have_count(0)
    expect(alice.page.locator(".opens.people")).to_be_focused()
    alice.page.locator("button.topic").click()
    inside(alice, ".topic-form")
    assert alice.page.evaluate("document.documentElement.scrollWidth") == 360


def inside(window: Window, what: str) -> None:
    box = window.page.locator(what).bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 360, box


NOTE_LINK = """() => {
  window.links = [];
  const shown = document.querySelector('.connection');
  new MutationObserver(() => links.push(shown.dataset.link))
    .observe(shown, { attributeFilter: ['data-link'] });
}"""


def test_without_a_quorum_topic_and_reactions_go_on_and_messages_wait(
    kept: Kept, window: Windows, site: LiveSite
) -> None:
    room = room_name("alone")
    alice, bob = kept("alice", 0), window("bob", node=0)
    alice.create(room)
    bob.create(room)
    alice.write("before")
    bob.wait_text("before")
    for each in (alice, bob):
        each.page.evaluate(NOTE_LINK)
    site.kill(1)
    site.kill(2)
    alice.write("waits")
    alice.wait_text("waits", "pending")
    sockets = site.folder / "node-0" / SOCKETS_FOLDER
    wait_for(
        lambda: (ask_status(sockets, cluster=site.site.cluster, shard=0, kind="edge") or {}).get(
            "health"
        ),
        "the node to notice that it is alone",
    )
    for each in (alice, bob):
        # A page leaves a node that is cut off, and comes back when it finds no other.
        wait_for(lambda each=each: "waiting" in each.page.evaluate("links"), "it to leave")
        each.wait_live()
    set_topic(alice, "Alone")
    expect(topic(bob)).to_have_text("Alone")
    expect(topic(alice)).to_have_text("Alone")
    react(bob, "before", "Thanks")
    expect(message(alice, "before").locator(".reaction")).to_have_attribute(
        "aria-label", "Thanks: 1 person: bob"
    )
    assert "waits" in alice.texts("pending") and "waits" not in bob.texts()
    site.start(1, 2)
    alice.wait_text("waits", "acknowledged")
    bob.wait_text("waits")
    wait_for(lambda: topic_on(site, 2, room) == "Alone", "it on a node that was away")
