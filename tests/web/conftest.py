"""One site and one browser for all tests of the pages; windows and rooms are each test's own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.web.site import LiveSite
from tests.web.window import SIZE, Kept, Window, Windows

CHROMIUM = "/usr/bin/chromium"
# What no page of ours uses. The first ones are pages of Chromium's own, two for each window, which
# take more time than that window; the rest is Playwright's list, as the last one that is said
# counts alone.
DISABLED = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "SpareRendererForSitePerProcess",
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(DISABLED)}",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


class Chromium:
    """A browser for all tests of the pages; other tests may have loops of their own meanwhile.

    Playwright's synchronous interface keeps a loop running in this thread, in a greenlet of its
    own; asyncio would refuse every other one for as long. So that loop is put away between tests.
    """

    def __init__(self) -> None:
        self._playwright = sync_playwright().start()
        self._loop = asyncio.get_running_loop()
        self.browser = self.launch(ARGUMENTS)
        self.put_away()

    def launch(self, arguments: list[str]) -> Browser:
        """A browser more."""
        return self._playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)

    def put_away(self) -> None:
        asyncio._set_running_loop(None)

    def take_out(self) -> None:
        assert asyncio._get_running_loop() is None
        asyncio._set_running_loop(self._loop)

    def close(self) -> None:
        self.take_out()
        self.browser.close()
        self._playwright.stop()
        self.put_away()


@pytest.fixture(scope="package")
def chromium() -> Iterator[Chromium]:
    chromium = Chromium()
    yield chromium
    chromium.close()


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Browser]:
    chromium.take_out()
    yield chromium.browser
    chromium.put_away()


@pytest.fixture(scope="package")  # even an idle site takes a quarter of a core from other tests
def running_site(
    tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Iterator[LiveSite]:
    site = LiveSite(tmp_path_factory.mktemp("web"), free_ports)
    try:
        site.start()
        yield site
    finally:
        site.close()


@pytest.fixture
def site(running_site: LiveSite) -> LiveSite:
    """Three nodes, all serving, whatever the test before did to them."""
    missing = [node for node in range(3) if not running_site.runs(node)]
    if missing:
        running_site.start(*missing)
    return running_site


@pytest.fixture
def window(browser: Browser, site: LiveSite) -> Iterator[Windows]:
    """`window("alice", node=1)`: a browser of her own, signed in on that node."""
    windows: list[Window] = []

    def open_window(user: str, node: int = 0, **options: object) -> Window:
        windows.append(Window(browser, site, user, node, **options))
        return windows[-1]

    yield open_window
    faults = [fault for each in windows for fault in each.close()]
    assert faults == []


@pytest.fixture(scope="module")
def windows_kept(chromium: Chromium) -> Iterator[dict[str, Window]]:
    """By user, for all tests of a file: to open one takes most of a second."""
    windows: dict[str, Window] = {}
    yield windows
    chromium.take_out()
    for each in windows.values():
        each.close()
    chromium.put_away()


@pytest.fixture
def kept(browser: Browser, site: LiveSite, windows_kept: dict[str, Window]) -> Iterator[Kept]:
    """`kept("alice", 0)`: a window of hers on that node, opened by an earlier test or now. No
    dialog is open in it, and its mouse is nowhere."""

    def window(user: str, node: int) -> Window:
        found = windows_kept.pop(user, None)
        if found is not None and not found.is_at(node):  # its node was killed
            found.close()
            found = None
        if found is None:
            found = Window(browser, site, user, node)
        found.page.set_viewport_size(SIZE)
        found.page.mouse.move(0, 0)
        found.page.keyboard.press("Escape")
        windows_kept[user] = found
        return found

    yield window
    assert [fault for each in windows_kept.values() for fault in each.faults] == []


@pytest.fixture(scope="package")
def one_page(chromium: Chromium) -> Iterator[Page]:
    """A page that finds the tree's web folder at https://pages.invalid/web/, and no network."""
    chromium.take_out()
    context = chromium.browser.new_context()
    context.set_default_timeout(HUNG_S * 1000)
    web = Path(__file__).resolve().parents[2] / "appliance" / "web"

    def answer(route: object) -> None:
        path = web / route.request.url.partition("/web/")[2]
        if path.is_file():
            route.fulfill(path=path)
        else:
            route.fulfill(body="<!doctype html>", content_type="text/html")

    context.route("**/*", answer)
    page = context.new_page()
    chromium.put_away()
    yield page
    chromium.take_out()
    context.close()
    chromium.put_away()


@pytest.fixture
def blank(browser: Browser, one_page: Page) -> Page:
    """That page, as nobody has used it: what an earlier test has loaded is gone."""
    one_page.goto("https://pages.invalid/")
    one_page.evaluate("() => { localStorage.clear(); sessionStorage.clear() }")
    return one_page
