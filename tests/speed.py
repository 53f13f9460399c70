"""How fast this machine is beside a usual one, so that what is random and fresh fits its time.

Fresh seeds shrink with it; what is fixed never does. Measured once a run, by such work as simulated
worlds do: hashing and tables.
"""

import os
import subprocess
import time
from pathlib import Path

from appliance.base.checksum import blake2b_128

USUAL_S = 0.0085  # of one measurement on a usual machine: a core of about 3 GHz
ROUNDS = 20  # the best counts: others may be at work
SHARE_MIN = 0.1  # something fresh is left on the slowest machine
VARIABLE = "TIGERCHAT_TEST_SPEED"  # handed to the other processes of a run


def _measured_s() -> float:
    begin = time.perf_counter()
    digest, rows = bytes(16), {}
    for number in range(60_000):
        rows[number & 1023] = (number, digest)
        if not number & 7:
            digest = blake2b_128(digest)
    assert len(rows) == 1024
    return time.perf_counter() - begin


def machine_speed() -> float:
    """1.0 on a usual machine and all faster ones; 0.5 where everything takes twice as long."""
    told = os.environ.get(VARIABLE)
    if told is None:
        told = f"{min(1.0, USUAL_S / min(_measured_s() for _ in range(ROUNDS))):.2f}"
        os.environ[VARIABLE] = told
    return float(told)


def fresh(count: int) -> int:
    """So many of what is random and fresh, as many as fit this machine."""
    return max(1, round(count * max(SHARE_MIN, machine_speed())))


def seed_of_commit() -> int:
    """For what is fresh with each commit, and the same whenever this one is tested: a verdict on a
    commit says nothing about another one. Without git, as in an unpacked archive, always the same.
    """
    folder = Path(__file__).resolve().parent.parent
    try:
        words = ("git", "-C", str(folder), "rev-parse", "HEAD")
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return 0
    return int(said.stdout[:8], 16)
