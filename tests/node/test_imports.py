"""What each role imports: of the larger libraries those that it needs and no other, so that a node
starts soon and its processes hold little."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.node.catalogue import COMMON, ROLES
from tests.bench.executable import started
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import COMMAND, TOP, ports_in_a_row, words_of

LARGE = (
    *("OpenSSL", "aioquic", "anyio", "argon2", "cryptography", "google", "h11", "http.server"),
    *("jwt", "lmdb", "multiprocessing", "prometheus_client", "psutil", "setproctitle", "starlette"),
    *("statistics", "urllib.request", "uvicorn", "websockets", "wsgiref"),
    *("appliance.cores.console", "appliance.cores.edge", "appliance.cores.raft"),
    *("appliance.node.supervisor", "appliance.simulation"),
)
FOR_PAGES = {"anyio", "h11", "multiprocessing", "starlette", "urllib.request", "uvicorn"}
FOR_QUIC = {"OpenSSL", "aioquic", "cryptography"}
FOR_METRICS = {"http.server", "prometheus_client", "statistics", "wsgiref"}
HAS: dict[str, set[str]] = {
    "replica": {"psutil"},
    "edge": {"appliance.cores.edge", "jwt", "psutil", "websockets"} | FOR_PAGES | FOR_QUIC,
    "console": {"appliance.cores.console", "argon2", "cryptography", "psutil", "websockets"}
    | FOR_PAGES
    | FOR_METRICS,
    "keeper": set(),
    "shipper": {"psutil"},
    "metadata": {"lmdb", "psutil"},
    "federation": {"google", "lmdb", "psutil"} | FOR_QUIC,
    "farm": {"appliance.cores.raft", "cryptography", "lmdb", "psutil"},
}
# Of those with compiled parts: what a role neither needs nor has from before its fork.
LACKS = {
    "replica": ("cryptography", "aioquic", "lmdb", "_argon2_cffi_bindings"),
    "shipper": ("cryptography", "aioquic", "lmdb", "_argon2_cffi_bindings"),
    "metadata": ("cryptography", "aioquic", "_argon2_cffi_bindings"),
    "farm": ("aioquic", "_argon2_cffi_bindings"),
    "edge": ("_argon2_cffi_bindings",),
}
PROGRAM = """
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
print(*[name for name in {large!r} if name in sys.modules])
"""


@pytest.mark.parametrize("role", [row.name for row in ROLES])
def test_a_role_imports_of_the_larger_libraries_what_it_needs(role: str) -> None:
    (module,) = [row.module for row in ROLES if row.name == role]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(modules=(*COMMON, module), large=LARGE)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
        timeout=HUNG_S,
    )
    assert set(done.stdout.split()) == HAS[role]


def test_a_role_of_a_node_that_starts_has_no_library_that_only_those_need_who_are_forked_after_it(
    tmp_path: Path, free_ports: FreePorts
) -> None:
    """As the kernel sees it: which compiled parts a process has mapped."""
    site, ports = tmp_path / "site", ports_in_a_row(free_ports)
    small = ("--nodes", "1", "--geometry", "small", "--brief", "--ports", str(ports))
    subprocess.run([*COMMAND, "format", "--local", str(site), *small], cwd=TOP, check=True)
    mapped: dict[str, str] = {}
    with started(COMMAND, site / "node-0") as (supervisor, _):
        for process in supervisor.children():
            words = words_of(process)
            role = words[words.index("start") + 1]
            mapped[role] = Path("/proc", str(process.pid), "maps").read_text()
    for role, has_not in LACKS.items():
        assert "/numpy/" in mapped[role], "it is seen here what is mapped"
        assert [name for name in has_not if f"/{name}/" in mapped[role]] == []
    assert "/_argon2_cffi_bindings/" in mapped["console"]
