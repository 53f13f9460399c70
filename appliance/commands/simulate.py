"""`tigerchat simulate`: run the cores in a world with a seed, and say what did not hold.

The executable is the code that a seed belongs to, so this verb exists on every machine.
`docs/simulation.md` tells how to read a failure.
"""

import gc
import subprocess
import sys
from collections import Counter
from typing import Any

import click

from appliance import VERSION
from appliance.base.json_text import parse_json
from appliance.base.printable import json_line
from appliance.drivers.host import resources
from appliance.drivers.host.process import child_environment, own_command
from appliance.simulation import minimise as smaller
from appliance.simulation.farm import options as farm_options
from appliance.simulation.farm.world import FarmOutcome
from appliance.simulation.farm.world import run as run_farm
from appliance.simulation.federation import report as federation_report
from appliance.simulation.objects import report as objects_report
from appliance.simulation.options import LITE, SWARM, Options, draw, parse
from appliance.simulation.trace import BLOCK_EVENTS
from appliance.simulation.world import Outcome, World

OTHER_HASH_SEED = "4242"  # of the second process: shows an order that leans on hashes
EXIT_FAILED = 1


@click.group("simulate", invoke_without_command=True)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The first seed."
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--lite", "mode", flag_value=LITE, help="Three replicas, crashes only, 2,500 ticks.")
@click.option(
    "--swarm",
    "mode",
    flag_value=SWARM,
    default=SWARM,
    help="Every class of fault, 20,000 ticks (default).",
)
@click.option(
    "--check-determinism",
    is_flag=True,
    help="Run each seed again in another process and compare every event.",
)
@click.option(
    "--minimise",
    is_flag=True,
    help="Of a seed that fails, find the fewest faults and the shortest time it needs.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change an option that the seed has drawn; as --minimise prints them.",
)
@click.option("--until", type=click.IntRange(1), metavar="TICK", help="Stop at this tick.")
@click.option("--log", type=click.Choice(("full",)), help="Print every event up to --until.")
@click.option("--json", "as_json", is_flag=True, hidden=True)
@click.option("--events", type=(int, int), hidden=True, help="Keep the text of these events.")
@click.pass_context
def command(
    context: click.Context,
    seed: int,
    seeds: int,
    mode: str,
    check_determinism: bool,
    minimise: bool,
    settings: tuple[str, ...],
    until: int | None,
    log: str | None,
    as_json: bool,
    events: tuple[int, int] | None,
) -> int:
    """Run the cores in a simulated world with a seed: the log and its edges, or another."""
    if context.invoked_subcommand is not None:
        return 0
    if log is not None and until is None:
        raise click.UsageError("--log full needs --until TICK: a whole run is too long to read")
    wanted = range(sys.maxsize) if log is not None else range(*events) if events else range(0)
    marks: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for number in range(seed, seed + seeds):
        options = _options(number, mode, settings)
        if seeds == 1 and not as_json:
            click.echo(options.describe())
        world = World(options, wanted=wanted)
        outcome = run(world, until)
        if as_json:
            click.echo(
                json_line(
                    {
                        "digest": outcome.digest,
                        "blocks": world.trace.blocks,
                        "events": outcome.events,
                        "kept": world.trace.kept,
                    }
                )
            )
            continue
        for line in world.trace.kept:
            click.echo(line)
        click.echo(summary(outcome))
        marks.update(outcome.marks)
        faults.update(outcome.faults)
        if outcome.failure:
            click.echo("\n".join(failure_report(outcome, settings)))
            if minimise:
                _minimise(options)
            return EXIT_FAILED
        if check_determinism and not _same_elsewhere(options, world, outcome):
            return EXIT_FAILED
    if not as_json:
        for title, found in (("faults", faults), ("marks", marks)):
            click.echo(f"{title}: " + ", ".join(f"{name} {n}" for name, n in sorted(found.items())))
    return 0


@command.command("farm")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The first seed."
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--legacy", is_flag=True, help="Beside ours, members modelled on JRaft.")
def farm(seed: int, seeds: int, legacy: bool) -> int:
    """Run the members of a farm, their disks and connections, from a seed."""
    mode = farm_options.LEGACY if legacy else farm_options.OWN
    faults: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    for number in range(seed, seed + seeds):
        options = farm_options.draw(number, mode)
        if seeds == 1:
            click.echo(options.describe())
        outcome = run_farm(options)
        click.echo(farm_summary(outcome))
        faults.update(outcome.faults)
        marks.update(outcome.marks)
        if outcome.failure:
            again = f"tigerchat simulate farm{' --legacy' if legacy else ''} --seed {number}"
            click.echo(f"TigerChat {VERSION}{commit()}, seed {number}, {mode}")
            click.echo(f"{outcome.checker}: {outcome.failure}\nagain: {again}")
            return EXIT_FAILED
    for title, found in (("faults", faults), ("marks", marks)):
        click.echo(f"{title}: " + ", ".join(f"{name} {n}" for name, n in sorted(found.items())))
    return 0


