"""The page about reliability, made from what was run: `docs/reliability.md`.

    python -m tests.simulation.reliability run --seeds 2000 --minutes 8    go on with the campaign
    python -m tests.simulation.reliability write                           write the page

A campaign belongs to the state of what is simulated: a change of anything in it begins another.
Results are appended seed by seed to `build/campaign`, so a campaign may be run in pieces. `write`
ends with 1 when the page shows less than it promises: too few seeds, a failure, a class of fault
that never struck, a planted bug that was not found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from appliance.formats.envelope import COMMAND_NAMES
from appliance.simulation.options import LITE, SWARM, UNKIND_FROM, UNKIND_LITE_FROM
from tests.simulation import planted
from tests.simulation.plants import PLANTS
from tests.simulation.seeds import PROCESSES, run_all

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
CAMPAIGNS = ROOT / "build" / "campaign"
BUGS = ROOT / "tests" / "simulation" / "bugs.json"
SYSTEM_FIGURES = ROOT / "tests" / "system" / "fault_figures.json"
SEEDS_MIN = 2_000
SWARM_EVERY = 5  # of the worlds of a campaign one in so many is of the swarm, the others are small
# A seed's history depends on these folders, and on nothing else.
SIMULATED = tuple(
    f"appliance/{room}"
    for room in ("base", "formats", "cores/vsr", "cores/rooms", "cores/edge", "simulation")
)
MARK = re.compile(r"""\bmark\(\s*"(\w+)\"""")
# Every class of fault that some world must have met, by the names under which they are counted.
FAULT_CLASSES = (
    "loss",
    "duplicate",
    "capacity",
    "narrow_link",
    "clog",
    "partition",
    "partition_both_ways",
    "partition_one_way",
    "command_lost",
    "replay",
    "wire_damage",
    "crash",
    "crash_in_write",
    "power_cut",
    "pause",
    "reformat",
    "old_copy",
    "silent_format",
    "volume_moved",
    "torn_write",
    "read_corruption",
    "read_error",
    "write_corruption",
    "write_loss",
    "write_misdirection",
    "write_error",
    "flush_error",
    "cache_lost",
    "disk_full",
    "slow_disk",
    "overload",
    "clock_offset",
    "clock_drift",
    "clock_step",
    "clock_liar",
    "session_kill",
    "session_abandoned",
    "eviction",
    "late_retry",
    "window_forgotten",
    "segments_dropped",
    "edge_crash",
    "client_abandoned",
    "client_blocked",
    "members_reordered",
    "standby_promoted",
    "member_removed",
    "member_added",
)


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def results_file() -> Path:
    """Where the results of the present state of what is simulated are."""
    if git("status", "--porcelain", "--", *SIMULATED):
        raise SystemExit("commit the program first: a campaign belongs to a commit")
    state = git("rev-parse", *(f"HEAD:{folder}" for folder in SIMULATED))
    return CAMPAIGNS / f"{hashlib.sha256(state.encode()).hexdigest()[:12]}.jsonl"


