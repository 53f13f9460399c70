"""Disks that fail, tear, lose, rot and dawdle, and clocks that jump, under load: a replica halts
only as it must and says why and where, its peers go on, and no acknowledgement was a lie."""

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from appliance.cores.vsr.remedies import REMEDIES
from appliance.drivers.nvme.reader import VolumeReader
from tests.drivers.nvme.rot import flip
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.chat_load import pace
from tests.system.faulty_disk_site import HALTED, FaultyDiskSite
from tests.system.local_site import ports_in_a_row, wait_until
from tests.system.test_bit_flips import rings
from tests.system.trial import PACE_S, Trial

# Calls that a replica makes on its volume, the node on which each is used, what errors say.
WRITE_CALLS = [("io_submit", 0), ("pwrite64", 0), ("pwritev2", 1), ("fdatasync", 2)]
READ_CALLS = "preadv,preadv2,pread64"
CODES = {"EIO": "STORAGE_WRITE", "ENOSPC": "DISK_FULL"}
ERRNO = {"EIO": 5, "ENOSPC": 28}
FIRST_EXTENTS = ("000000", "000001")
HOUR_S = 3600
SLOW_MS = 60


class Faults:
    """Hurts the disk or the clock of one node after the other."""

    def __init__(self, site: FaultyDiskSite, trial: Trial) -> None:
        self.site, self.trial, self.chance = site, trial, random.Random(trial.seed)

    def any_node(self) -> int:
        return self.chance.choice(self.site.nodes)

    def _expect_halt(self, node: int, code: str, start: int, what: str) -> None:
        """Exit code 3, one line with code, place and remedy; peers go on; it starts again."""
        assert self.site.ended_with(node) == HALTED, what
        halt = self.site.halt_since(start)
        assert halt is not None, f"{what}: nothing was said"
        assert halt[0] == code, f"{what}: {halt}"
        assert halt[1] == str(self.site.place(node) / "shard-0") and halt[2] == str(node), halt
        assert halt[3].endswith("; " + REMEDIES[code]), halt
        self.trial.flows(what)
        self.site.start_role(node, "replica")

    # --- calls that fail

    def write_call(self, call: str, node: int, error: str) -> None:
        start = self.site.log_size()
        with self.site.failing_calls(node, call, error, "1") as told:
            self.site.ended_with(node)
        assert "INJECTED" in told.read_text()
        self._expect_halt(node, CODES[error], start, f"{error} of {call}")

    def read_call(self, error: str) -> None:
        """What cannot be read is fetched from a peer: no reason to halt."""
        node = self.any_node()
        with self.site.failing_calls(node, READ_CALLS, error, "1..6") as told:
            wait_until(lambda: told.read_text().count("INJECTED") >= 3, HUNG_S, "reads fail")
            self.trial.flows(f"{error} of reads")
        assert self.site.roles[node, "replica"].poll() is None

    def completion(self, error: str) -> None:
        """An asynchronous write that the kernel took, and that failed."""
        node = self.any_node()
        start = self.site.log_size()
        self.site.order(node, f"error {ERRNO[error]}")
        self._expect_halt(node, CODES[error], start, f"{error} of a write under way")

    def open_call(self, error: str) -> None:
        """The volume cannot be opened: the process refuses with a sentence and its remedy."""
        node = self.any_node()
        self.site.roles[node, "replica"].kill()
        self.site.ended_with(node)
        data = self.site.place(node) / "shard-0" / "data"
        start = self.site.log_size()
        self.site.start_failing(node, "openat", error, data)
        assert self.site.ended_with(node) == 1
        said = Path(self.site.log.name).read_bytes()[start:].decode()
        assert f"{data}: cannot be opened: " in said, said
        self.trial.flows(f"{error} of open")
        self.site.start_role(node, "replica")

    def next_extent(self, node: int) -> None:
        """The next segment's file cannot be made when it is needed."""
        self.site.roles[node, "replica"].kill()
        self.site.ended_with(node)
        for name in FIRST_EXTENTS:
            (self.site.place(node) / "shard-0" / "segments" / name).unlink()
        pace(self.trial.writers, 0.0)  # the first segment is written when its first leaf is full
        for call, error in (("fallocate", "ENOSPC"), ("fallocate", "EIO"), ("openat", "EIO")):
            start = self.site.log_size()
            segments = self.site.place(node) / "shard-0" / "segments"
            path = segments / f"{FIRST_EXTENTS[0]}.new" if call == "openat" else None
            self.site.start_failing(node, call, error, path)
            assert self.site.ended_with(node) == HALTED, call
            halt = self.site.halt_since(start)
            assert halt is not None and halt[0] == CODES[error], (call, error, halt)
            self.trial.flows(f"{error} of {call}")
        pace(self.trial.writers, PACE_S)
        self.site.start_role(node, "replica")

    # --- writes that are not what they seem

    def short(self) -> None:
        node = self.any_node()
        start = self.site.log_size()
        self.site.order(node, "short")
        self._expect_halt(node, "STORAGE_WRITE", start, "short write")

    def torn(self, kind: str) -> None:
        """Part of a write, then the power is gone."""
        node = self.any_node()
        self.site.order(node, f"{kind} {self.chance.randrange(1 << 31)}")
        assert self.site.ended_with(node) == -signal.SIGKILL
        self.trial.flows(f"torn write ({kind})")
        self.site.start_role(node, "replica")

    def lost(self) -> None:
        """Confirmed and never written; found at the latest when the process starts again."""
        node = self.any_node()
        self.site.order(node, "lost")
        wait_until(lambda: self.site.obeyed(node), HUNG_S, "a write was lost")
        self.trial.flows("lost write", count=False)
        self.site.roles[node, "replica"].kill()
        self.site.ended_with(node)
        self.trial.flows("lost write")
        self.site.start_role(node, "replica")

    def rot(self) -> None:
        """Bits flip in the files of a replica that runs; later it starts again."""
        node = self.any_node()
        folder = self.site.place(node) / "shard-0"
        for spans in rings(VolumeReader(folder), folder).values():
            for path, offset, size in self.chance.sample(spans, min(10, len(spans))):
                flip(path, offset + self.chance.randrange(size))
        self.trial.flows("bit rot while it runs")
        self.site.roles[node, "replica"].kill()
        self.site.ended_with(node)
        self.site.start_role(node, "replica")

    def slow(self) -> None:
        node = self.any_node()
        self.site.order(node, f"slow {SLOW_MS}")
        self.trial.flows("slow disk")
        time.sleep(1)
        self.trial.flows("slow disk", count=False)
        self.site.withdraw(node)

    # --- clocks

    def clock(self, seconds: int, what: str) -> None:
        """One node's wall clock lies; the messages' times do not."""
        node = self.site.primary()
        node = self.any_node() if node is None else node
        self.site.set_clock(node, seconds)
        time.sleep(1.5)
        self.trial.flows(f"wall clock {what}")
        self.site.set_clock(node, 0)