def farm_summary(outcome: FarmOutcome) -> str:
    """One line of a seed of the farm."""
    verdict = f"FAILED by {outcome.checker}" if outcome.failure else "ok"
    excused = f" (excused: {outcome.excuse})" if outcome.excuse else ""
    return (
        f"seed {outcome.options.seed} {outcome.options.mode} {verdict}{excused}: "
        f"members={outcome.options.members} ticks={outcome.ticks} events={outcome.events} "
        f"commits={outcome.commits} yes={outcome.yes} faults={sum(outcome.faults.values())} "
        f"trace={outcome.digest}"
    )


@command.command("federation")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The first seed."
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many.")
def federation(seed: int, seeds: int) -> int:
    """Run sites that share a room, their nodes and links, from a seed."""
    for line, broken in federation_report.lines_of(seed, seeds):
        click.echo(line)
        if broken:
            click.echo(f"TigerChat {VERSION}{commit()}")
            return EXIT_FAILED
    return 0


def run(world: World, until: int | None = None) -> Outcome:
    """Run a world while the collector of cycles rests: a world makes few, and it looks at all."""
    gc.disable()
    try:
        return world.run(-1 if until is None else until)
    finally:
        gc.enable()


@command.command("objects")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The first seed."
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many.")
def objects(seed: int, seeds: int) -> int:
    """Run replicas of the objects, their stores and connections, from a seed."""
    failed = False
    for line, broken in objects_report.lines_of(seed, seeds):
        click.echo(line)
        failed = failed or broken
    return EXIT_FAILED if failed else 0


def _options(seed: int, mode: str, settings: tuple[str, ...]) -> Options:
    try:
        return parse(draw(seed, mode), settings)
    except ValueError as error:
        raise click.UsageError(f"--set {error}") from error


def summary(outcome: Outcome) -> str:
    """One line of a seed."""
    counts = " ".join(f"{name}={n}" for name, n in outcome.counts.items())
    verdict = f"FAILED by {outcome.checker}" if outcome.failure else "ok"
    excused = f" (excused: {outcome.excuse})" if outcome.excuse else ""
    return (
        f"seed {outcome.options.seed} {outcome.options.mode} {verdict}{excused}: R="
        f"{outcome.options.replica_count} ticks={outcome.ticks} events={outcome.events} "
        f"ops={outcome.ops} records={outcome.records} {counts} "
        f"faults={sum(outcome.faults.values())} trace={outcome.digest}"
    )


def failure_report(outcome: Outcome, settings: tuple[str, ...] = ()) -> list[str]:
    """What somebody needs who will mend it."""
    mode, seed = outcome.options.mode, outcome.options.seed
    again = " ".join(
        [
            f"tigerchat simulate --{mode} --seed {seed}",
            *(f"--set {setting}" for setting in settings),
        ]
    )
    return [
        f"TigerChat {VERSION}{commit()}, seed {seed}, {mode}, tick {outcome.ticks}",
        f"{outcome.checker}: {outcome.failure}",
        "",
        *outcome.report,
        "",
        f"again: {again}",
        f"every event: {again} --until {outcome.ticks + 1} --log full",
    ]


def commit() -> str:
    """The commit of this program, in words; nothing where it is not known."""
    found = resources.build().commit
    return f", commit {found}" if found else ""


def _minimise(options: Options) -> None:
    """Print the smallest options that still fail, and how to run them."""
    least = smaller.minimise(options, lambda tried: run(World(tried)), click.echo)
    drawn = draw(options.seed, options.mode)
    changed = [
        f"--set {name}={getattr(least, name)}"
        for name in smaller.NEUTRAL
        if getattr(least, name) != getattr(drawn, name)
    ]
    click.echo(
        "what it needs: "
        + ", ".join(f"{name} = {value}" for name, value in smaller.differences(least).items())
    )
    click.echo(
        " ".join([f"again: tigerchat simulate --{options.mode} --seed {options.seed}", *changed])
    )


def _same_elsewhere(options: Options, world: World, outcome: Outcome) -> bool:
    """Run the seed in another process and compare; prints the first event that differs."""
    other = _elsewhere(options, range(0))
    if other["digest"] == outcome.digest:
        click.echo(
            f"seed {options.seed}: the same trace in another process, {outcome.events} events"
        )
        return True
    blocks = other["blocks"]
    same = 0
    while same < min(len(blocks), len(world.trace.blocks)) and (
        blocks[same] == world.trace.blocks[same]
    ):
        same += 1
    span = range(same * BLOCK_EVENTS, (same + 1) * BLOCK_EVENTS)
    again = World(options, wanted=span)
    run(again)
    here, there = again.trace.kept, _elsewhere(options, span)["kept"]
    first = next(
        (i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b),
        min(len(here), len(there)),
    )
    click.echo(f"seed {options.seed}: event {span.start + first} differs between two processes")
    click.echo("  here:  " + (here[first] if first < len(here) else "the end"))
    click.echo("  there: " + (there[first] if first < len(there) else "the end"))
    return False


def _elsewhere(options: Options, span: range) -> dict[str, Any]:
    """The trace of the seed in another process with another hash seed."""
    arguments = [
        "simulate",
        "--json",
        f"--{options.mode}",
        "--seed",
        str(options.seed),
        "--events",
        str(span.start),
        str(span.stop),
    ]
    environment = child_environment() | {"PYTHONHASHSEED": OTHER_HASH_SEED}
    done = subprocess.run(
        [*own_command(), *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = parse_json(done.stdout)
    return found
