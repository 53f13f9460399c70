"""The views of the screen, its keys, and how an act is chosen, confirmed and done."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Event, Key, Resize
from textual.widgets._input import Input
from textual.widgets._static import Static

from appliance.base.errors import ApplianceError
from appliance.cores.console.cells import BAD, FAINT, GOOD, PLAIN, WARN, Cell
from appliance.cores.console.model import SiteSnapshot
from appliance.cores.console.small_screen import (
    Line,
    act_lines,
    alarm_lines,
    member_lines,
    overview_lines,
)
from appliance.roles.console.screen.content import shown
from appliance.roles.console.screen.port import Port

VIEWS = ("Overview", "Alarms", "Members", "Log", "Network", "Acts")
OVERVIEW, ALARMS, MEMBERS, LOG, NETWORK, ACTS = range(len(VIEWS))
POLL_S = 1.0
IDLE_S = 600.0  # without a key, then it is locked again
COLUMNS = 20  # that left and right move by
FAILURES = (ApplianceError, OSError)  # that are told, and tried again: the screen goes on
SECRET_SIZE_MAX = 64  # characters that are typed


@dataclass(slots=True)
class _Chosen:
    """An act that waits to be confirmed, or is under way."""

    offer: dict[str, Any]
    is_begun: bool = False


class ConsoleScreen(App[None]):
    """Shows `port`, polled each second, until it is left."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    AUTO_FOCUS = None  # keys are for the views until something is asked
    INLINE_PADDING = 0
    CSS = """
    Static { width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
    #head, #tabs, #keys { height: 1; }
    #body { height: 1fr; }
    #said { height: auto; max-height: 5; text-wrap: wrap; }
    #typed { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel")]  # of what is typed

    def __init__(self, port: Port) -> None:
        super().__init__()
        self.theme = "ansi-dark"  # the terminal's own colours
        self._port = port
        self._view, self._top, self._left, self._row = OVERVIEW, 0, 0, 0
        self._chosen: _Chosen | None = None
        self._offered: tuple[SiteSnapshot, list[dict[str, Any]]] | None = None
        self._log_lines: list[Line] = []
        self._seen = False  # a first poll has ended
        self._touched_s = time.monotonic()
        self._was_locked = port.is_locked  # at the start
        self._keys: dict[str, Callable[[], object]] = {
            **{str(view + 1): partial(self._go_to, view) for view in range(len(VIEWS))},
            "up": partial(self._move, -1),
            "down": partial(self._move, 1),
            "pageup": partial(self._turn, -1),
            "pagedown": partial(self._turn, 1),
            "left": partial(self._shift, -COLUMNS),
            "right": partial(self._shift, COLUMNS),
            "enter": self._choose,
            "escape": self.action_cancel,
            "s": self._ask_secret,
            "l": lambda: self.run_worker(self._lock(), name="lock"),
            "o": lambda: self.run_worker(self._show_new_secret(), name="secret"),
            "q": self._leave,
        }

    def compose(self) -> ComposeResult:
        for name in ("head", "tabs", "body", "said"):
            yield Static(id=name, markup=False)
        typed = Input(id="typed", compact=True, max_length=SECRET_SIZE_MAX, select_on_focus=False)
        typed.display, typed.disabled = False, True
        yield typed
        yield Static(id="keys", markup=False)

    def on_mount(self) -> None:
        self.run_worker(self._watch(), name="watch")

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self._draw)

    async def on_event(self, event: Event) -> None:
        """Keys are taken one by one as they come: what is typed right behind one that asks for
        something is for the field, and what no view knows does nothing."""
        if isinstance(event, Key):
            self._touched_s = time.monotonic()
            if not self.query("#typed"):
                return  # nothing is drawn yet
            if not self._typed.display and not event.is_forwarded:
                self._keys.get(event.key, lambda: None)()
                return
        await super().on_event(event)

    # --- looking

    async def _watch(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                await self._port.poll()
                self._seen = True
                if self._view == LOG:
                    await self._read_log()
            except FAILURES as error:
                self._say(str(error), BAD)
            if self._is_open and time.monotonic() > self._touched_s + IDLE_S:
                await asyncio.to_thread(self._port.lock)
                self._put_away()
                self._say("Locked, as no key was pressed for a while.")
            self._draw()
            await asyncio.sleep(max(0.0, began_s + POLL_S - time.monotonic()))

    async def _read_log(self) -> None:
        self._log_lines = await asyncio.to_thread(self._port.log)
        self._draw()

    @property
    def _is_open(self) -> bool:
        """Whether somebody signed in here."""
        return self._was_locked and not self._port.is_locked

    def _lines(self) -> list[Line]:
        if not self._seen:
            return [(Cell("asking …", FAINT),)]
        console, width = self._port.console, self.size.width
        views: dict[int, Callable[[], list[Line]]] = {
            OVERVIEW: lambda: overview_lines(console, self._port.start),
            ALARMS: lambda: alarm_lines(console, width),
            MEMBERS: lambda: member_lines(console),
            LOG: lambda: self._log_lines or [(Cell("reading …", FAINT),)],
            NETWORK: self._port.network,
            ACTS: lambda: act_lines(self._offers(), self._row, width),
        }
        return views[self._view]()

    def _offers(self) -> list[dict[str, Any]]:
        """What may be done as of the last poll."""
        seen = self._port.console.seen()
        if self._offered is None or self._offered[0] is not seen:
            self._offered = seen, self._port.offers()
        return self._offered[1]

    def _draw(self) -> None:
        """All of it, from what is known now."""
        lines = self._lines()
        height = max(1, self.query_one("#body", Static).size.height)
        self._top = max(0, min(self._top, len(lines) - height))
        self._put("body", lines[self._top : self._top + height], self._left)
        self._put("head", [self._head(len(lines), height)])
        self._put("tabs", [tuple(map(self._tab, range(len(VIEWS))))])
        self._put("keys", [self._help()])

    def _put(self, name: str, lines: list[Line], left: int = 0) -> None:
        self.query_one(f"#{name}", Static).update(shown(lines, left))

    def _say(self, text: str, tone: str = PLAIN) -> None:
        """One sentence below the view; empty: none."""
        self._put("said", [(Cell(text, tone),)] if text else [])

    def _head(self, count: int, height: int) -> Line:
        lock = Cell("locked", WARN) if self._port.is_locked else Cell("signed in", GOOD)
        below = count - self._top - height
        return (
            Cell(f"TigerChat  {self._port.name}"),
            Cell(f"{time.strftime('%H:%M:%S', time.gmtime())} UTC", FAINT),
            *((lock,) if self._was_locked else ()),
            *((Cell(f"{below} lines below", WARN),) if below > 0 else ()),
        )

    def _tab(self, view: int) -> Cell:
        word = f"{view + 1} {VIEWS[view]}"
        return Cell(f"[{word}]" if view == self._view else f" {word} ", PLAIN)

    def _help(self) -> Line:
        if self._chosen is not None and self._chosen.is_begun:
            words = "under way"
        elif self._typed.display or self._chosen is not None:
            words = "Enter does it   Escape goes back"
        else:
            sign = "s signs in" if self._port.is_locked else "l locks" if self._was_locked else ""
            choose = "Enter chooses" if self._view == ACTS else ""
            leave = "" if self._was_locked else "o new secret   q leaves"
            parts = ("1-6 views", "arrows, PgUp, PgDn move", choose, sign, leave)
            words = "   ".join(part for part in parts if part)
        return (Cell(words, FAINT),)

    # --- keys

    def _go_to(self, view: int) -> None:
        if self._chosen is None:
            self._view, self._top, self._left, self._row = view, 0, 0, 0
            self._say("")
            self._draw()
            if view == LOG and self._seen:
                self.run_worker(self._read_log(), name="log")

    def _move(self, by: int) -> None:
        if self._view == ACTS and self._chosen is None:
            count = len(self._offers()) if self._seen else 0
            self._row = max(0, min(self._row + by, count - 1))
            height = max(1, self.query_one("#body", Static).size.height)
            self._top = min(max(self._top, self._row - height + 2), self._row)
        else:
            self._top += by
        self._draw()

    def _turn(self, by: int) -> None:
        self._top += by * max(1, self.query_one("#body", Static).size.height - 1)
        self._draw()

    def _shift(self, by: int) -> None:
        self._left = max(0, self._left + by)
        self._draw()

    def action_cancel(self) -> None:
        if self._chosen is None or not self._chosen.is_begun:
            self._put_away()
            self._say("")
            self._draw()

    def _leave(self) -> None:
        if not self._was_locked:
            self.exit()

    async def action_quit(self) -> None:
        """The library's own key."""
        self._leave()

    def action_help_quit(self) -> None:
        """Nothing: the last line names the keys."""

    # --- signing in

    @property
    def _typed(self) -> Input:
        return self.query_one("#typed", Input)

    def _ask(self, *, secret: bool) -> None:
        field = self._typed
        field.value, field.password = "", secret
        field.display, field.disabled = True, False
        self.set_focus(field)  # at once: what was typed quickly is for it

    def _put_away(self) -> None:
        """What was typed, and an act that was not confirmed."""
        field = self._typed
        self.set_focus(None)
        field.value, field.display, field.disabled = "", False, True
        self._chosen = None

    def _ask_secret(self) -> None:
        if self._port.is_locked and self._chosen is None:
            self._say(
                "The one-time secret that the console of this node printed last (its journal has "
                "it):"
            )
            self._ask(secret=True)
            self._draw()

    async def _show_new_secret(self) -> None:
        """For the page; never where it was locked at the start."""
        if self._was_locked or self._chosen is not None:
            return
        try:
            secret = await asyncio.to_thread(self._port.new_secret)
        except FAILURES as error:
            self._say(str(error), BAD)
        else:
            self._say(f"One-time secret for the page, for half an hour: {secret}")

    async def _lock(self) -> None:
        if self._is_open and self._chosen is None:
            await asyncio.to_thread(self._port.lock)
            self._say("Locked.")
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if self._chosen is not None:
            self._begin(text)
            return
        self._put_away()
        self.run_worker(self._sign_in(text), name="sign-in")

    async def _sign_in(self, secret: str) -> None:
        try:
            await asyncio.to_thread(self._port.sign_in, secret)
        except FAILURES as error:
            self._say(str(error), BAD)
        else:
            self._say("Signed in: 6 shows what may be done.", GOOD)
        self._draw()

    # --- acts

    def _choose(self) -> None:
        if self._chosen is not None:
            if not self._typed.display and not self._chosen.is_begun:
                self._begin("")
            return
        if self._view != ACTS or not self._seen:
            return
        offers = self._offers()
        if not offers:
            return
        offer = offers[min(self._row, len(offers) - 1)]
        if offer["refusal"]:
            self._say(f"refused: {offer['refusal']}", WARN)
        elif self._port.is_locked:
            self._say("Locked: s signs in, with the secret that the console printed last.", WARN)
        else:
            self._chosen = _Chosen(offer)
            name = offer["typed"]
            self._say(
                offer["sentence"] + (f" Type {name} to say that it is meant:" if name else "")
            )
            if name:
                self._ask(secret=False)
        self._draw()

    def _begin(self, typed: str) -> None:
        chosen = self._chosen
        assert chosen is not None
        self._put_away()
        self._chosen = _Chosen(chosen.offer, is_begun=True)
        self._say(f"{chosen.offer['sentence']} …")
        self._draw()
        self.run_worker(self._carry_out(chosen.offer, typed), name="act")

    async def _carry_out(self, offer: dict[str, Any], typed: str) -> None:
        try:
            await asyncio.to_thread(self._port.carry_out, offer, typed)
        except FAILURES as error:
            self._say(str(error), BAD)
        else:
            self._say(f"Done, and seen: {offer['sentence']}", GOOD)
        self._chosen = None
        self._draw()
