"""Every act of the table, on the page and by its verb, on three real nodes and a standby; and what
is refused while a node is dead, in the same words on both."""

import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from appliance.cores.console.acts import BY_NAME
from appliance.formats.site import SITE_FILE, load_site
from tests import forked
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.web.site import LiveSite, wait_for
from tests.web.test_console_page import act, sign_in
from tests.web.window import expect

# Not offered while clocks are right: tests/system/test_clock_ahead.py does it where one was ahead.
ELSEWHERE = {"clock-correct"}
LOOK_MS = 300


@pytest.fixture
def own_site(tmp_path: Any, free_ports: FreePorts) -> Iterator[LiveSite]:
    site = LiveSite(tmp_path / "site", free_ports)
    try:
        site.start()
        yield site
    finally:
        site.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1300, "height": 900})
    context.set_default_timeout(HUNG_S * 1000)
    yield context
    context.close()


class Operator:
    """Signed in on the page of node 1; notes which acts were done."""

    def __init__(self, context: BrowserContext, site: LiveSite) -> None:
        self.context, self.url = context, site.console_url(1)
        self.page: Page = sign_in(context, site)
        self.done: set[str] = set()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.context.request.get(self.url + "/status").json()
        return found

    def offers(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(table, subject, offer) of all that the page offers."""
        return [
            (table, row["subject"], offer)
            for table, rows in self.status()["offers"].items()
            for row in rows
            for offer in row["acts"]
        ]

    def do(self, name: str, about: dict[str, Any] | None = None, **written: str) -> None:
        """By menu, keys and dialog, once it is offered and not refused."""
        found: list[tuple[str, str, dict[str, Any]]] = []

        def offered() -> bool:
            found[:] = [
                row for row in self.offers()
                if row[2]["act"] == name and row[2]["refusal"] == ""
                and about in (None, row[2]["about"])
            ]  # fmt: skip
            if not found:
                self.page.wait_for_timeout(LOOK_MS)  # the node looks once a second
            return bool(found)

        wait_for(offered, f"{name} to be offered")
        table, subject, offer = found[0]
        place = "" if table == "Site" else table
        label = offer["label"].removesuffix("…")
        act(self.page, subject, place, label, typed=offer["typed"], **written)
        self.done.add(name)


@pytest.mark.soak
def test_every_act_is_done_on_the_page_and_refused_alike_by_page_and_verb(
    context: BrowserContext, own_site: LiveSite
) -> None:
    site, folder = own_site, own_site.folder
    operator = Operator(context, site)
    operator.do("room-create", room="operators")
    operator.do("room-close", room="operators")
    operator.do("room-reopen", room="operators")
    operator.do("room-rename", room="operators", new_name="those at work")
    operator.do("room-rights", room="operators", send="moderators")
    operator.do("token", user="anna")
    operator.do("retention-show")
    operator.do("retention-set", days="30")
    operator.do("support", {"node": 2})
    operator.do("ship-now")
    operator.do("ship-verify")
    operator.do("drain", {"node": 2})
    operator.do("undrain", {"node": 2})
    operator.do("stop", {"node": 2, "process": "metadata"})
    alarm = operator.page.locator('[data-alarm="role_down"]')
    alarm.get_by_role("button", name="Seen").click()
    expect(alarm.locator(".seen")).to_contain_text("seen by console session")
    operator.done.add("alarm-seen")
    operator.do("start", {"node": 2, "process": "metadata"})
    operator.do("scrub", {"node": 2, "process": "replica-0"})
    operator.do("step-down")
    operator.do("farm-publish")
    operator.do("farm-exclude", {"node": 2})
    operator.do("farm-lift", {"node": 2})
    operator.do("farm-yield")
    operator.do("farm-remove", {"node": 2})
    operator.do("farm-admit", {"node": 2})
    operator.do("farm-place", {"shard": 0}, names="node-0 node-1 node-2")
    operator.do("farm-period", ms="5000")
    operator.do("member-add")
    site.site = load_site(folder / SITE_FILE)
    site.start(3)
    operator.do("promote", {"node": 3, "other": 1})
    operator.do("retire", {"node": 3, "other": 1})
    operator.do("remove", {"node": 3})
    lost = folder / "node-2" / "shard-0"
    lost.rename(lost.with_name("shard-0.lost"))
    operator.do("recover", {"node": 2})
    assert operator.done == BY_NAME.keys() - ELSEWHERE
    expect(operator.page.locator(".done li", has_text="audit waits")).to_have_count(0)

    site.kill(0)
    expect(operator.page.locator('[data-alarm="quorum_thin"]')).to_have_count(1)
    refused = [row[2] for row in operator.offers() if row[2]["refusal"]]
    assert {"stop", "step-down"} & {offer["act"] for offer in refused}
    for offer in refused:
        asked = {"act": offer["act"], "about": offer["about"], "typed": offer["typed"]}
        began = time.monotonic()
        answer = context.request.post(operator.url + "/acts", data=asked)
        took = time.monotonic() - began
        assert answer.status == 409 and took < HUNG_S, (offer["act"], took)
        sentence = answer.json()["error"]
        words = shlex.split(offer["verb"])[1:]
        said = forked.run([*words, "--local", str(folder)])
        assert said.returncode == 1, (words, said.stdout)
        assert sentence in said.stderr, (offer["act"], sentence, said.stderr)
