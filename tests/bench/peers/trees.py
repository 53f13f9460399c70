"""A checkout of this program that a bench runs: this one, or another that stands beside it."""

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.peers.loop import PeerFailed
from tests.bench.peers.servers import NODES

TOP = Path(__file__).resolve().parents[3]
OURS = "TigerChat"
RATES = ("device_rate", "user_rate", "room_rate", "address_rate", "address_connect_rate")
# What a site of the bench is, as far as the checkout knows of it.
SETTINGS: dict[str, int | bool | str] = {
    **dict.fromkeys(RATES, 10_000_000),
    "ship_target": "off",
    "snapshots_mib": 0,
    "client_tls": False,
    "log_level": "warning",
}
ROLES_OFF = ("--no-objects", "--no-farm")
START = ("--quiet", "--unpinned")


@dataclass(frozen=True)
class Offers:
    """What a checkout knows, by its own word."""

    settings: Collection[str]  # keys of node.toml
    format: Collection[str]  # options of `tigerchat format`, hidden ones too
    start: Collection[str]  # of `tigerchat start`

    def chosen_settings(self) -> dict[str, int | bool | str]:
        return {name: value for name, value in SETTINGS.items() if name in self.settings}

    def words_of_format(self, folder: Path, first_port: int, *, brief: bool) -> list[str]:
        """Three nodes with one shard and no role beside replica, edge and what has no switch."""
        wanted = [*ROLES_OFF, *(["--brief"] if brief else [])]
        known = [word for word in wanted if word in self.format]
        ports = ["--nodes", str(NODES), "--ports", str(first_port)]
        return ["format", "--local", str(folder), *ports, *known]

    def words_of_start(self, node_folder: Path) -> list[str]:
        known = [word for word in START if word in self.start]
        return ["start", "--node-folder", str(node_folder), *known]


class Tree:
    """The checkout at `top`, run by its own interpreter where it has one."""

    def __init__(self, top: Path = TOP) -> None:
        self.top = top.resolve()
        if not (self.top / "appliance" / "__main__.py").is_file():
            raise PeerFailed(f"{top} is no checkout of this program: it has no appliance/")
        own = self.top / ".venv" / "bin" / "python"
        self.python = str(own) if own.exists() else sys.executable

    @property
    def name(self) -> str:
        """What its rows are called: ours plainly, another one by its commit."""
        if self.top == TOP:
            return OURS
        return f"{OURS} {commit_of(self.top) or self.top.name}"

    def environment(self) -> dict[str, str]:
        """Code is found in this tree and nowhere else."""
        return {**os.environ, "PYTHONPATH": str(self.top)}

    def command(self, words: Sequence[str]) -> list[str]:
        """`tigerchat` with these words; to be run in `top`."""
        return [self.python, "-P", "-m", "appliance", *words]

    def run(self, words: Sequence[str]) -> str:
        """The same to its end; what it printed."""
        done = subprocess.run(
            self.command(words),
            cwd=self.top,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise PeerFailed(f"{self.name}: `{' '.join(words[:1])}` failed: {done.stderr.strip()}")
        return done.stdout


def offers_of(tree: Tree, told: dict[str, Any]) -> Offers:
    """From what the generator of a checkout says that it knows."""
    if told["top"] != str(tree.top):
        raise PeerFailed(f"{tree.name} is to run the code of {tree.top}, and runs {told['top']}")
    return Offers(
        settings=frozenset(told["settings"]),
        format=frozenset(told["format"]),
        start=frozenset(told["start"]),
    )


def commit_of(top: Path) -> str:
    """Short, with a mark if files were changed since; empty where there is no repository."""
    if not (top / ".git").exists():
        return ""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(words, cwd=top, text=True, capture_output=True, check=False)
    return done.stdout.strip()
