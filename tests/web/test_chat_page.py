"""What is said on the chat page, against a real site of three nodes, in headless Chromium."""

import re

from appliance.drivers.chat.access import local_access
from appliance.drivers.chat.client import Client
from appliance.formats.client.fields import id_of
from appliance.formats.room_name import room_id_of
from tests.web.rooms_of_page import ask, beside, fill_room, room_name, stored
from tests.web.site import LiveSite, wait_for
from tests.web.window import Kept, expect


def test_two_windows_chat_with_each_other(kept: Kept) -> None:
    """In a room that the one makes while the other looks."""
    room = room_name("two")
    alice, bob = kept("alice", 0), kept("bob", 1)
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


def test_a_closed_room_takes_no_text_and_says_so_until_it_is_opened(kept: Kept) -> None:
    alice, room = kept("alice", 0), room_name("closing")
    alice.create(room)
    bob = beside(kept, room, node=1)
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


def test_who_may_not_write_in_a_room_by_its_rights_is_told_so(kept: Kept, site: LiveSite) -> None:
    alice, room = kept("alice", 0), room_name("rights")
    alice.create(room)
    bob = beside(kept, room, node=1)

    async def limit(send: str) -> None:
        access = local_access(site.folder, "alice")
        async with Client(access.endpoints, access.token) as client:
            await client.room_rights(id_of(room_id_of(room)), send=send)

    ask(limit("=alice"))
    expect(bob.page.locator(".composer.closed")).to_contain_text("you may read, and not write")
    alice.write("alone")
    bob.wait_text("alone")
    bob.page.reload()  # who comes later is told too
    bob.wait_live()
    expect(bob.page.locator(".composer.closed")).to_be_visible()
    ask(limit("all"))
    expect(bob.page.locator("#message")).to_be_visible()
    bob.write("both")
    alice.wait_text("both")


def test_a_room_that_is_renamed_is_shown_by_its_new_name_to_all(kept: Kept) -> None:
    alice, room = kept("alice", 0), room_name("before")
    taken, new = room_name("taken"), room_name("after")
    alice.create(taken)
    alice.create(room)
    bob = beside(kept, room, node=1)
    alice.page.get_by_role("button", name="About this room").click()
    for name, refusal in ((taken, "another room has this name, or had it once"), (new, "")):
        alice.page.get_by_label("New name of this room").fill(name)
        alice.page.get_by_role("button", name="Rename this room").click()
        if refusal:
            expect(alice.page.locator(".renaming .refusal")).to_have_text(refusal)
    for each in (alice, bob):
        expect(each.page.locator(".title h2")).to_have_text(new)
        expect(each.page.locator(f'[data-room="{new}"]')).to_have_count(1)
        expect(each.page.locator(f'[data-room="{room}"]')).to_have_count(0)
    bob.page.reload()  # who comes later is told too
    bob.wait_live()
    expect(bob.page.locator(".title h2")).to_have_text(new)
    bob.write("under its new name")
    alice.wait_text("under its new name")


def test_messages_of_one_author_stand_in_one_block(kept: Kept) -> None:
    alice = kept("alice", 0)
    alice.create(room_name("block"))
    for i in range(4):
        alice.write(f"line {i}")
    alice.wait_text("line 3")
    assert alice.page.locator(".block").count() == 1
    assert alice.page.locator(".block header").count() == 1


def test_unread_messages_are_counted_until_the_room_is_opened(kept: Kept) -> None:
    busy, quiet = room_name("busy"), room_name("quiet")
    alice = kept("alice", 0)
    alice.create(busy)
    alice.create(quiet)
    bob = beside(kept, busy, node=1)
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
    kept: Kept, site: LiveSite
) -> None:
    room = room_name("history")
    fill_room(site, room, 400)
    alice = kept("alice", 0)
    alice.create(room)
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


def test_a_long_text_becomes_one_thread_and_is_shown_whole(kept: Kept, site: LiveSite) -> None:
    room = room_name("long")
    alice = kept("alice", 0)
    alice.create(room)
    bob = beside(kept, room, node=1)
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


def test_an_answer_shows_what_it_answers(kept: Kept, site: LiveSite) -> None:
    room = room_name("answer")
    alice = kept("alice", 0)
    alice.create(room)
    bob = beside(kept, room, node=1)
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


def test_markup_in_messages_and_names_stays_text(kept: Kept) -> None:
    evil = '<img src="https://elsewhere.invalid/x.png" onerror="document.title=\'owned\'"><b>x</b>'
    alice, bob = kept("alice", 0), kept("bob", 1)
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


def test_code_is_shown_as_code_and_never_run(kept: Kept) -> None:
    evil = "<script>document.title = 'owned'</script>"
    fenced = f"```python\nif ready:\n    {evil} `x` https://example.org/\n```"
    alice, room = kept("alice", 0), room_name("code")
    alice.create(room)
    bob = beside(kept, room, node=1)
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
