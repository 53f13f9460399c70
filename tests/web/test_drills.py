"""Three drills as an operator does them who has the book and the page: by names that stand there,
roles, labels and texts, and by what docs/operations.md says. A picture of each step, light and
dark, on a telephone and on a screen, lies in build/drills afterwards, for whoever looks at it."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page

from tests import forked
from tests.patience import HUNG_S
from tests.web.site import TOP, LiveSite
from tests.web.window import expect

PICTURES = TOP / "build" / "drills"
SCHEMES, WIDTHS = ("light", "dark"), (360, 1280)
HURT = 2


class Operator:
    """At the page of node 0, with the book."""

    def __init__(self, page: Page, site: LiveSite, drill: str) -> None:
        self.page, self.drill, self.steps = page, drill, 0
        page.goto(site.console_url(0))
        self.show("signs in")
        page.get_by_label("One-time secret").fill(site.secret(0))
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()

    def show(self, step: str) -> None:
        """Pictures of what is there now; nothing reaches beyond the window."""
        self.steps += 1
        name = f"{self.drill}-{self.steps:02}-{step.replace(' ', '-')}"
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 800})
            for scheme in SCHEMES:
                self.page.emulate_media(color_scheme=scheme)
                self.page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png")
            wide = self.page.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= width, (name, width, wide)

    def alarm(self, name: str, subject: str) -> Locator:
        """That is raised, its remedy unfolded."""
        found = self.page.get_by_role("alert").get_by_role("listitem")
        found = found.filter(has_text=name).filter(has_text=subject)
        expect(found).to_be_visible()
        found.get_by_text("What to do", exact=True).click()
        return found

    def choose(self, table: str, subject: str, label: str, typed: str = "") -> None:
        """An act beside a row, confirmed, and seen to be done."""
        place = self.page.get_by_role("heading", name=table, exact=True).locator("..")
        place.get_by_role("button", name=f"Acts on {subject}", exact=True).click()
        item = self.page.get_by_role("menuitem", name=label)
        expect(item).to_have_attribute("aria-disabled", "false")
        self.show(f"may {label.lower()}")
        item.click()
        self.confirm(label, typed)

    def confirm(self, label: str, typed: str = "") -> None:
        acts = self.page.get_by_role("list", name="Acts, the newest first").get_by_role("listitem")
        before = acts.count()
        dialog = self.page.get_by_role("dialog", name=label)
        if typed:
            dialog.get_by_label(f"Type {typed} to say").fill(typed)
        self.show(f"is told what {label.lower()} does")
        dialog.get_by_role("button", name="Do it").click()
        expect(dialog).to_have_count(0)
        expect(acts).to_have_count(before + 1)
        expect(acts.first).to_contain_text(re.compile(r"\bdone\b"))
        self.show(f"sees {label.lower()} done")

    def sees_no_alarm(self) -> None:
        expect(self.page.get_by_text("No alarms", exact=True)).to_be_visible()
        self.show("sees no alarm")

    def cell(self, table: str, subject: str, words: str) -> None:
        """A row of a table that names a node says so."""
        place = self.page.get_by_role("heading", name=table, exact=True).locator("..")
        row = place.get_by_role("row").filter(has_text=subject)
        expect(row.get_by_role("cell", name=words, exact=True)).to_be_visible()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(HUNG_S * 1000)
    yield context.new_page()
    context.close()


def verb(*words: str) -> str:
    """What an operator types in a terminal."""
    done = forked.run(words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.soak
def test_a_fault_is_found_and_mended_by_what_the_page_says(page: Page, site: LiveSite) -> None:
    operator = Operator(page, site, "fault")
    operator.sees_no_alarm()
    verb("node", "stop", f"node-{HURT}", "--process", "edge-0", "--local", str(site.folder))
    alarm = operator.alarm("edge down", f"edge 0 on node-{HURT}")
    expect(alarm).to_contain_text("stopped by an operator")
    operator.show("reads what to do")
    alarm.get_by_role("button", name="Start edge-0").click()
    operator.confirm("Start edge-0")
    operator.sees_no_alarm()
    page.get_by_text("Alarms of the last day").click()
    past = page.get_by_role("list", name="Alarms that are over").get_by_role("listitem")
    expect(past.filter(has_text="edge down").first).to_contain_text(f"edge 0 on node-{HURT}")
    operator.show("reads what was")


@pytest.mark.soak
def test_a_lost_volume_is_replaced_by_what_the_page_and_the_book_say(
    page: Page, site: LiveSite
) -> None:
    """*Replacing a disk* in docs/operations.md."""
    operator = Operator(page, site, "volume")
    operator.sees_no_alarm()
    node = site.folder / f"node-{HURT}"
    (node / "shard-0").rename(node / "shard-0.broken")
    alarm = operator.alarm("replica halted", f"shard 0 on node-{HURT}")
    expect(alarm).to_contain_text("tigerchat recover")
    operator.show("reads what to do")
    verb("recover", "--once", "--node-folder", str(node))
    operator.cell("Replicas", f"node-{HURT}", "normal")
    operator.sees_no_alarm()


@pytest.mark.soak
def test_a_node_is_taken_out_for_service_and_comes_back(page: Page, site: LiveSite) -> None:
    """*One node of a site on this machine* in docs/operations.md, on the page."""
    operator = Operator(page, site, "service")
    operator.sees_no_alarm()
    name = f"node-{HURT}"
    operator.choose("Edges", f"{name} edge-0", f"Drain {name}")
    operator.cell("Edges", name, "stopped")
    operator.choose("Replicas", f"{name} replica-0", "Stop replica-0", typed=name)
    operator.cell("Replicas", name, "stopped")
    operator.show("serves the machine")
    operator.choose("Replicas", f"{name} replica-0", "Start replica-0")
    operator.cell("Replicas", name, "normal")
    operator.choose("Edges", f"{name} edge-0", f"Let {name} take clients again")
    operator.sees_no_alarm()
