"""One message after the other on three nodes: of a site whose volumes are raw devices, beside one
whose volumes are files, in rounds by turns.

Two equal disks, which are loop devices over files of one disk: one has three partitions, a volume
in each, the other one a file system with all three volumes.
"""

import json
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.base.limits import MIB
from appliance.drivers.host.process import child_environment
from tests.loop_device import loop_device
from tests.patience import HUNG_S
from tests.system.local_site import COMMAND, NODES, LocalSite, wait_until

ROUNDS, ROUND_S = 10, 2.0
QUICK_ROUNDS, QUICK_ROUND_S = 1, 0.3
TIMES_MAX = 1.05  # of the time on files: as much as two equal sites differ by
SEGMENTS_MAX, VOLUME_MIB = 16, 1600  # what a volume of so many takes, and a bit
DISK_SIZE = (NODES + 1) * VOLUME_MIB * MIB
SETTINGS: dict[str, Any] = {"client_tls": False, "segments_max": SEGMENTS_MAX}


@contextmanager
def disk_of_files(folder: Path) -> Iterator[Path]:
    """A folder on a disk of its own."""
    place = folder / "mounted"
    place.mkdir()
    with loop_device(folder / "disk-of-files", DISK_SIZE) as disk:
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(disk))
        _run("mount", str(disk), str(place))
        try:
            yield place
        finally:
            _run("umount", str(place))


@contextmanager
def disk_of_volumes(folder: Path) -> Iterator[list[Path]]:
    """Partitions of another such disk, one for each node."""
    with loop_device(folder / "disk-of-volumes", DISK_SIZE) as disk:
        _run("sfdisk", "--quiet", str(disk), text="label: gpt\n" + NODES * f",{VOLUME_MIB}M\n")
        _run("partx", "--add", str(disk))
        parts = [Path(f"{disk}p{number + 1}") for number in range(NODES)]
        try:
            wait_until(lambda: all(part.exists() for part in parts), HUNG_S, f"{parts} are there")
            yield parts
        finally:
            _run("partx", "--delete", str(disk))


def _run(*words: str, text: str = "") -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, input=text)


def measure(
    files: LocalSite, devices: LocalSite, quick: bool, say: Callable[[str], None]
) -> dict[str, Any]:
    """The median of the ratios of neighbouring rounds; which site begins, alternates."""
    rounds, seconds = (QUICK_ROUNDS, QUICK_ROUND_S) if quick else (ROUNDS, ROUND_S)
    found: dict[str, list[dict[str, Any]]] = {"files": [], "devices": []}
    sites = [("files", files), ("devices", devices)]
    for number in range(rounds):
        for name, site in sites if number % 2 == 0 else reversed(sites):
            found[name].append(_round(site, seconds))
    pairs = [*zip(found["devices"], found["files"], strict=True)]
    ratios = {
        name: [round(raw[name] / file[name], 3) for raw, file in pairs]
        for name in ("p50_ms", "p99_ms")
    }
    value = round(statistics.median(ratios["p50_ms"]), 3)
    row: dict[str, Any] = {
        "kind": "alone on devices",
        "what": "median time of a message alone, three nodes on raw devices beside files",
        "value": value,
        "unit": "times",
        "held": value <= TIMES_MAX,
        "bar": f"at most {TIMES_MAX}",
        "rounds_p50": ratios["p50_ms"],
        "rounds_p99": ratios["p99_ms"],
    }
    for name, told in found.items():
        for figure in ("p50_ms", "p99_ms"):
            row[f"{name}_{figure}"] = statistics.median(each[figure] for each in told)
    say(
        f"{row['what']}: {value} ({row['bar']}); p50 {row['devices_p50_ms']} beside "
        f"{row['files_p50_ms']} ms, p99 {row['devices_p99_ms']} beside {row['files_p99_ms']} ms; "
        f"rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios['p50_ms'])}"
    )
    return row


def _round(site: LocalSite, seconds: float) -> dict[str, Any]:
    words = [*COMMAND, "benchmark", "--json", "--local", str(site.folder)]
    words += ["--seconds", str(seconds), "--in-flight", "1", "--encoding", "binary"]
    words += ["--listeners", "0"]
    done = subprocess.run(words, capture_output=True, text=True, env=child_environment())
    if done.returncode != 0:
        raise SystemExit(f"bench: the load generator ended with {done.stderr}")
    (row,) = [json.loads(line) for line in done.stdout.splitlines() if '"acknowledged"' in line]
    return dict(row)
