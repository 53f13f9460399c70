"""The console's screen, by the library's own pilot: what stands on it, and what its keys do.

Sites are those of the core's tests, without processes; what the screen asks of one is noted.
"""

import asyncio
import contextlib
import dataclasses
import re
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets._input import Input

from appliance.base.errors import StorageError
from appliance.cores.console.cells import Cell
from appliance.cores.console.console import Console
from appliance.cores.console.model import Source
from appliance.cores.console.small_screen import Line, act_offers
from appliance.formats.site_view import SiteView
from appliance.formats.status.console import SEEN
from appliance.roles.console.screen import app as app_module
from appliance.roles.console.screen.app import SAID_LINES, VIEWS, ConsoleScreen
from appliance.roles.console.screen.asking import GOES_ON
from appliance.roles.console.screen.chosen import Chosen
from appliance.roles.console.screen.port import Ended
from tests.cores.console.test_small_screen import every_console, kept
from tests.cores.console.worlds import WALL_MS, Raw, healthy, poll, site
from tests.patience import HUNG_S
from tests.roles.wired_site import until

SECRET = "AAAA-BBBB-CCCC-DDDD"
STRANGE = "[red]x[/red]\x1b[2J\x9b31m\u202e"


class Scripted:
    """A site that says the same at each poll. What it is asked to do is in `carried`."""

    name = "node-0"
    start = "`tigerchat start --local run`"

    def __init__(self, answers: Raw, *, locked: bool = False, names: str = "node-{}") -> None:
        described = site()
        nodes = [dataclasses.replace(n, name=names.format(n.index)) for n in described.nodes]
        self.console = Console(SiteView(dataclasses.replace(described, nodes=nodes)))
        self.answers, self._locked, self._signed_in = answers, locked, False
        self.carried: list[tuple[str, dict[str, Any], str]] = []
        self.written: dict[str, str] = {}  # for the act that was carried out last
        self.ends = Ended(SEEN)
        self.may_end = threading.Event()
        self.may_end.set()
        self.seen_by = ""  # each alarm, as the console says
        self.polls = 0
        self.log_text = "a line"
        self.refuses = ""
        self.let_go = 0  # acts for which nobody waited any more

    async def poll(self) -> None:
        poll(self.console, self.answers, now_ms=1000 * self.polls, wall_ms=WALL_MS)
        self.polls += 1

    def network(self) -> list[Line]:
        return [(Cell("a network"),)]

    def log(self) -> list[Line]:
        return [(Cell(self.log_text),)]

    async def read_seen(self) -> None:
        for name, subject in self.console.life.holds if self.seen_by else ():
            self.console.life.see(name, subject, self.seen_by, WALL_MS)

    @property
    def is_locked(self) -> bool:
        return self._locked and not self._signed_in

    def sign_in(self, secret: str) -> None:
        if secret != SECRET:
            raise StorageError("this is not the secret printed last")
        self._signed_in = True

    def new_secret(self) -> str:
        return SECRET

    def lock(self) -> None:
        self._signed_in = False

    def carry_out(
        self,
        offer: dict[str, Any],
        typed: str,
        written: dict[str, str],
        enough: threading.Event,
    ) -> Ended:
        if self.refuses:
            raise StorageError(self.refuses)
        self.carried.append((offer["act"], offer["about"], typed))
        self.written = written
        begun = time.monotonic()
        while not self.may_end.wait(0.01):
            assert time.monotonic() < begun + HUNG_S
            if enough.is_set():
                self.let_go += 1
                raise StorageError(GOES_ON)
        return self.ends


def text_on(screen: ConsoleScreen) -> str:
    """All 24 lines, as they are drawn."""
    strips = screen.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


class Person:
    """Presses keys, and waits for what is to be seen then."""

    def __init__(self, pilot: Pilot[None], screen: ConsoleScreen) -> None:
        self.pilot, self.screen = pilot, screen

    async def press(self, *keys: str) -> str:
        await self.pilot.press(*keys)
        await self.pilot.pause()
        return text_on(self.screen)

    async def sees(self, words: str) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HUNG_S):
                while words not in text_on(self.screen):
                    assert self.screen.is_running, "it has ended"
                    await self.pilot.pause(0.01)
        text = text_on(self.screen)
        assert words in text, text
        return text

    async def choose(self, label: str) -> str:
        """In the view of acts, go to that line."""
        text = await self.press("6")
        for _ in range(200):
            if f">  {label}" in text:
                return text
            text = await self.press("down")
        raise AssertionError(f"no {label} in {text}")


