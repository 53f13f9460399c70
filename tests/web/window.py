"""A chat page in a browser of its own, driven as a reader and writer would."""

import re
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, ViewportSize
from playwright.sync_api import expect as expect_once

from tests.patience import HUNG_S
from tests.web.site import LiveSite, wait_for

# Playwright looks at once and when the time is over, in between ever more rarely: each half second
# at what it waits long for. So rounds begin briefly; a machine for which they are too brief to look
# even once has longer ones soon.
ROUND_MS, ROUND_MS_MAX = 50.0, 2_000.0
SIZE: ViewportSize = {"width": 1000, "height": 700}


def without_webtransport(context: BrowserContext) -> None:
    """As a browser that has none: its pages, once they are loaded anew, speak by WebSocket."""
    context.add_init_script("delete globalThis.WebTransport")


class Expected:
    """What `expect` gives: the assertions of Playwright's own, each waited for."""

    def __init__(self, actual: Page | Locator) -> None:
        self._expected = expect_once(actual)

    def __getattr__(self, name: str) -> Callable[..., None]:
        holds = getattr(self._expected, name)

        def wait(*arguments: Any, **options: Any) -> None:
            deadline, round_ms = time.monotonic() + HUNG_S, ROUND_MS
            while True:
                try:
                    return holds(*arguments, **options, timeout=round_ms)
                except AssertionError:
                    if time.monotonic() > deadline:
                        raise
                    round_ms = min(1.5 * round_ms, ROUND_MS_MAX)

        return wait


def expect(actual: Page | Locator) -> Any:
    """As Playwright's `expect`, in rounds so short that it looks often, for as long as others."""
    return Expected(actual)


class Window:
    """Everything a test does with one window. Notes page errors and requests to other hosts."""

    def __init__(
        self,
        browser: Browser,
        site: LiveSite,
        user: str,
        node: int,
        prepare: Callable[[BrowserContext], None] = lambda context: None,
        **options: Any,
    ) -> None:
        """`prepare` says what this browser's network does, before the page is there."""
        self.user, self.site = user, site
        self._context = browser.new_context(ignore_https_errors=True, viewport=SIZE, **options)
        self._context.set_default_timeout(HUNG_S * 1000)
        self.faults: list[str] = []
        self._context.on("page", self._watch)
        self._context.on("request", self._on_request)
        prepare(self._context)
        self.page = self._context.new_page()
        self.page.goto(f"{site.chat_url(node)}#token={site.token(user)}")
        self.wait_live()

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.faults.append(f"{self.user}: {error}"))
        page.on("console", self._on_console)

    def _on_console(self, message: Any) -> None:
        if "Content Security Policy" in message.text or "Refused to" in message.text:
            self.faults.append(f"{self.user}: {message.text}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(("https://127.0.0.1:", "wss://127.0.0.1:")):
            self.faults.append(f"{self.user}: asked {request.url}")

    def close(self) -> list[str]:
        self._context.close()
        return self.faults

    def wait_live(self) -> None:
        expect(self.page.locator(".connection")).to_have_attribute("data-link", "live")

    @property
    def node(self) -> int:
        words = self.page.inner_text(".connection .words")
        found = re.fullmatch(r"Connected to node (\d+)", words)
        assert found is not None, words
        return int(found[1])

    def is_at(self, node: int) -> bool:
        """Whether it is connected to that node."""
        return self.page.inner_text(".connection .words") == f"Connected to node {node}"

    def create(self, room: str) -> None:
        """Make the room, or enter it if it is there."""
        self.page.get_by_role("button", name="Create a room").click()
        self.page.get_by_label("Name of the room").fill(room)
        self.page.keyboard.press("Enter")
        expect(self.page.locator(".title h2")).to_have_text(room)
        self.wait_loaded()

    def open(self, room: str) -> None:
        """Wait for the room to be listed, and go there."""
        line = self.page.locator(f'[data-room="{room}"]')
        expect(line).to_be_visible()
        line.click()
        expect(self.page.locator(".title h2")).to_have_text(room)
        self.wait_loaded()

    def wait_loaded(self) -> None:
        expect(self.page.locator(".beginning")).not_to_have_text("Loading…")

    def write(self, text: str) -> None:
        self.page.locator("#message").fill(text)
        self.page.keyboard.press("Enter")

    def texts(self, state: str | None = None) -> list[str]:
        """The bodies in sight or scrolled away, in order; of one state only if it is given."""
        chosen = ".text" if state is None else f'.text[data-state="{state}"]'
        return self.page.locator(f"{chosen} .body").all_text_contents()

    def ops(self) -> list[int]:
        found = self.page.locator(".text").evaluate_all("nodes => nodes.map(n => n.dataset.op)")
        return [int(op) for op in found if op is not None]

    def wait_text(self, text: str, state: str = "acknowledged", seconds: float = HUNG_S) -> float:
        return wait_for(
            lambda: text in self.texts(state), f"{self.user} to see {text[:40]!r}", seconds
        )


Windows = Callable[..., Window]  # `window("anna")`: a chat page of hers, on a node
Kept = Callable[[str, int], Window]  # `kept("anna", 0)`: one that an earlier test may have opened
