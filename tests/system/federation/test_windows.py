"""A room of two sites, in a window at each: one order, who said it where, and which site has it."""

import os

import pytest
from playwright.sync_api import Browser

from tests.system.federated_site import Door, said
from tests.system.federation.follower import share
from tests.web.window import Window, expect

ROOM = "windows"


@pytest.mark.browser
def test_windows_at_two_sites_show_one_order_and_who_has_what(
    browser: Browser, sites: tuple[Door, Door]
) -> None:
    paris, oslo = sites
    said("room", "create", ROOM, "--local", str(paris.folder))
    share(paris, oslo, ROOM)
    anna, ola = Window(browser, paris, "anna", 0), Window(browser, oslo, "ola", 0)
    for window in (anna, ola):
        window.open(ROOM)
    anna.write("hello from here")
    ola.wait_text("hello from here")
    author = ola.page.locator(".block .author")
    expect(author).to_have_text("anna@paris")  # once its place is told
    tick = anna.page.locator('.site[data-site="oslo"]')
    expect(tick).to_have_attribute("data-has", "yes")
    expect(anna.page.locator(".shared-with")).to_have_text("shared with oslo")

    (carrying,) = oslo.processes(0, "federation")
    with oslo.standing_still([carrying]):  # neither hears the other
        for window, text in ((anna, "one"), (ola, "two"), (anna, "three")):
            window.write(text)
            window.wait_text(text)
        three = anna.page.locator(".text", has_text="three").locator(".site")
        expect(three).to_have_attribute("data-has", "no")
    ola.wait_text("three")
    anna.wait_text("two")
    ola.write("four")  # and says with it what her site has
    anna.wait_text("four")
    expected = ["hello from here", "one", "two", "three", "four"]
    for window in (anna, ola):
        expect(window.page.locator(".text .body")).to_have_text(expected)
        folder = os.environ.get("TIGERCHAT_PICTURES")
        if folder:
            window.page.screenshot(path=f"{folder}/chat-{window.user}.png")
    expect(anna.page.locator('.site[data-has="yes"]')).to_have_count(3)
    anna.page.reload()  # places of what is history are asked for
    anna.wait_live()
    anna.open(ROOM)
    expect(anna.page.locator(".text .body")).to_have_text(expected)
    expect(anna.page.locator('.site[data-has="yes"]')).to_have_count(3)
    assert anna.close() == [] and ola.close() == []