@asynccontextmanager
async def person(port: Scripted) -> AsyncIterator[Person]:
    screen = ConsoleScreen(port)
    async with screen.run_test(size=(80, 24)) as pilot:
        found = Person(pilot, screen)
        await found.sees("shard")
        yield found


Story = Callable[[Person], Any]


def told(port: Scripted, story: Story) -> None:
    async def run() -> None:
        async with person(port) as found:
            await story(found)

    asyncio.run(run())


def test_the_overview_stands_on_80_by_24_with_its_keys() -> None:
    async def story(person: Person) -> None:
        lines = text_on(person.screen).split("\n")
        assert len(lines) == 24 and max(map(len, lines)) <= 80
        assert re.match(r"TigerChat  node-0  \d\d:\d\d:\d\d UTC$", lines[0])
        assert lines[1].split() == "[1 Overview] 2 Alarms 3 Members 4 Log 5 Network 6 Acts".split()
        assert lines[2] == "No alarms."
        assert "0      1        node-1  backup   normal    0    0.42 ms        –" in lines
        assert lines[-1].startswith("1-6 views") and lines[-1].endswith("q leaves")

    told(Scripted(healthy()), story)


def test_each_view_has_its_key() -> None:
    signs = ["committed op", "edge_down", "connections", "a line", "a network", "Drain node-0"]

    async def story(person: Person) -> None:
        for number, (view, sign) in enumerate(zip(VIEWS, signs, strict=True), start=1):
            await person.press(str(number))
            await person.sees(f"[{number} {view}]")
            await person.sees(sign)

    told(Scripted({**kept(), Source("edge", 2, 0): None}), story)


def test_with_the_site_down_it_works_and_says_what_next() -> None:
    async def story(person: Person) -> None:
        text = text_on(person.screen)
        assert "Nothing of this node answers" in text and "tigerchat start --local run" in text
        assert "What to do: " in await person.press("2")

    told(Scripted(dict.fromkeys(healthy())), story)


def test_text_of_strangers_is_shown_and_never_obeyed() -> None:
    async def story(person: Person) -> None:
        for key in "123456":
            await person.press(key)
            text = await person.sees("[red]x[/red]" if key != "5" else "a network")
            assert all(each.isprintable() or each == "\n" for each in text), repr(text)
        await person.choose("Drain")
        await person.press("enter")
        await person.sees("sends its 21 chat clients")
        strips = person.screen.screen._compositor.render_strips()
        segments = [part for strip in strips for part in strip]
        assert not any("\x1b" in part.text or "\x9b" in part.text for part in segments)
        assert person.screen.screen.query("#body").results(), "it is drawn"

    port = Scripted({**kept(), Source("edge", 2, 0): None}, names="n{}" + STRANGE)
    port.log_text = f"somebody said {STRANGE}"
    told(port, story)


def test_an_act_is_confirmed_and_told_as_done_when_it_was_seen() -> None:
    port = Scripted(kept())

    async def story(person: Person) -> None:
        await person.choose("Drain node-1")
        text = await person.press("enter")
        assert "node-1 sends its 21 chat clients to other nodes" in text
        assert "Enter does it   Escape goes back" in text and port.carried == []
        await person.press("escape", "enter", "enter")
        await person.sees("Done, and seen: node-1 sends")
        assert port.carried == [("drain", {"node": 1}, "")]

    told(port, story)


def test_where_a_quorum_is_at_stake_the_name_is_typed() -> None:
    port = Scripted(kept())

    async def story(person: Person) -> None:
        await person.choose("Stop replica-0 of node-2")
        assert "Type node-2 to say that it is meant:" in await person.press("enter")
        await person.press(*"node-2", "enter")
        await person.sees("Done, and seen: replica-0 of node-2 stops")
        assert port.carried == [("stop", {"node": 2, "process": "replica-0"}, "node-2")]

    told(port, story)


