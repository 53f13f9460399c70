"""A room of two sites, in a window at each: one order, who said it where, and which site has it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from appliance.drivers.chat.access import local_token
from tests.ports import FreePorts
from tests.system.federated_site import FederatedSite, running, said
from tests.system.local_site import ports_in_a_row
from tests.web.site import RIGHTS
from tests.web.window import Window, expect

ROOM = "lobby"


class Door(FederatedSite):
    """A site as windows enter it."""

    def chat_url(self, node: int) -> str:
        return f"https://127.0.0.1:{self.site.nodes[node].client_port}/"

    def token(self, user: str) -> str:
        return local_token(self.folder, user, RIGHTS, 600)


@pytest.fixture
def sites(tmp_path: Path, free_ports: FreePorts) -> Iterator[tuple[Door, Door]]:
    paris, oslo = (
        Door(tmp_path / name[0], ports_in_a_row(free_ports), name, nodes=1, objects=True)
        for name in ("paris", "oslo")
    )
    with running(paris, oslo):
        paris.know(oslo)
        oslo.know(paris)
        said("room", "create", ROOM, "--local", str(paris.folder))
        accept = paris.federation("share", ROOM, "--with", "oslo").removeprefix("tigerchat ")
        said(*accept.split(), "--local", str(oslo.folder))
        yield paris, oslo


def test_windows_at_two_sites_show_one_order_and_who_has_what(
    browser: Browser, sites: tuple[Door, Door]
) -> None:
    paris, oslo = sites
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
    expected = ["hello from here", "one", "two", "three"]
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
