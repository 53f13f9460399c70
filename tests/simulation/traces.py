"""The traces that the recorded worlds had when they were looked at last.

    python -m tests.simulation.traces                 make the list anew, in two processes
    python -m tests.simulation.traces --check 40      compare the first so many worlds with it

Whoever changes the shape of the code and not what it does moves no trace: a hash tells that at
once, where a world that keeps every promise tells nothing. A change that is meant to move them
makes the list anew, in the same commit.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from appliance.commands.simulate import run as run_world
from appliance.simulation.options import draw
from appliance.simulation.world import World
from tests.simulation import planted
from tests.simulation.plants import PLANTS
from tests.simulation.seeds import ALWAYS_RUN, FIXED, MENDED, UNKIND, jobs_from

TABLE = Path(__file__).parent / "traces.json"
DIGEST_DIGITS = 16  # of 32: enough to tell two traces apart
PROCESSES = 2


class Recorded(NamedTuple):
    """A world that runs up to a tick; -1: to its end."""

    seed: int
    mode: str
    until: int

    @property
    def key(self) -> str:
        return f"{self.mode} {self.seed}" + (f" until {self.until}" if self.until >= 0 else "")


def load() -> dict[str, str]:
    """Digests by `Recorded.key`."""
    table: dict[str, str] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    return table


def moved(world: Recorded, digest: str) -> str:
    """What to say when the trace of `world` is not the one of the list; empty: it is, or is not
    listed.
    """
    listed = load().get(world.key)
    if listed is None or listed == digest[:DIGEST_DIGITS]:
        return ""
    return (
        f"{world.key}: trace {digest[:DIGEST_DIGITS]}, listed {listed}; if the change is meant to "
        "move traces: python -m tests.simulation.traces"
    )


def worlds() -> list[Recorded]:
    """The worlds of the list: those that always run, then those that find planted bugs."""
    found = [Recorded(seed, mode, -1) for seed, mode in (*jobs_from(0, FIXED), *UNKIND, *MENDED)]
    table = planted.load()
    for name in PLANTS:
        for find in table[name]["finds"][:1]:
            if (find["seed"], planted.SWARM) not in ALWAYS_RUN:
                found.append(Recorded(find["seed"], planted.SWARM, planted.until(find)))
    return list(dict.fromkeys(found))


def traced(world: Recorded) -> tuple[str, str]:
    """(key, digest) of a world that runs now."""
    outcome = run_world(
        World(draw(world.seed, world.mode)), None if world.until < 0 else world.until
    )
    return world.key, outcome.digest[:DIGEST_DIGITS]


def run_all(chosen: Iterable[Recorded], processes: int) -> dict[str, str]:
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return dict(pool.imap(traced, chosen))


def main(arguments: list[str]) -> int:
    """Make the list, or compare some of it; 1 if a trace has moved."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.traces")
    parser.add_argument("--check", type=int, default=0, metavar="WORLDS")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    asked = parser.parse_args(arguments)
    if not asked.check:
        found = run_all(worlds(), asked.processes)
        TABLE.write_text(json.dumps(found, indent=0) + "\n")
        return 0
    listed = load()
    chosen = worlds()[:: max(1, len(worlds()) // asked.check)]
    found = run_all(chosen, asked.processes)
    wrong = [key for key, digest in found.items() if listed.get(key) != digest]
    print(f"{len(found)} worlds, {len(wrong)} moved: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