# Of each way in which a disk or a clock fails, one.
SHORT: list[tuple[Any, ...]] = [
    (Faults.write_call, "pwritev2", 1, "ENOSPC"),
    (Faults.write_call, "fdatasync", 2, "EIO"),
    (Faults.read_call, "EIO"),
    (Faults.completion, "ENOSPC"),
    (Faults.open_call, "EIO"),
    (Faults.torn, "prefix"),
    (Faults.lost,),
    (Faults.rot,),
    (Faults.slow,),
    (Faults.clock, -HOUR_S, "back"),
]


def hurt_shortly(site: FaultyDiskSite, trial: Trial) -> None:
    """Each of the short list once, in an order of this run's own."""
    faults = Faults(site, trial)
    for step, *arguments in faults.chance.sample(SHORT, len(SHORT)):
        trial.settle()
        step(faults, *arguments)


def hurt(site: FaultyDiskSite, trial: Trial, rounds: int) -> None:
    """Every fault, in an order of this run's own."""
    faults = Faults(site, trial)
    faults.next_extent(faults.any_node())
    steps = [
        (faults.write_call, call, node, error) for call, node in WRITE_CALLS for error in CODES
    ]
    steps += [(step, error) for step in (faults.read_call, faults.completion) for error in CODES]
    steps += [(faults.open_call, error) for error in CODES]
    steps += [(faults.torn, kind) for kind in ("prefix", "subset") * 2]
    steps += [(faults.short,), (faults.lost,), (faults.rot,), (faults.slow,)]
    steps += [(faults.clock, HOUR_S, "forward"), (faults.clock, -HOUR_S, "back")]
    for _ in range(rounds):
        faults.chance.shuffle(steps)
        for step, *arguments in steps:
            trial.settle()
            step(*arguments)


def hurt_and_check(folder: Path, first_port: int, seed: int, rounds: int) -> None:
    """So many whole rounds; 0 is a short one."""
    site = FaultyDiskSite(folder / "site", first_port, log_level="warning", scrub_interval_ms=10)
    began_us = time.time_ns() // 1000
    with site, Trial(site, folder, seed) as trial:
        if rounds:
            hurt(site, trial, rounds)
        else:
            hurt_shortly(site, trial)
        trial.settle()
        trial.finish()
    trial.check(halts_expected=True)
    times = trial.timestamps_us()
    assert began_us - 60_000_000 < min(times) and max(times) < time.time_ns() // 1000 + 60_000_000


@pytest.mark.parametrize("rounds", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_faulty_disks_and_clocks_lose_nothing_and_say_why_they_halt(
    tmp_path: Path, free_ports: FreePorts, seed: int, rounds: int
) -> None:
    hurt_and_check(tmp_path, ports_in_a_row(free_ports), seed, rounds)


@pytest.mark.soak
def test_faulty_disks_and_clocks_again_and_again_lose_nothing(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    hurt_and_check(tmp_path, ports_in_a_row(free_ports), seed, rounds=10)
