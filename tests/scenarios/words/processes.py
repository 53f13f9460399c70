"""Processes and clocks: crashes, starts, pauses, steps."""

from tests.scenarios.stage import Stage
from tests.scenarios.story import Vocabulary

words = Vocabulary()


@words.line("{who} crashes", "{who} crash")
def crash(stage: Stage, who: str) -> None:
    """Of what is on its way to the disk nothing arrives."""
    for index in stage.nodes(who):
        stage.crash(index, lambda sectors: range(0))


@words.line("{who} crashes, writes torn", "{who} crash, writes torn")
def crash_torn(stage: Stage, who: str) -> None:
    """Of each write in flight all but the last sector arrives."""
    for index in stage.nodes(who):
        stage.crash(index, lambda sectors: range(sectors - 1))


@words.line("{who} crashes, writes done", "{who} crash, writes done")
def crash_done(stage: Stage, who: str) -> None:
    """All that was in flight arrives, and nobody is told."""
    for index in stage.nodes(who):
        stage.crash(index, lambda sectors: range(sectors))


@words.line("{who} will crash after sector {n} of a superblock")
def crash_in_superblock(stage: Stage, who: str, n: str) -> None:
    for index in stage.nodes(who):
        stage.superblock_sectors[index] = stage.number(n)


@words.line("{who} starts", "{who} start")
def start(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        stage.start(index)


@words.line("whoever is down starts")
def start_rest(stage: Stage) -> None:
    for machine in stage.cluster.machines:
        if machine.replica is None:
            stage.start(machine.index)


@words.line("{who} pauses", "{who} pause")
def pause(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        stage.cluster.pause(index)


@words.line("{who} resumes", "{who} resume")
def resume(stage: Stage, who: str) -> None:
    for index in stage.nodes(who):
        stage.cluster.resume(index)


@words.line("{who} clock goes {n} seconds {way}")
def clock_step(stage: Stage, who: str, n: str, way: str) -> None:
    """An administrator sets the wall clock, `forward` or `back`."""
    for machine in stage.machines(who):
        machine.clock.step({"forward": 1, "back": -1}[way] * stage.number(n) * 1_000_000)