def test_what_an_act_asks_for_is_written_line_by_line() -> None:
    port = Scripted(kept())
    port.ends = Ended("made, and shown once to whoever asked", text=f"{'t' * 200}.end")

    async def story(person: Person) -> None:
        await person.choose("Make a token for a user")
        text = await person.press("enter")
        assert "who has it is that user." in text and "Name of the user:" in text
        assert "Enter goes on" in text
        assert "write first: Name of the user" in await person.press("enter")
        await person.press(*"anna", "enter")
        field = person.screen.query_one("#typed", Input)
        assert field.value == "*=read,send", "what is usual stands there"
        await person.press("escape")
        assert port.carried == [] and field.value == "", "it goes back from all of it"
        await person.press("enter", *"anna", "enter", "enter")
        assert field.value == "12h" and "Enter does it" in text_on(person.screen)
        await person.press("backspace", "backspace", "backspace", *"2h", "enter")
        text = await person.sees("Done, made, and shown once to whoever asked")
        assert port.carried == [("token", {}, "")]
        assert port.written == {"user": "anna", "rights": "*=read,send", "valid": "2h"}
        assert "t" * 80 in text and text.replace("\n", "").count("t" * 200 + ".end") == 1
        assert ".end" not in await person.press("escape"), "it was shown once"
        assert ".end" not in await person.press("6")

    told(port, story)


def test_what_follows_on_a_sentence_as_wide_as_the_screen_is_seen() -> None:
    port = Scripted(kept())
    sentence = "The room is there for everybody who may read it; one that exists stays as it is."
    assert len(sentence) == 80

    async def story(person: Person) -> None:
        await person.choose("Create a room")
        assert f"{sentence}\nName of the room:" in await person.press("enter")

    told(port, story)


def test_what_was_chosen_is_seen_while_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    port = Scripted(kept())
    monkeypatch.setattr(app_module, "POLL_S", 0.05)

    async def story(person: Person) -> None:
        await person.choose("Say who may read")  # the last of all
        await person.press("enter", *"general", "enter")
        polls = port.polls
        await until(lambda: port.polls > polls + 2)
        assert ">  Say who may read" in text_on(person.screen)

    told(port, story)


def test_a_name_is_typed_behind_what_is_written() -> None:
    port = Scripted(kept())

    async def story(person: Person) -> None:
        await person.choose("Set how long messages are kept")
        await person.press("enter", *["backspace"] * len("everything"), *"30", "enter")
        await person.sees("Type retention to say")
        await person.press(*"retention", "enter")
        await person.sees("Done, and seen")
        assert port.carried == [("retention-set", {}, "retention")]
        assert port.written == {"days": "30"}

    told(port, story)


def test_an_alarm_is_told_as_seen_in_its_view() -> None:
    port = Scripted(dict.fromkeys(healthy()))

    async def story(person: Person) -> None:
        await person.press("2")
        first, second = port.console.alarms()[:2]
        await person.sees(f">  {first.name}  {first.subject}")
        await person.press("down")
        await person.sees(f">  {second.name}  {second.subject}")
        assert "It is told who has seen the alarm" in await person.press("enter")
        await person.press("enter")
        await person.sees("Done, and seen")
        assert port.carried == [("alarm-seen", {}, "")]
        assert port.written == {"alarm": second.name, "subject": second.subject}
        port.seen_by = "console session 123456"
        await person.sees("seen by console session 123456")

    told(port, story)


def test_while_an_act_is_under_way_all_is_shown_and_no_other_begins() -> None:
    port = Scripted(kept())
    port.may_end.clear()

    async def story(person: Person) -> None:
        await person.choose("Read all that replica-0 of node-0 holds")
        await person.press("enter", "enter")
        await person.sees("under way")
        assert "[4 Log]" in await person.press("4")
        await person.choose("Drain node-1")
        await person.press("enter", "enter")
        assert [act for act, *_ in port.carried] == ["scrub"]
        port.may_end.set()
        await person.sees("Done, and seen: replica-0 of node-0 reads its volume")
        await person.press("enter", "enter")
        await person.sees("Done, and seen: node-1 sends")

    told(port, story)


def test_who_lets_an_act_go_does_another_one_and_who_leaves_is_not_held_up() -> None:
    port = Scripted(kept())

    async def story(person: Person) -> None:
        port.may_end.clear()
        for _ in range(2):
            await person.choose("Read all that replica-0 of node-0 holds")
            await person.press("enter", "enter")
            assert "Escape: wait for it no more" in await person.sees("under way")
            if port.let_go == 0:
                await person.press("escape")
                await person.sees("it goes on, and is waited for no more")
        await person.screen.action_quit()
        await until(lambda: not person.screen.is_running and port.let_go == 2)
        assert [act for act, *_ in port.carried] == ["scrub", "scrub"]

    told(port, story)


