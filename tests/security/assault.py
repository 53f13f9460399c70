"""Attacks and intrusions beside each other, as a program that leaves the nodes their processor.

Run as `python -m tests.security.assault WORDS`, the words of `words_for`; prints an `Outcome`.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from tests.roles.replica_group import REPO
from tests.security.attacks import ATTACKS, Plan
from tests.security.intruders import INTRUSIONS, Intruder

ALL = (*ATTACKS, *INTRUSIONS)


class Outcome(NamedTuple):
    """By the name of what was done: how often."""

    thrown_out: dict[str, int]
    tried: dict[str, int]  # and was answered
    got_through: dict[str, int]  # though it should have been refused


async def run(plan: Plan, names: list[str]) -> Outcome:
    """All these beside each other."""
    attacks = [Intruder(plan, 10 + ALL.index(name)) for name in names]
    await asyncio.gather(
        *(getattr(attack, name)() for attack, name in zip(attacks, names, strict=True))
    )
    totals = [Counter[str]() for _ in Outcome._fields]
    for attack in attacks:
        for total, field in zip(totals, Outcome._fields, strict=True):
            total.update(getattr(attack, field))
    return Outcome(*map(dict, totals))


def step_back() -> None:
    """Take what the nodes leave of this machine's processor: attackers bring their own."""
    os.setsid()  # the kernel shares between sessions, where it groups them, and then within
    os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


def words_for(plan: Plan, names: list[str]) -> str:
    """What the program is told."""
    return json.dumps({"plan": asdict(plan), "names": names})


def begun(plan: Plan, names: list[str]) -> "subprocess.Popen[str]":
    """The program, running; what it prints is for `outcome_of`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.security.assault", words_for(plan, names)],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
        text=True,
    )


def outcome_of(said: str) -> Outcome:
    return Outcome(**json.loads(said))


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    step_back()
    print(json.dumps(asyncio.run(run(Plan(**asked["plan"]), asked["names"]))._asdict()))
