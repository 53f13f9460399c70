"""A local site whose nodes are run by the program of an earlier commit, and kept by that of now.

What keeps them is what `tigerchat start --local` keeps them by; it alone can be asked to have a
node run by another program, which commits from before it could not. The earlier program is what
git has of that commit: a clone without history has none.
"""

import asyncio
import io
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from appliance.drivers.host.process import own_command, own_source
from appliance.formats.site import SITE_FILE, load_site
from appliance.node.child import Child, Program
from appliance.node.supervisor import Supervisor, supervise
from appliance.node.upgrade import KeptNode, KeptRestart
from appliance.roles.operator.keeping import Keeper
from tests.patience import HUNG_S
from tests.system.local_site import TOP, LocalSite, environment, wait_until

EARLIER = "1e70ad9"  # the parts of a node spoke another protocol with each other then
SELF = [sys.executable, "-m", "tests.system.earlier_site"]
KEPT = ("appliance", "firmware-config")  # of its tree: what a program is made of
# Stands in for its executable.
PROGRAM = """#!/bin/sh
PYTHONPATH={tree} exec {python} -P -m appliance "$@"
"""


def earlier_program(folder: Path, *, or_twin: bool = False) -> Path:
    """The program of the earlier commit, unpacked into `folder`. `or_twin`: where there is no
    history, a program that differs from that of now in nothing but its digest."""
    words = ["git", "-C", str(TOP), "archive", "--format=tar", EARLIER, *KEPT]
    done = subprocess.run(words, capture_output=True, check=False)
    tree = folder / "earlier"
    if done.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(tree, filter="data")
    elif or_twin:
        for name in KEPT:
            shutil.copytree(TOP / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        (tree / "appliance" / "twin").touch()
    else:
        said = done.stderr.decode(errors="replace").strip()
        raise AssertionError(
            f"no commit {EARLIER} here to upgrade from: this test needs a clone with its history "
            f"(`git fetch --unshallow`); git said: {said}"
        )
    program = folder / "earlier-tigerchat"
    program.write_text(PROGRAM.format(tree=tree, python=sys.executable))
    program.chmod(0o755)
    return program


class EarlierSite(LocalSite):
    """Formatted and run by that program. One process keeps all nodes: they start and end with
    it."""

    def __init__(self, folder: Path, first_port: int, program: Path) -> None:
        super().__init__(folder, first_port, log_level="warning")
        self.program = program

    def _format(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words],
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=HUNG_S,
        )

    def start(self, *nodes: int) -> None:
        assert not nodes and not self.supervisors
        self.supervisors[0] = subprocess.Popen(
            [*SELF, "keep", str(self.folder), str(self.program)],
            cwd=TOP,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def _descendants(self, node: int) -> Iterator[psutil.Process]:
        """Of whoever keeps it: once it was upgraded, nobody here has started it."""
        return iter(self.processes(node, "edge"))

    def alone(self, node: int) -> Path:
        """The folder of a node as on a machine of its own: no other one lies beside it."""
        machine = self.folder.parent / f"machine-{node}"
        machine.mkdir()
        (machine / "node").symlink_to(self.place(node))
        return machine / "node"

    def restart_words(self, node: int) -> str:
        """What restarts a node on its machine by the program of now."""
        return shlex.join([*SELF, "restart", str(self.folder), f"node-{node}"])

    def kept_by(self, node: int) -> str:
        """The program that runs a node, as a process of it shows: `earlier` or `now`."""
        (replica,) = self.replicas(node)
        found = replica.environ()["PYTHONPATH"].split(os.pathsep)[0]
        return "now" if found == str(TOP) else "earlier"

    def all_kept_by(self) -> list[str]:
        """The same of all nodes."""
        wait_until(
            lambda: all(len(self.replicas(node)) == 1 for node in self.nodes),
            HUNG_S,
            "each node has a replica",
        )
        return [self.kept_by(node) for node in self.nodes]


def keep(folder: Path, program: str) -> int:
    """What `start --local` does, once it knows that the site may start."""
    site = load_site(folder / SITE_FILE)
    children = []
    for node in site.nodes:
        verb = ["start", "--node-folder", str(folder / node.name), "--quiet", "--unpinned"]
        children.append(
            Child(node.name, [program, *verb], stop_group=0, mends_itself=True, verb=verb)
        )
    supervisor = Supervisor(children, report=lambda line: print(line, flush=True))
    return asyncio.run(supervise(supervisor, folder, site.cluster))


def restart(folder: Path, name: str) -> None:
    """What a service manager does where the program of now lies in the place of the earlier one."""
    site = load_site(folder / SITE_FILE)
    (node,) = (node for node in site.nodes if node.name == name)
    program = Program(own_command(), own_source())
    KeptRestart(Keeper(folder, site.cluster), program, print)(KeptNode(folder, name, node.index))


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "keep":
        sys.exit(keep(Path(words[0]), words[1]))
    restart(Path(words[0]), words[1])