def test_who_locks_while_an_act_is_under_way_signs_in_again_and_it_goes_on() -> None:
    port = Scripted(kept(), locked=True)
    port.ends = Ended("shown", text="only for who began it")
    port.may_end.clear()

    async def story(person: Person) -> None:
        await person.press("s", *SECRET, "enter")
        await person.sees("signed in")
        await person.choose("See what is kept and dropped")
        await person.press("enter", "enter")
        await person.sees("under way")
        await person.press("l")
        await person.sees("Locked.")
        assert "secret that this node's console printed" in await person.press("s")
        assert "under way" in await person.press("escape") and not port.let_go
        port.may_end.set()
        assert "only for" not in await person.sees("Done, shown")

    told(port, story)


def test_what_is_marked_stays_so_when_other_lines_go(monkeypatch: pytest.MonkeyPatch) -> None:
    port = Scripted(kept())
    monkeypatch.setattr(app_module, "POLL_S", 0.05)

    async def story(person: Person) -> None:
        await person.choose("Drain node-1")
        port.answers = kept() | {Source("supervisor", 0, 0): None}  # nobody acts on node-0 then
        polls = port.polls
        await until(lambda: port.polls > polls + 2)
        assert ">  Drain node-1" in text_on(person.screen)
        await person.press("enter", "enter")
        await person.sees("Done, and seen: node-1 sends")

    told(port, story)


def test_a_page_down_in_a_list_of_acts_is_one_of_lines_to_choose() -> None:
    async def story(person: Person) -> None:
        first = (await person.press("6")).split("\n")[2:-1]
        text = await person.press("pagedown")
        (line,) = [line for line in text.split("\n") if line.startswith(">")]
        last = [line.strip() for line in first if line][-1]
        assert line.removeprefix(">").strip() == last, "the last that was seen"
        assert (await person.press("pageup")).split("\n")[2:-1] == first

    told(Scripted(kept()), story)


def test_each_act_says_and_asks_on_80_by_24_all_that_it_has_to() -> None:
    for console in every_console():
        for offer in act_offers(console):
            assert len(offer["label"]) <= 77, offer["label"]
            for question in ("", *(each.prompt for each in Chosen(offer).questions())):
                words = f"{offer['sentence']} {question}"
                assert len(textwrap.wrap(words, 80)) <= SAID_LINES, words
            words = f"refused: {offer['refusal']}"
            assert len(textwrap.wrap(words, 80)) <= SAID_LINES, words


def test_what_is_refused_is_told_in_the_sentence_of_the_table() -> None:
    port = Scripted(kept(stopped="replica-0"))

    async def story(person: Person) -> None:
        text = await person.choose("Stop replica-0 of node-2")
        assert "refused: without node-2 shard 0 has 1 of 2 needed replicas" in text
        await person.press("enter", "enter")
        assert port.carried == []
        port.refuses = "undone, as others have acted meanwhile"
        await person.choose("Start replica-0 of node-1")
        await person.press("enter", "enter")
        await person.sees("undone, as others have acted meanwhile")

    told(port, story)


def test_locked_it_shows_all_and_does_nothing_before_the_secret() -> None:
    port = Scripted(kept(), locked=True)

    async def story(person: Person) -> None:
        assert "locked" in text_on(person.screen).split("\n")[0]
        await person.choose("Drain node-1")
        assert "Locked: s signs in" in await person.press("enter")
        await person.press("enter", "q")
        assert port.carried == [] and person.screen.is_running, "there is no shell to leave to"
        await person.press("s", *"wrong", "enter")
        await person.sees("this is not the secret printed last")
        text = await person.press("s", *SECRET)
        assert "AAAA" not in text and person.screen.query_one("#typed", Input).value == SECRET
        await person.press("enter")
        await person.sees("signed in")
        assert person.screen.query_one("#typed", Input).value == ""
        await person.choose("Drain node-1")
        await person.press("enter", "enter")
        await person.sees("Done, and seen")
        assert "locked" in (await person.press("l")).split("\n")[0]
        await person.press("enter", "enter")
        assert len(port.carried) == 1

    told(port, story)


