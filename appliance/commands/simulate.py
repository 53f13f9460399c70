"""`tigerchat simulate`: run the cores in a world with a seed, and say what did not hold.

The executable is the code that a seed belongs to, so this verb exists on every machine.
`docs/simulation.md` tells how to read a failure.
"""

import json
import os
import subprocess
import sys
from collections import Counter

import click

from appliance import VERSION
from appliance.simulation.options import LITE, SWARM, Options, draw
from appliance.simulation.trace import BLOCK_EVENTS
from appliance.simulation.world import Outcome, World

OTHER_HASH_SEED = "4242"          # of the second process: shows an order that leans on hashes
EXIT_FAILED = 1


@click.command("simulate")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="The first seed.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--lite", "mode", flag_value=LITE, help="Three replicas, crashes only, 2,500 ticks.")
@click.option("--swarm", "mode", flag_value=SWARM, default=SWARM,
              help="Every class of fault, 20,000 ticks (default).")
@click.option("--check-determinism", is_flag=True,
              help="Run each seed again in another process and compare every event.")
@click.option("--until", type=click.IntRange(1), metavar="TICK", help="Stop at this tick.")
@click.option("--log", type=click.Choice(("full",)), help="Print every event up to --until.")
@click.option("--json", "as_json", is_flag=True, hidden=True)
@click.option("--events", type=(int, int), hidden=True, help="Keep the text of these events.")
def command(seed: int, seeds: int, mode: str, check_determinism: bool, until: int | None,
            log: str | None, as_json: bool, events: tuple[int, int] | None) -> int:
    """Run the cores in a simulated world with a seed."""
    if log is not None and until is None:
        raise click.UsageError("--log full needs --until TICK: a whole run is too long to read")
    wanted = range(sys.maxsize) if log is not None else range(*events) if events else range(0)
    marks: Counter[str] = Counter()
    for number in range(seed, seed + seeds):
        options = draw(number, mode)
        if seeds == 1 and not as_json:
            click.echo(options.describe())
        world = World(options, wanted=wanted)
        outcome = world.run(-1 if until is None else until)
        if as_json:
            click.echo(json.dumps({"digest": outcome.digest, "blocks": world.trace.blocks,
                                   "events": outcome.events, "kept": world.trace.kept}))
            continue
        for line in world.trace.kept:
            click.echo(line)
        click.echo(summary(outcome))
        marks.update(outcome.marks)
        if outcome.failure:
            click.echo("\n".join(failure_report(outcome)))
            return EXIT_FAILED
        if check_determinism and not _same_elsewhere(options, world, outcome):
            return EXIT_FAILED
    if not as_json:
        click.echo("marks: " + ", ".join(f"{name} {n}" for name, n in sorted(marks.items())))
    return 0


def summary(outcome: Outcome) -> str:
    """One line of a seed."""
    counts = " ".join(f"{name}={n}" for name, n in outcome.counts.items())
    verdict = f"FAILED by {outcome.checker}" if outcome.failure else "ok"
    excused = f" (excused: {outcome.excuse})" if outcome.excuse else ""
    return (f"seed {outcome.options.seed} {outcome.options.mode} {verdict}{excused}: R="
            f"{outcome.options.replica_count} ticks={outcome.ticks} events={outcome.events} "
            f"ops={outcome.ops} records={outcome.records} {counts} trace={outcome.digest}")


def failure_report(outcome: Outcome) -> list[str]:
    """What somebody needs who will mend it."""
    mode, seed = outcome.options.mode, outcome.options.seed
    again = f"tigerchat simulate --{mode} --seed {seed}"
    return [f"TigerChat {VERSION}, seed {seed}, {mode}, tick {outcome.ticks}",
            f"{outcome.checker}: {outcome.failure}", "", *outcome.report, "",
            f"again: {again}",
            f"every event: {again} --until {outcome.ticks + 1} --log full"]


def _same_elsewhere(options: Options, world: World, outcome: Outcome) -> bool:
    """Run the seed in another process and compare; prints the first event that differs."""
    other = _elsewhere(options, range(0))
    if other["digest"] == outcome.digest:
        click.echo(f"seed {options.seed}: the same trace in another process, {outcome.events} "
                   "events")
        return True
    blocks = other["blocks"]
    same = 0
    while same < min(len(blocks), len(world.trace.blocks)) and (
            blocks[same] == world.trace.blocks[same]):
        same += 1
    span = range(same * BLOCK_EVENTS, (same + 1) * BLOCK_EVENTS)
    again = World(options, wanted=span)
    again.run()
    here, there = again.trace.kept, _elsewhere(options, span)["kept"]
    first = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b),
                 min(len(here), len(there)))
    click.echo(f"seed {options.seed}: event {span.start + first} differs between two processes")
    click.echo("  here:  " + (here[first] if first < len(here) else "the end"))
    click.echo("  there: " + (there[first] if first < len(there) else "the end"))
    return False


def _elsewhere(options: Options, span: range) -> dict:
    """The trace of the seed in another process with another hash seed."""
    door = [] if getattr(sys, "frozen", False) else ["-m", "appliance"]
    arguments = ["simulate", "--json", f"--{options.mode}", "--seed", str(options.seed),
                 "--events", str(span.start), str(span.stop)]
    environment = os.environ | {"PYTHONHASHSEED": OTHER_HASH_SEED}
    done = subprocess.run([sys.executable, *door, *arguments], env=environment, check=True,
                          capture_output=True, text=True)
    found: dict = json.loads(done.stdout)
    return found
