"""The search for seeds that find planted bugs, and the table of what was found.

    python -m tests.simulation.planted                  look for every plant anew, write the table
    python -m tests.simulation.planted --only NAME ...  for these
    python -m tests.simulation.planted --missing        for those whose recorded seeds fail no more
    python -m tests.simulation.planted --further        for those not found yet, with further seeds
    python -m tests.simulation.planted --page           print the table for people

The general swarm has to do it: seeds from 0 on, and for bugs that only later classes of faults show
from 1,000,000 on, with the options that every other seed has. The table keeps a bound (one of so
many seeds from there on fails) and the cheapest finds; a change of the product moves seeds, so
several are kept, and the search is cheap to repeat.
"""

import argparse
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from appliance.commands.simulate import run as run_world
from appliance.simulation.options import SWARM, UNKIND_FROM, draw
from appliance.simulation.world import Outcome, World
from tests.simulation.plants import PLANTS

TABLE = Path(__file__).parent / "planted.json"
# Bugs that only later classes of faults show: the search for them begins where those begin.
LATER = (
    "evicted_window_forgotten",
    "foreign_prepares_kept",
    "highest_op_wins",
    "place_kept_across_a_read",
    "recovered_beside_a_process",
    "sync_without_suffix",
    "writes_overlap",
)
SEEDS_MAX = 500  # a bug that needs more is not found
FINDS_KEPT = 3
EXTRA_CPU_S = 8  # after a find: further seeds are tried while it took no longer
MARGIN_TICKS = 20  # how long the whole product runs past the tick of the find


def run(seed: int, name: str = "", ticks: int = -1) -> Outcome:
    """A swarm seed, with a plant or whole, up to a tick or to its end."""
    with pytest.MonkeyPatch.context() as patch:
        if name:
            PLANTS[name].sow(patch)
        return run_world(World(draw(seed, SWARM)), ticks if ticks >= 0 else None)


def search(name: str, seeds_max: int, begin: int = 0, ticks: int = -1) -> dict[str, Any]:
    """The seeds from `begin` on, counted from where the faults begin that show it, that find a
    plant: how many it took, and the cheapest few.

    With `ticks` only their first ticks are run, which says at most too little: a seed that finds
    the plant then finds it also when it is run to its end.
    """
    finds: list[dict[str, Any]] = []
    first, started = None, time.process_time()
    base = UNKIND_FROM if name in LATER else 0
    for seed in range(base + begin, base + seeds_max):
        outcome = run(seed, name, ticks)
        find = {
            "seed": seed,
            "tick": outcome.ticks,
            "events": outcome.events,
            "checker": outcome.checker,
            "says": said(outcome),
        }
        if outcome.failure and passes(find):
            first = seed if first is None else first
            finds.append(find)
        spent = time.process_time() - started
        if first is not None and (spent > EXTRA_CPU_S or len(finds) >= FINDS_KEPT):
            break
    finds.sort(key=lambda find: find["events"])
    return {
        "seeds": None if first is None else first - base + 1,
        "tried": seeds_max,
        "finds": finds,
    }


def said(outcome: Outcome) -> str:
    """What a failure says, in a line."""
    return (outcome.failure.strip().splitlines() or [""])[-1][:160]


def until(find: dict[str, Any]) -> int:
    """The tick up to which a recorded seed has to run; -1: to its end."""
    tick: int = find["tick"] + MARGIN_TICKS
    return tick if tick < draw(find["seed"], SWARM).safety_ticks else -1


def whole(find: dict[str, Any]) -> Outcome:
    """A recorded seed without the plant, as far as the find needs it."""
    return run(find["seed"], "", until(find))


def passes(find: dict[str, Any]) -> bool:
    """Whether a recorded seed passes without the plant: else it has found another bug."""
    return not whole(find).failure


def fails(name: str, find: dict[str, Any]) -> bool:
    """Whether a recorded seed still finds the plant, about when it did."""
    return bool(run(find["seed"], name, until(find)).failure)


def replays(name: str, find: dict[str, Any]) -> bool:
    """Whether a recorded seed still finds the plant, and passes without."""
    return fails(name, find) and passes(find)


def load() -> dict[str, Any]:
    """The table as it was written last."""
    return json.loads(TABLE.read_text()) if TABLE.exists() else {}


def store(found: dict[str, Any]) -> None:
    """Write the table, in the order of the plants."""
    table = load() | found
    kept = {name: table[name] for name in PLANTS if name in table}
    TABLE.write_text(json.dumps(kept, indent=1) + "\n")


def page() -> str:
    """The table for people, in Markdown."""
    lines = ["| planted bug | found within so many seeds | found by |", "|---|---:|---|"]
    table = load()
    for name, known in PLANTS.items():
        found = table.get(name, {"seeds": None, "finds": []})
        by = ", ".join(sorted({find["checker"] for find in found["finds"]}))
        tried = found.get("tried", 0)
        seeds = found["seeds"] or (f"not in {tried}; by a story" if tried else "by a story")
        lines.append(f"| {known.trap} | {seeds} | {by} |")
    return "\n".join(lines)


def _stale(name: str) -> bool:
    return not any(replays(name, find) for find in load().get(name, {"finds": []})["finds"])


def _searched(job: tuple[str, int, int, int]) -> tuple[str, dict[str, Any], float]:
    started = time.process_time()
    return job[0], search(*job), time.process_time() - started


def main(arguments: list[str]) -> int:
    """Search, print a line for each plant, write the table after each; 1 if one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted")
    parser.add_argument("--only", nargs="+", choices=PLANTS, metavar="NAME")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--further", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--ticks", type=int, default=-1, help="of each seed, no further")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=0, help="begin no further search after")
    asked = parser.parse_args(arguments)
    if asked.page:
        print(page())
        return 0
    names = [name for name in asked.only or PLANTS if not asked.missing or _stale(name)]
    begin = dict.fromkeys(names, 0)
    if asked.further:
        table = load()
        names = [name for name in names if not table.get(name, {}).get("seeds")]
        begin = {name: table.get(name, {}).get("tried", 0) for name in names}
        if asked.ticks >= 0:
            begin = dict.fromkeys(names, 0)
        names.sort(key=lambda name: begin[name])  # those tried least come first
    failed, started = 0, time.monotonic()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for name, found, seconds in pool.imap_unordered(
            _searched, [(name, asked.seeds, begin[name], asked.ticks) for name in names]
        ):
            if found["seeds"] or asked.ticks < 0:
                store({name: found})
            failed += found["seeds"] is None
            finds = ", ".join(
                f"{find['seed']}@{find['tick']} {find['checker']}" for find in found["finds"]
            )
            print(f"{name}: {found['seeds'] or 'NOT FOUND'} ({finds}) {seconds:.0f} s", flush=True)
            if asked.seconds and time.monotonic() - started > asked.seconds:
                break
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