@pytest.mark.parametrize("locked", [False, True])
def test_a_new_secret_for_the_page_is_shown_where_nothing_is_locked(locked: bool) -> None:
    port = Scripted(kept(), locked=locked)

    async def story(person: Person) -> None:
        if locked:
            await person.press("s", *SECRET, "enter")
            await person.sees("signed in")
        await person.press("o")
        if not locked:
            await person.sees(f"for half an hour: {SECRET}")
        assert (SECRET in await person.press("down")) is not locked

    told(port, story)


def test_what_is_typed_at_once_loses_no_letter() -> None:
    """As it comes over a serial line, or from who types quickly."""
    port = Scripted(kept(), locked=True)

    async def story(person: Person) -> None:
        driver = person.screen._driver
        assert driver is not None
        for letter in f"s{SECRET}\r":
            names = {"-": "minus", "\r": "enter"}
            key = Key(names.get(letter, letter), None if letter == "\r" else letter)
            key.set_sender(person.screen)
            driver.send_message(key)
        await person.sees("Signed in: 6 shows what may be done.")

    told(port, story)


def test_it_locks_itself_when_nobody_presses_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    port = Scripted(kept(), locked=True)
    monkeypatch.setattr(app_module, "POLL_S", 0.1)

    async def story(person: Person) -> None:
        await person.press("s", *SECRET, "enter")
        await person.sees("signed in")
        await person.choose("Stop replica-0 of node-2")
        await person.press("enter")
        monkeypatch.setattr(app_module, "IDLE_S", 0.0)
        await person.sees("Locked, as no key was pressed for a while.")
        assert port.is_locked and port.carried == []

    told(port, story)


def test_what_was_given_is_not_left_on_a_screen_that_is_locked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = Scripted(kept(), locked=True)
    port.ends = Ended("shown", text="only for who signed in")
    monkeypatch.setattr(app_module, "POLL_S", 0.1)

    async def story(person: Person) -> None:
        await person.press("s", *SECRET, "enter")
        await person.sees("signed in")
        await person.choose("See what is kept and dropped")
        await person.press("enter", "enter")
        await person.sees("only for who signed in")
        with monkeypatch.context() as patched:
            patched.setattr(app_module, "IDLE_S", 0.0)
            assert "only for" not in await person.sees("Locked, as no key was pressed")
        await person.press("s", *SECRET, "enter")
        await person.sees("signed in")
        await person.press("enter", "enter")
        await person.sees("only for who signed in")
        assert "only for" not in await person.press("l")

    told(port, story)


def test_a_look_that_ends_while_the_screen_goes_draws_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = Scripted(healthy())
    monkeypatch.setattr(app_module, "POLL_S", 0.1)

    async def story(person: Person) -> None:
        await person.screen.query("Static").remove()
        polls = port.polls
        await until(lambda: port.polls >= polls + 3 or not person.screen.is_running)
        assert person.screen.is_running

    told(port, story)


def test_what_the_machine_refuses_is_told_and_the_screen_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = Scripted(healthy())
    monkeypatch.setattr(app_module, "POLL_S", 0.1)

    async def refused() -> None:
        raise PermissionError(13, "Permission denied", "site.toml")

    async def story(person: Person) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(port, "poll", refused)
            await person.sees("Permission denied: 'site.toml'")
        assert "[2 Alarms]" in await person.press("2")

    told(port, story)


def test_no_key_opens_anything_else() -> None:
    async def story(person: Person) -> None:
        for key in ("ctrl+p", "ctrl+z", "ctrl+c", "ctrl+o", "f1", "f12", "tab", "!", ":", "/"):
            await person.press(key)
            assert len(person.screen.screen_stack) == 1 and person.screen.is_running, key
        assert "[1 Overview]" in text_on(person.screen)

    told(Scripted(healthy(), locked=True), story)


def test_what_does_not_fit_is_told_and_moved_to() -> None:
    async def story(person: Person) -> None:
        text = await person.press("2")
        assert re.search(r"\d+ lines below$", text.split("\n")[0])
        assert "replica_down" not in text
        for _ in range(3):
            text = await person.press("pagedown")
        assert "replica_down  shard 0 on node-2" in text and "lines below" not in text
        await person.press("pageup", "pageup", "pageup")
        assert (await person.press("right")).split("\n")[2] != (await person.press("left")).split(
            "\n"
        )[2]

    told(Scripted(dict.fromkeys(healthy())), story)
