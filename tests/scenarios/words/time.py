"""How long a story goes on, and what it expects."""

from appliance.simulation.schedule import TICK_US
from tests.scenarios.sights import holds
from tests.scenarios.stage import WAIT_TICKS, Stage, StoryFailed
from tests.scenarios.story import Vocabulary

words = Vocabulary()


@words.line("run {n} ticks", "run {n} tick")
def run(stage: Stage, n: str) -> None:
    stage.run_us(stage.number(n) * TICK_US)


@words.line("run {n} ticks while {rest}")
def run_while(stage: Stage, n: str, rest: str) -> None:
    for _ in range(stage.number(n) * 4):
        stage.run_us(TICK_US // 4)
        if not holds(stage, rest):
            raise StoryFailed(f"it did not last: {rest}")


@words.line("run until {rest} within {n} ticks")
def run_until_soon(stage: Stage, rest: str, n: str) -> None:
    stage.until(lambda: _by_now(stage, rest), rest, stage.number(n))


@words.line("run until {rest}")
def run_until(stage: Stage, rest: str) -> None:
    stage.until(lambda: _by_now(stage, rest), rest, WAIT_TICKS)


def _by_now(stage: Stage, rest: str) -> bool:
    """Of a process that does not run nothing holds yet."""
    try:
        return holds(stage, rest)
    except StoryFailed:
        return False


@words.line("expect {rest}")
def expect(stage: Stage, rest: str) -> None:
    if not holds(stage, rest):
        raise StoryFailed(f"expected: {rest}")


@words.line("note {n} as {name}")
def note_number(stage: Stage, n: str, name: str) -> None:
    stage.notes[name] = stage.number(n)


@words.line("note {who} {what} as {name}")
def note(stage: Stage, who: str, what: str, name: str) -> None:
    stage.notes[name] = getattr(stage.replica(stage.nodes(who)[0]), what)


@words.line("watch")
def watch(stage: Stage) -> None:
    """From now on `sent`, `wrote` and `mark` mean: since here."""
    stage.wrote.clear()
    stage.sent_from = len(stage.wire.sent_log)
    stage.mark_from = dict(stage.cluster.marks)