def load(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- running --------------------------------------------------------------------------------------


def jobs_of(seeds: int) -> list[tuple[int, str]]:
    """The worlds of a campaign: of all classes of faults, however far it comes."""
    return [
        (UNKIND_LITE_FROM + i, LITE) if i % SWARM_EVERY else (UNKIND_FROM + i // SWARM_EVERY, SWARM)
        for i in range(seeds)
    ]


def run(seeds: int, minutes: int, processes: int) -> int:
    """Run the seeds that are missing, until the time is over."""
    path = results_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {result["seed"] for result in load(path)}
    end = time.monotonic() + 60 * minutes

    def jobs() -> Iterator[tuple[int, str]]:
        for seed, mode in jobs_of(seeds):
            if seed not in done and time.monotonic() < end:
                yield seed, mode

    failed = count = 0
    with path.open("a") as out:
        for result in run_all(jobs(), processes):
            out.write(json.dumps(result._asdict()) + "\n")
            out.flush()
            count += 1
            if result.failure:
                failed += 1
                print(result.failure, flush=True)
    print(f"{count} seeds more, {len(done) + count} of {seeds}, {failed} failures")
    return 1 if failed else 0


# --- the page -------------------------------------------------------------------------------------


def marks_of_the_program() -> list[str]:
    """Every mark that the replica's core can leave."""
    found: set[str] = set()
    for path in sorted((ROOT / "appliance" / "cores" / "vsr").glob("*.py")):
        found.update(MARK.findall(path.read_text()))
    return sorted(found)


def spans(seeds: list[int]) -> str:
    """Seeds as ranges."""
    out: list[list[int]] = []
    for seed in sorted(seeds):
        if out and out[-1][1] == seed - 1:
            out[-1][1] = seed
        else:
            out.append([seed, seed])
    return ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in out)


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def write() -> int:
    """Write the page; say what is missing from it."""
    results = load(results_file())
    lacks: list[str] = []
    lines = [
        "# Reliability",
        "",
        "Made by `python -m tests.simulation.reliability write` from files of earlier runs.",
        "By hand: the table of bugs found (`tests/simulation/bugs.json`). Seeds of planted bugs",
        "and figures of real processes are of the runs that wrote their files.",
        "What each fault and checker is: [the simulator](simulation.md).",
        "",
    ]
    for part in (
        _campaign(results, lacks),
        _faults(results, lacks),
        _marks(results),
        _bugs(),
        _planted(lacks),
        _system(),
    ):
        lines += part
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    for lack in lacks:
        print(f"lacks: {lack}")
    return 1 if lacks else 0


def _campaign(results: list[dict[str, Any]], lacks: list[str]) -> list[str]:
    failures = [r for r in results if r["failure"]]
    if len(results) < SEEDS_MIN:
        lacks.append(f"{len(results)} of {SEEDS_MIN} seeds")
    if failures:
        lacks.append(f"{len(failures)} seeds fail: {spans([r['seed'] for r in failures])}")
    total = {
        name: sum(r[name] for r in results)
        for name in ("ticks", "ops", "records", "acknowledged", "halts", "cpu_s")
    }
    minutes = total["cpu_s"] / 60
    return [
        "## The campaign",
        "",
        f"Commit {git('log', '-1', '--format=%h of %cs', '--', *SIMULATED)}. All of them draw the",
        f"youngest classes of faults too. Of {SEEDS_MIN:,} seeds {len(results):,} were run.",
        "",
        *(
            f"- `tigerchat simulate --{mode} --seed N`: {len(own):,} seeds"
            f" of {min(own)} to {max(own)}"
            for mode in (SWARM, LITE)
            if (own := [r["seed"] for r in results if r["mode"] == mode])
        ),
        "",
        *table(
            ("figure", "value"),
            [
                ("seeds", f"{len(results):,}"),
                ("violations", len(failures)),
                ("prepares committed", f"{total['ops']:,}"),
                ("records committed", f"{total['records']:,}"),
                ("records acknowledged to devices, all found again", f"{total['acknowledged']:,}"),
                ("virtual time", f"{total['ticks'] / 360_000:,.0f} hours"),
                ("cores excused from converging", sum(bool(r["excuse"]) for r in results)),
                (
                    "replicas halted by more damage than can be mended (overload worlds)",
                    total["halts"],
                ),
                ("seeds per CPU minute", f"{len(results) / minutes:.1f}" if minutes else "-"),
            ],
        ),
    ]


def _faults(results: list[dict[str, Any]], lacks: list[str]) -> list[str]:
    total: Counter[str] = Counter()
    worlds: Counter[str] = Counter()
    for result in results:
        total.update(result["faults"])
        worlds.update(result["faults"].keys())
    zero = [name for name in FAULT_CLASSES if not total[name]]
    if zero:
        lacks.append(f"faults that never struck: {', '.join(zero)}")
    rows = [
        (name.replace("_", " "), f"{total[name]:,}", f"{worlds[name]:,}")
        for name in sorted({*FAULT_CLASSES, *total})
    ]
    return ["## Faults", "", *table(("class", "times", "seeds"), rows)]


def _marks(results: list[dict[str, Any]]) -> list[str]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result["marks"])
    known = marks_of_the_program()
    missing = [name for name in known if not total[name]]
    reached = ", ".join(f"{name} {total[name]:,}" for name in known if total[name])
    return [
        "## Rare paths of the core",
        "",
        f"{len(known) - len(missing)} of {len(known)} marks were reached: {reached}.",
        "",
        f"Not reached: {', '.join(missing) or 'none'}.",
        "",
    ]


def _bugs() -> list[str]:
    rows = [
        (bug["seed"], bug["cause"], bug["mend"], bug["commit"])
        for bug in json.loads(BUGS.read_text())
    ]
    return [
        "## Bugs it has found",
        "",
        "A seed names a world of its commit's time; each became a test or a scenario.",
        "",
        *table(("seed", "cause", "mend", "commit"), rows),
    ]


def _planted(lacks: list[str]) -> list[str]:
    found = planted.load()
    missed = [name for name in PLANTS if not found.get(name, {}).get("seeds")]
    if missed:
        lacks.append(f"planted bugs that no seed finds: {', '.join(missed)}")
    return [
        "## Planted bugs",
        "",
        f"{len(PLANTS)} bugs, each one method of the program replaced. The swarm's",
        "seeds from 0 on, or those of all classes of faults from 1,000,000 on, find them: among as",
        "many as the table says, one fails. What no seed finds is found by a story of a group that",
        "`tests/simulation/test_planted.py` tells.",
        "",
        planted.page(),
        "",
    ]


def _system() -> list[str]:
    lines = [
        "## Real processes",
        "",
        "Groups of real processes on real files, with faults from outside: `tests/system`.",
        "",
    ]
    if not SYSTEM_FIGURES.exists():
        return [*lines, "No figures have been recorded yet.", ""]
    figures = json.loads(SYSTEM_FIGURES.read_text())
    silent = [
        name
        for name in COMMAND_NAMES.values()
        if not figures["sent"].get(name) and not figures["received"].get(name)
    ]
    return [
        *lines,
        *table(
            ("figure", "value"),
            [
                ("runs of a group under load", f"{figures['runs']:,}"),
                (
                    "messages acknowledged, each sought on every disk",
                    f"{figures['acknowledged']:,}",
                ),
                ("of them lost", f"{figures['lost']:,}"),
                ("violations of any kind", f"{figures['violations']:,}"),
                *((f"hurt: {what}", f"{count:,}") for what, count in figures["hurt"].items()),
                (
                    "commands of the protocol that replicas sent or received in these runs",
                    f"{len(COMMAND_NAMES) - len(silent)} of {len(COMMAND_NAMES)}",
                ),
            ],
        ),
        f"Commands that these runs did not need: {', '.join(silent) or 'none'}. That real",
        "processes come to need each of them is held by `tests/roles/test_commands.py`.",
        "",
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.reliability")
    parser.add_argument("what", choices=("run", "write"))
    parser.add_argument("--seeds", type=int, default=SEEDS_MIN)
    parser.add_argument("--minutes", type=int, default=8)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    asked = parser.parse_args(arguments)
    if asked.what == "run":
        return run(asked.seeds, asked.minutes, asked.processes)
    return write()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
