"""How a process ends that is one role of a node, whatever its duty does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.node.format_site import format_local
from tests.patience import HUNG_S
from tests.roles.replica_group import REPO, peer_ports

CODE = """
import os, sys
from pathlib import Path
from appliance.base.errors import ConfigurationError
from appliance.drivers.host.role_process import run_role

class Duty:
    def __init__(self, node, log):
        self.node, self.log = node, log

    async def serve(self):
        self.log.warning("node %d in %s", self.node.settings.index, os.getcwd())
        print(os.nice(0) - begun, flush=True)
        {duty}

begun = os.nice(0)  # of who runs this
sys.exit(run_role(Path({folder!r}), "duty", Duty, nice=7))
"""


@pytest.fixture
def node_folder(disk_folder: Path) -> Path:
    folder = disk_folder / "site"
    with peer_ports(1) as ports:
        format_local(
            folder, nodes=1, shards=1, ports=ports, segments_max=16, geometry="small", brief=True
        )
    return folder / "node-0"


def ended(node_folder: Path, duty: str) -> subprocess.CompletedProcess[str]:
    """A process whose duty is this line."""
    return subprocess.run(
        [sys.executable, "-c", CODE.format(duty=duty, folder=str(node_folder))],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=HUNG_S,
        check=False,
    )


def test_it_works_in_the_nodes_folder_and_ends_with_the_code_of_its_duty(node_folder: Path) -> None:
    done = ended(node_folder, "return 5")
    assert done.returncode == 5
    assert done.stdout == "7\n"
    assert f"node 0 in {node_folder}" in done.stderr


def test_a_bug_ends_it_with_1_and_a_traceback(node_folder: Path) -> None:
    done = ended(node_folder, "return 1 // 0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr and "Traceback" in done.stderr


def test_a_mistake_of_the_operator_passes_through_for_the_command_to_say(node_folder: Path) -> None:
    duty = "raise ConfigurationError('peer_port 1 is taken: choose another')"
    done = ended(node_folder, duty)
    assert done.stderr.splitlines()[-1].endswith("peer_port 1 is taken: choose another")
    assert "ConfigurationError" in done.stderr.splitlines()[-1]
