"""The views of the screen, its keys, and how an act is chosen, confirmed and done."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Event, Key, Resize
from textual.widgets._input import Input
from textual.widgets._static import Static

from appliance.base.errors import ApplianceError
from appliance.base.printable import one_line
from appliance.cores.console.cells import BAD, FAINT, GOOD, PLAIN, WARN, Cell
from appliance.cores.console.small_screen import (
    Line,
    act_lines,
    act_offers,
    alarm_lines,
    alarm_offers,
    marked,
    member_lines,
    overview_lines,
    wrapped,
)
from appliance.formats.status.console import SEEN
from appliance.roles.console.screen.chosen import Chosen
from appliance.roles.console.screen.content import shown
from appliance.roles.console.screen.offered import Offered
from appliance.roles.console.screen.port import Port

VIEWS = ("Overview", "Alarms", "Members", "Log", "Network", "Acts")
OVERVIEW, ALARMS, MEMBERS, LOG, NETWORK, ACTS = range(len(VIEWS))
POLL_S, IDLE_S = 1.0, 600.0  # between two looks; without a key, then it is locked again
COLUMNS = 20  # that left and right move by
FAILURES = (ApplianceError, OSError)  # that are told, and tried again: the screen goes on
SECRET_SIZE_MAX, ANSWER_SIZE_MAX = 64, 300  # characters that are typed
SAID_LINES = 6  # below the view, at most
ALARM_LINES, ACT_LINES = 7, 5  # are to be seen of what is marked: most have no more
WHICH_SECRET = "The one-time secret that this node's console printed last (its journal has it):"


class ConsoleScreen(App[None]):
    """Shows `port`, polled each second, until it is left."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    AUTO_FOCUS = None  # keys are for the views until something is asked
    INLINE_PADDING = 0
    CSS = f"""
    Static {{ width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }}
    #head, #tabs, #typed, #keys {{ height: 1; }}
    #body {{ height: 1fr; }}
    #said {{ height: auto; max-height: {SAID_LINES}; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel")]  # of what is typed

    def __init__(self, port: Port) -> None:
        super().__init__()
        self.theme = "ansi-dark"  # the terminal's own colours
        self._port = port
        self._view, self._top, self._left, self._offered = OVERVIEW, 0, 0, Offered()
        self._chosen: Chosen | None = None
        self._given: list[Line] = []  # by the act that ended last, until it is put away
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
                elif self._view == ALARMS:
                    await self._port.read_seen()
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
        if not self._seen or self._given:
            return self._given or [(Cell("asking …", FAINT),)]
        console, width = self._port.console, self.size.width
        offers, row = self._offers(), self._offered.row
        views: dict[int, Callable[[], list[Line]]] = {
            OVERVIEW: lambda: overview_lines(console, self._port.start),
            ALARMS: lambda: alarm_lines(console, width, row),
            MEMBERS: lambda: member_lines(console),
            LOG: lambda: self._log_lines or [(Cell("reading …", FAINT),)],
            NETWORK: self._port.network,
            ACTS: lambda: act_lines(offers, row, width),
        }
        return views[self._view]()

    def _offers(self) -> list[dict[str, Any]]:
        """What may be done in this view, as of the last poll."""
        return self._offered.now(self._port.console) if self._seen else []

    def _draw(self) -> None:
        """All of it, from what is known now; nothing while it comes or goes."""
        if not self.query("#keys"):
            return
        lines = self._lines()
        height = max(1, self.query_one("#body", Static).size.height)
        least = marked(lines) - height + 1 if self._waits else 0  # what was chosen is to be seen
        self._top = max(0, least, min(self._top, len(lines) - height))
        self._put("body", lines[self._top : self._top + height], self._left)
        self._put("head", [self._head(len(lines), height)])
        self._put("tabs", [tuple(map(self._tab, range(len(VIEWS))))])
        self._put("keys", [self._help()])

    def _put(self, name: str, lines: list[Line], left: int = 0) -> None:
        for part in self.query(f"#{name}").results(Static):  # none is left of a screen that goes
            part.update(shown(lines, left))

    def _say(self, text: str, tone: str = PLAIN) -> None:
        """One sentence below the view; empty: none."""
        self._put("said", wrapped(one_line(text), self.size.width, tone))

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
        begin, end = "[]" if view == self._view else "  "
        return Cell(f"{begin}{view + 1} {VIEWS[view]}{end}", PLAIN)

    def _help(self) -> Line:
        if self._given:
            words = "arrows, PgUp, PgDn move   Escape puts it away: it is shown once"
        elif self._chosen is not None and len(self._chosen.unanswered) > 1:
            words = "Enter goes on   Escape goes back"
        elif self._typed.display or self._waits:
            words = "Enter does it   Escape goes back"
        elif self._chosen is not None:
            words = "under way   1-6 views   Escape: wait for it no more, it goes on"
        else:
            sign = "s signs in" if self._port.is_locked else "l locks" if self._was_locked else ""
            choose = {ACTS: "Enter chooses", ALARMS: "Enter: seen"}.get(self._view, "")
            leave = "" if self._was_locked else "o new secret   q leaves"
            parts = ("1-6 views", "arrows, PgUp, PgDn move", choose, sign, leave)
            words = "   ".join(part for part in parts if part)
        return (Cell(words, FAINT),)

    # --- keys

    def _go_to(self, view: int) -> None:
        if self._waits:
            return
        self._view, self._top, self._left = view, 0, 0
        finds = {ALARMS: alarm_offers, ACTS: act_offers}
        self._given, self._offered = [], Offered(finds.get(view))
        if self._chosen is None:
            self._say("")
        self._draw()
        if view == LOG and self._seen:
            self.run_worker(self._read_log(), name="log")

    def _move(self, by: int) -> None:
        offers = [] if self._given or self._waits else self._offers()
        if offers:
            self._offered.mark(self._offered.row + by)
            height = max(1, self.query_one("#body", Static).size.height)
            at, size = marked(self._lines()), ACT_LINES if self._view == ACTS else ALARM_LINES
            self._top = min(max(self._top, at + size - height), at)
        else:
            self._top += by
        self._draw()

    def _turn(self, by: int) -> None:
        count = by * max(1, self.query_one("#body", Static).size.height - 1)
        if self._view == ACTS:
            self._move(count)  # a line each: what is marked stays to be seen
        else:
            self._top += count
            self._draw()

    def _shift(self, by: int) -> None:
        self._left = max(0, self._left + by)
        self._draw()

    def action_cancel(self) -> None:
        if self._chosen is None or self._waits or self._typed.display:
            self._put_away()
            self._say("")
            self._draw()
        else:
            self._chosen.enough.set()

    def _leave(self) -> None:
        if not self._was_locked:
            if self._chosen is not None:
                self._chosen.enough.set()
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

    def _ask(self, usual: str = "", *, secret: bool) -> None:
        field = self._typed
        field.max_length = SECRET_SIZE_MAX if secret else ANSWER_SIZE_MAX
        field.value, field.password = usual, secret
        field.cursor_position = len(usual)
        field.display, field.disabled = True, False
        self.set_focus(field)  # at once: what was typed quickly is for it

    def _put_away(self) -> None:
        """What was typed or given, and an act that has not begun."""
        field = self._typed
        self.set_focus(None)
        field.value, field.display, field.disabled = "", False, True
        self._given = []
        if self._waits:
            self._chosen = None

    def _ask_secret(self) -> None:
        if self._port.is_locked and not self._waits:
            self._say(WHICH_SECRET)
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
        if self._is_open:
            await asyncio.to_thread(self._port.lock)
            self._put_away()
            self._say("Locked.")
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if self._chosen is not None and self._waits:
            if why := self._chosen.answer(text):
                self._say(why, WARN)
            else:
                self._go_on()
            self._draw()
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

    @property
    def _waits(self) -> bool:
        """For an act that was chosen to be confirmed."""
        return self._chosen is not None and not self._chosen.is_begun

    def _choose(self) -> None:
        if self._waits:
            if not self._typed.display:
                self._begin()
            return
        offers = [] if self._given or self._chosen is not None else self._offers()
        if not offers:
            return
        offer = offers[self._offered.row]
        if offer["refusal"]:
            self._say(f"refused: {offer['refusal']}", WARN)
        elif self._port.is_locked:
            self._say("Locked: s signs in, with the secret that the console printed last.", WARN)
        else:
            self._chosen = Chosen(offer)
            if self._chosen.unanswered:
                self._go_on()
            else:
                self._say(offer["sentence"])
        self._draw()

    def _go_on(self) -> None:
        """Ask what is not answered yet, or begin."""
        chosen = self._chosen
        assert chosen is not None
        if (question := chosen.question()) is None:
            self._begin()
            return
        self._say(f"{chosen.offer['sentence']} {question.prompt}")
        self._ask(question.usual, secret=False)

    def _begin(self) -> None:
        chosen = self._chosen
        assert chosen is not None and chosen.question() is None
        chosen.is_begun = True
        self._put_away()
        self._say(f"{chosen.offer['sentence']} …")
        self._draw()
        self.run_worker(self._carry_out(chosen), name="act")

    async def _carry_out(self, chosen: Chosen) -> None:
        offer, wanted = chosen.offer, (chosen.typed, chosen.written, chosen.enough)
        try:
            ended = await asyncio.to_thread(self._port.carry_out, offer, *wanted)
        except FAILURES as error:
            self._say(str(error), BAD)
        else:
            words = ", and seen" if ended.words == SEEN else f", {ended.words}"
            self._say(f"Done{words}: {offer['sentence']}", GOOD)
            if ended.text and not self._port.is_locked:
                self._given, self._top, self._left = wrapped(ended.text, self.size.width), 0, 0
        self._chosen = None
        self._draw()
