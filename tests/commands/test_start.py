"""`tigerchat start`: a site serves, says how to use it, comes back, leaves nothing behind."""

import dataclasses
import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from appliance import roles
from appliance.__main__ import VERBS, main, module_of
from appliance.base.errors import ConfigurationError
from appliance.commands import inspect, start
from appliance.drivers.host.node_folder import open_node
from appliance.formats.settings import load_settings
from appliance.formats.site import encode_site, load_site
from appliance.node import local_site
from appliance.node import ports as node_ports
from appliance.node import start as node_start
from appliance.node.catalogue import ROLES
from tests import forked, removal
from tests.commands.conftest import COMMAND, TOP, Sentence, Tigerchat, environment
from tests.killed import kill_whole
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import alarms_of_the_site, words_of

SMALL = ("--geometry", "small")
ROLES_OF_ONE_NODE = ("replica", "edge", "console", "shipper", "metadata", "farm")
PROCESSES_OF_ONE_NODE = 2 + len(ROLES_OF_ONE_NODE)  # the launcher and the supervisor
NO_NODE = ("tigerchat-tty.service", "tigerchat-tty@.service", "tigerchat-disks.service")


class Running:
    """A site that was started and what it has printed; `anew`: by a Python of its own, as a user
    does."""

    def __init__(self, folder: Path, *words: object, anew: bool = False) -> None:
        self.folder = folder
        self.output = folder.parent / f"{folder.name}.out"
        told = ["start", "--local", str(folder), *map(str, words)]
        self.process: subprocess.Popen[bytes] | forked.Started
        with open(self.output, "wb") as file:
            if anew:
                self.process = subprocess.Popen(
                    [*COMMAND, *told],
                    env=environment(),
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            else:
                self.process = forked.start(told, environment=environment(), output=file.fileno())

    def printed(self) -> str:
        return self.output.read_text()

    def until(self, condition: Callable[[], object], what: str, within_s: float = HUNG_S):
        deadline = time.monotonic() + within_s
        while not (result := condition()):
            assert self.process.poll() is None, self.printed()
            assert time.monotonic() < deadline, f"not {what}:\n{self.printed()}"
            time.sleep(0.05)
        return result

    def until_serving(self) -> None:
        self.until(lambda: re.search(r"^serving: ", self.printed(), re.M), "serving")

    def stop(self, number: int = signal.SIGINT) -> int:
        """What Ctrl-C does: the signal reaches the whole process group."""
        os.killpg(self.process.pid, number)
        return self.process.wait(HUNG_S)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Those of this site whose command line has all of `words`."""
        return processes_of(self.folder, *words)


def processes_of(folder: Path, *words: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            line = words_of(process)
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
        except psutil.Error:
            continue
        ours = any(word == str(folder) or word.startswith(f"{folder}/") for word in line)
        if ours and all(word in line for word in words):
            found.append(process)
    return found


def give_ports(folder: Path, ports: list[int]) -> None:
    """Write other ports into the site file of each node."""
    site, left = load_site(folder / "site.toml"), iter(ports)
    nodes = [
        dataclasses.replace(
            node,
            peer_port=next(left),
            client_port=next(left),
            console_port=next(left),
            objects_port=next(left),
            farm_port=next(left),
        )
        for node in site.nodes
    ]
    text = encode_site(dataclasses.replace(site, nodes=nodes))
    for path in (folder / "site.toml", *folder.glob("node-*/site.toml")):
        path.write_text(text)


@pytest.fixture(scope="module")
def single(
    tigerchat: Tigerchat, tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Iterator[Path]:
    """A site of one node, formatted and not running."""
    folder = tmp_path_factory.mktemp("single") / "run"
    assert tigerchat("format", "--local", folder, "--nodes", 1, "--brief").returncode == 0
    give_ports(folder, free_ports(5))
    yield folder
    removal.remove(folder)


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    """`run(folder)`: started, and in the end stopped."""
    sites: list[Running] = []

    def start_site(folder: Path, *words: object, anew: bool = False) -> Running:
        sites.append(Running(folder, *words, anew=anew))
        return sites[-1]

    yield start_site
    for site in sites:
        if site.process.poll() is None:
            site.process.kill()
            site.process.wait()


@pytest.fixture(scope="module")
def small(
    tigerchat: Tigerchat, tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Path:
    """Two nodes of small volumes: enough for whatever ends before a role starts."""
    folder = tmp_path_factory.mktemp("small") / "run"
    two = ("--nodes", 2, "--accept-two-replicas", "--brief")
    assert tigerchat("format", "--local", folder, *two, *SMALL).returncode == 0
    give_ports(folder, free_ports(10))
    return folder


@pytest.fixture
def small_copy(small, tmp_path: Path) -> Path:
    """One to break."""
    return Path(shutil.copytree(small, tmp_path / "run"))


# --- it serves ------------------------------------------------------------------------------------


def block_of_ports(free_ports: FreePorts, count: int) -> int:
    """The first of `count` neighbouring ports."""
    while True:
        ports = free_ports(count)
        if ports[-1] - ports[0] == count - 1:
            return ports[0]


def test_a_new_folder_becomes_three_nodes_that_serve_stop_and_continue(
    tigerchat: Tigerchat, run: Callable[..., Running], tmp_path: Path, free_ports: FreePorts
) -> None:
    folder, base = tmp_path / "run", block_of_ports(free_ports, 300)
    site = run(folder, "--nodes", 3, "--shards", 1, "--ports", base, "--brief", anew=True)
    site.until_serving()
    for node in range(3):
        assert f"chat https://127.0.0.1:{base + 43 + 100 * node}/ " in site.printed()
        assert f"console https://127.0.0.1:{base + 80 + 100 * node}/console" in site.printed()
        assert re.search(rf"console of node-{node}.*secret: \S+", site.printed())
    assert re.search(r"token of alice.*:\n  eyJ\S+\.\S+\.\S+\n", site.printed())
    local = ("--local", folder)
    assert f'send general "hello" --local {folder}' in site.printed()
    assert tigerchat("room", "create", "general", *local).returncode == 0
    assert tigerchat("send", "general", "hello", *local).returncode == 0
    assert len(site.processes("replica")) == len(site.processes("edge")) == 3
    assert site.stop() == 0
    assert site.processes() == []

    site = run(folder, "--nodes", 3, "--shards", 1)
    site.until_serving()
    assert "format:" not in site.printed()
    words = ("tail", "general", "--last", 5, "--no-follow", *local)
    site.until(lambda: "hello" in tigerchat(*words).stdout, "shown by the node that is asked")
    assert tigerchat(*words).stdout.count("hello") == 1
    assert site.stop(signal.SIGTERM) == 0
    assert site.processes() == []
    removal.remove(folder)


@pytest.mark.parametrize("is_brief", [False, True])
def test_volumes_of_a_new_site_are_written_whole_unless_it_is_said_to_be_brief(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_brief: bool
) -> None:
    said: list[list[str]] = []
    monkeypatch.setattr(local_site.forked, "run", lambda words, _: said.append(words) or 7)
    words = ["start", "--local", str(tmp_path / "run"), *(["--brief"] if is_brief else [])]
    assert main(words) == 7, "nothing is started, as format has ended so"
    assert [("format" in words, "--brief" in words) for words in said] == [(True, is_brief)]


def test_a_site_whose_members_changed_is_started_by_the_same_words(
    tigerchat: Tigerchat, run: Callable[..., Running], tmp_path: Path, free_ports: FreePorts
) -> None:
    """Numbers need not be said: nobody has to know who came. Said, they are those of now. Who was
    removed is not waited for."""
    folder, base = tmp_path / "run", block_of_ports(free_ports, 400)
    local = ("--local", folder)
    few = ("--no-objects", "--no-farm")  # roles: enough for what is about members
    assert tigerchat("format", *local, "--ports", base, *SMALL, "--brief", *few).returncode == 0
    for node in range(3):  # what the site was set to, whoever comes gets too
        with (folder / f"node-{node}" / "node.toml").open("a") as file:
            file.write('ship_target = "off"\nship_period_s = 7\nrouting = "chain"\n')  # one is gone
    site = run(folder)
    site.until_serving()
    added = tigerchat("member", "add", *local, *SMALL, "--brief")
    assert added.returncode == 0, added.stderr
    settings = load_settings(folder / "node-3/node.toml")
    assert (settings.index, settings.ship_target, settings.ship_period_s) == (3, "off", 7)
    assert site.stop() == 0
    site = run(folder, "--nodes", 3, "--standbys", 1)
    site.until_serving()
    assert "serving: 4 nodes (1 of them standby), 1 shard" in site.printed()

    refused = tigerchat("node", "stop", "node-9", *local)
    assert refused.returncode == 2 and "allowed: node-0, node-1" in refused.stderr
    stopped = tigerchat("node", "stop", "node-1", *local)
    assert stopped.returncode == 0, stopped.stderr
    assert not site.processes("replica", str(folder / "node-1"))
    (other,) = site.processes("replica", str(folder / "node-2"))
    other.suspend()  # as good as dead, and slow to be asked
    refused = tigerchat("node", "stop", "node-0", *local)
    other.resume()
    assert refused.returncode == 1
    assert "without node-0 shard 0 has 0 of 2 needed replicas" in refused.stderr
    assert tigerchat("node", "start", "node-1", *local).returncode == 0
    drained = tigerchat("node", "drain", "node-2", *local)
    assert drained.returncode == 0, drained.stderr
    site.until(lambda: not site.processes("edge", str(folder / "node-2")), "drained")
    assert site.processes("replica", str(folder / "node-2"))
    assert tigerchat("node", "start", "node-2", *local).returncode == 0
    site.until(lambda: site.processes("edge", str(folder / "node-2")), "no longer drained")
    site.until(lambda: site.processes("replica", str(folder / "node-1")), "started again")

    words = ("member", "promote", "node-3", "--retire", "node-0", *local)
    site.until(lambda: tigerchat(*words).returncode == 0, "ready to vote")
    gone = tigerchat("member", "remove", "node-0", *local)
    assert gone.returncode == 0, gone.stderr
    assert site.stop() == 0
    assert "Traceback" not in site.printed()
    site = run(folder, "--nodes", 3, "--standbys", 0)
    site.until_serving()
    assert "serving: 3 nodes, 1 shard" in site.printed()
    assert not site.processes("replica", str(folder / "node-0"))
    site.until(lambda: alarms_of_the_site(tigerchat("status", *local).stdout) == [], "no alarm")
    shown = tigerchat("status", *local)
    assert "node-0" not in shown.stdout
    assert {"node-1", "node-2", "node-3"} <= set(shown.stdout.split())
    assert tigerchat("room", "create", "after all this", *local).returncode == 0
    assert site.stop() == 0
    assert "Traceback" not in site.printed(), "no edge has died"
    removal.remove(folder)


def test_every_process_that_is_killed_comes_back_and_the_site_serves(
    tigerchat: Tigerchat, run: Callable[..., Running], single: Path
) -> None:
    site = run(single)
    site.until_serving()
    node = single / "node-0"
    for role in ROLES_OF_ONE_NODE:
        victim = site.processes("start", role)[0]
        kill_whole(victim)
        site.until(
            lambda r=role, v=victim: [p for p in site.processes("start", r) if p.pid != v.pid],
            f"{role} again",
        )
    before = {process.pid for process in site.processes()} - {site.process.pid}
    kill_whole(site.processes("start", "--quiet", str(node))[0])
    site.until(
        lambda: (
            len(fresh := {process.pid for process in site.processes()}) == PROCESSES_OF_ONE_NODE
            and before.isdisjoint(fresh)
        ),
        "all of the node again",
    )
    made = tigerchat("room", "create", "again", "--local", single)
    assert made.returncode == 0, made.stderr
    assert site.stop() == 0
    assert site.processes() == []


def test_nothing_survives_a_launcher_that_was_killed(
    run: Callable[..., Running], single: Path
) -> None:
    site = run(single, anew=True)
    site.until_serving()
    assert len(site.processes()) == PROCESSES_OF_ONE_NODE
    kill_whole(psutil.Process(site.process.pid))
    assert site.processes() == []


def test_a_second_start_of_a_running_site_is_refused(
    tigerchat: Tigerchat, sentence: Sentence, run: Callable[..., Running], single: Path
) -> None:
    site = run(single)
    site.until_serving()
    text = sentence(tigerchat("start", "--local", single), 2)
    assert text.startswith(f"{single} is in use by process {site.process.pid}: stop that one")
    text = sentence(tigerchat("start", "--node-folder", single / "node-0", "--quiet"), 2)
    assert text.startswith(f"{single / 'node-0'} is in use by process ")
    text = sentence(tigerchat("format", "--local", single, "--nodes", 1), 2)
    assert text.startswith(f"{single} is in use by process {site.process.pid}")
    assert site.stop() == 0


def test_one_process_runs_all_roles_of_a_node(
    tigerchat: Tigerchat, run: Callable[..., Running], single: Path
) -> None:
    site = run(single, "--one-process")
    site.until_serving()
    assert len(site.processes()) == 2
    assert len(site.processes("--one-process", "--quiet")) == 1
    made = tigerchat("room", "create", "one-process", "--local", single)
    assert made.returncode == 0, made.stderr
    assert site.stop() == 0
    assert site.processes() == []


def test_inspect_reads_a_volume_while_its_replica_runs(
    tigerchat: Tigerchat, run: Callable[..., Running], single: Path
) -> None:
    site = run(single)
    site.until_serving()
    assert tigerchat("room", "create", "seen", "--local", single).returncode == 0
    shown = {}
    for words in (("superblock",), ("wal", "--records"), ("segment", "--records"), ("checkpoint",)):
        looked = tigerchat("inspect", *words, "--volume", single / "node-0/shard-0", "--json")
        assert looked.returncode == 0, looked.stderr
        shown[words[0]] = looked.stdout
    assert b"seen".hex() in shown["wal"]
    assert '"copies_to_repair": []' in shown["superblock"]
    assert site.stop() == 0


# --- it says why not ------------------------------------------------------------------------------


def named(small: Path, key: str, port: int) -> str:
    """How the sentence begins that refuses a taken port of node-1."""
    return (
        f"port {port} on 127.0.0.1 cannot be used (Address already in use): stop what uses it or "
        f"change {key} of node-1 in {small / 'node-1/site.toml'}"
    )


@pytest.mark.parametrize(
    "key", ["peer_port", "client_port", "console_port", "objects_port", "farm_port"]
)
def test_a_port_that_is_taken_is_named_with_its_setting(
    monkeypatch: pytest.MonkeyPatch, small: Path, key: str
) -> None:
    monkeypatch.setattr(node_ports, "RELEASE_S", 0.1)  # for whoever was killed to let go of it
    port = getattr(load_site(small / "site.toml").nodes[1], key)
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(ConfigurationError, match=f"^{re.escape(named(small, key, port))}"):
            node_ports.check_ports(open_node(small / "node-1"))


def test_no_start_goes_on_when_a_port_is_taken(
    tigerchat: Tigerchat, sentence: Sentence, small: Path
) -> None:
    port = load_site(small / "site.toml").nodes[1].client_port
    brief = {f"{node_ports.__name__}.RELEASE_S": 0.2}
    with socket.create_server(("127.0.0.1", port)):
        for words in (("--local", small), ("--node-folder", small / "node-1", "--quiet")):
            ended = tigerchat("start", *words, constants=brief)
            assert sentence(ended, 2).startswith(named(small, "client_port", port))
    assert processes_of(small) == []


def test_ports_of_a_formatted_site_are_moved_by_the_switch(
    tigerchat: Tigerchat, sentence: Sentence, small_copy: Path, free_ports: FreePorts
) -> None:
    site = load_site(small_copy / "site.toml")
    first = free_ports(1)[0]
    (small_copy / "node-1/node.toml").write_text("index = 1\npinning = 3\n")  # ends the start
    sentence(tigerchat("start", "--local", small_copy, "--ports", first), 2)
    step = first - site.nodes[0].peer_port
    for path in small_copy.glob("**/site.toml"):
        moved = load_site(path)
        assert [node.client_port for node in moved.nodes] == [
            node.client_port + step for node in site.nodes
        ]
    assert load_site(small_copy / "site.toml").shards == site.shards


def test_a_site_of_before_gets_ports_for_objects_in_every_file_and_is_told_once(
    tigerchat: Tigerchat, sentence: Sentence, small_copy: Path, free_ports: FreePorts
) -> None:
    (small_copy / "node-1/node.toml").write_text("index = 1\npinning = 3\n")  # ends the start
    files = sorted(small_copy.glob("**/site.toml"))
    assert len(files) == 3
    for path in files:
        path.write_text(re.sub(r"objects_port = \d+\n", "", path.read_text()))
    words = ("start", "--local", small_copy, "--ports", free_ports(1)[0])
    told = tigerchat(*words).stderr.splitlines()
    assert len(told) == 2 and "pinning is 3" in told[1]
    ports = [node.objects_port for node in load_site(files[0]).nodes]
    assert all(ports) and f"have ports {ports[0]}, {ports[1]} for" in told[0]
    assert len({path.read_text() for path in files}) == 1
    sentence(tigerchat(*words), 2)  # and says no more than why it ends
    for path in files:
        path.write_text(re.sub(r"objects_port = \d+\n", "objects_port = 0\n", path.read_text()))
    without = files[0].read_text()
    sentence(tigerchat(*words), 2)
    assert {path.read_text() for path in files} == {without}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", 3), "--nodes is 3; allowed: 2, as "),
        (("--shards", 2), "--shards is 2; allowed: 1, as "),
        (("--ports", 65535), "--ports is 65535; allowed: such that all lie in 1 to 65535"),
    ],
)
def test_other_numbers_than_were_formatted_are_refused(
    tigerchat: Tigerchat, sentence: Sentence, small: Path, words: tuple[str, int], said: str
) -> None:
    assert sentence(tigerchat("start", "--local", small, *words), 2).startswith(said)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("node.toml", "index = 1", "index = 2", "index is 2; allowed: 0 to 1"),
        ("node.toml", "index = 1", "index = 0", "nodes[0].public_key is not that of"),
        (
            "node.toml",
            "index = 1",
            'index = 1\nclient_tls = "no"',
            "client_tls is 'no'; allowed: true",
        ),
        (
            "node.toml",
            "index = 1",
            "index = 1\nedge_processes = 30",
            "edge_processes is 30; allowed: at most 29 on each of 2 nodes, as a shard knows 64",
        ),
        ("node.toml", "index = 1", "index = 1\nspeed = 9", "speed is unknown; allowed: index, "),
        ("site.toml", "peer_port", "pear_port", "nodes[0].pear_port is unknown; allowed: index"),
        ("site.toml", "version = 1", "version = 9", "version is 9; allowed: a whole number from 1"),
        ("keys/signing.key", "", "00", "is no key: restore it; allowed: 64 hexadecimal digits"),
        ("keys/tls.crt", "BEGIN", "BEGUN", "is no PEM certificate: restore it"),
    ],
)
def test_a_wrong_line_in_a_nodes_files_ends_the_start_with_code_2(
    tigerchat: Tigerchat,
    sentence: Sentence,
    small_copy: Path,
    file: str,
    old: str,
    new: str,
    said: str,
) -> None:
    path = small_copy / "node-1" / file
    path.write_text(path.read_text().replace(old, new, 1) if old else new)
    text = sentence(tigerchat("start", "--node-folder", small_copy / "node-1", "--quiet"), 2)
    assert said in text
    assert str(path if "public_key" not in said else path.with_name("site.toml")) in text


def test_a_wrong_line_ends_the_start_of_a_site_before_any_node_runs(
    tigerchat: Tigerchat, sentence: Sentence, small_copy: Path
) -> None:
    path = small_copy / "node-1/node.toml"
    path.write_text("index = 1\npinning = 3\n")
    text = sentence(tigerchat("start", "--local", small_copy), 2)
    assert text == f'{path}: pinning is 3; allowed: "auto", "off"'


@pytest.mark.parametrize("missing", ["jwks.json", "site.toml", "node.toml"])
def test_a_missing_file_is_named(
    tigerchat: Tigerchat, sentence: Sentence, small_copy: Path, missing: str
) -> None:
    (small_copy / "node-1" / missing).unlink()
    text = sentence(tigerchat("start", "--quiet", "--node-folder", small_copy / "node-1"), 2)
    assert text.startswith(f"{small_copy / 'node-1' / missing}")


def test_a_node_that_is_not_formatted_is_told_how(
    tigerchat: Tigerchat, sentence: Sentence, small_copy: Path
) -> None:
    (small_copy / "node-0/formatted").unlink()
    text = sentence(tigerchat("start", "--quiet", "--node-folder", small_copy / "node-0"), 2)
    assert "is not formatted: run `tigerchat format --node-folder" in text
    text = sentence(tigerchat("start", "--node-folder", small_copy / "node-9", "--quiet"), 2)
    assert "is not a folder of a node" in text


def test_the_volume_of_another_node_or_site_is_recognised(
    tigerchat: Tigerchat, sentence: Sentence, small_copy: Path, small: Path, tmp_path: Path
) -> None:
    volume = "node-1/shard-0"
    shutil.rmtree(small_copy / volume)
    shutil.copytree(small / "node-0/shard-0", small_copy / volume)
    words = ("start", "--quiet", "--node-folder", small_copy / "node-1")
    text = sentence(tigerchat(*words), 1)
    assert text.startswith(f"{small_copy / volume} belongs to another node of this site")
    assert tigerchat("format", "--local", tmp_path / "other", *SMALL, "--brief").returncode == 0
    shutil.rmtree(small_copy / volume)
    shutil.copytree(tmp_path / "other" / volume, small_copy / volume)
    text = sentence(tigerchat(*words), 1)
    assert text.startswith(f"{small_copy / volume} belongs to another site or shard")


def test_a_superblock_that_cannot_be_trusted_ends_the_start_with_its_name(
    tigerchat: Tigerchat, sentence: Sentence, small_copy: Path
) -> None:
    with open(small_copy / "node-0/shard-0/data", "r+b") as file:
        file.write(bytes(256 * 1024))
    text = sentence(tigerchat("start", "--quiet", "--node-folder", small_copy / "node-0"), 1)
    assert f"{small_copy / 'node-0/shard-0'}: SUPERBLOCK_MISSING: not one superblock copy" in text


def test_a_shard_that_the_node_does_not_hold_is_refused(
    tigerchat: Tigerchat, sentence: Sentence, small: Path
) -> None:
    text = sentence(
        tigerchat("start", "replica", "--node-folder", small / "node-0", "--shard", 4), 2
    )
    assert text.startswith("--shard is 4; allowed: 0, the shards of ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say --local DIR, --node-folder F, or a role"),
        (("--local", "a", "--node-folder", "b"), "say --local DIR, --node-folder F, or a role"),
        (("--local", "a", "--nodes", "9"), "'--nodes': 9 is not in the range 1<=x<=6"),
        (("waiter",), "No such command 'waiter'"),
        (("replica",), "Missing option '--node-folder'"),
        (("replica", "--node-folder", "a"), "Missing option '--shard'"),
    ],
)
def test_wrong_words_are_named(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in sentence(tigerchat("start", *words, cwd=tmp_path), 2)


# --- phases, roles, templates ---------------------------------------------------------------------


def test_a_start_names_its_phases_in_order(tigerchat: Tigerchat, small_copy: Path) -> None:
    place = small_copy / "node-0"
    site = load_site(place / "site.toml")
    elsewhere = [dataclasses.replace(node, host="192.0.2.1") for node in site.nodes]
    (place / "site.toml").write_text(encode_site(dataclasses.replace(site, nodes=elsewhere)))
    told = tigerchat("start", "--node-folder", place).stderr.splitlines()
    assert "on 192.0.2.1 cannot be used" in told[-1]
    phases = [line.split(": ")[2] for line in told if line.startswith("start: node-0: ")]
    assert phases == ["machine", "files", "superblock"]
    assert [name for name, _ in node_start.PHASES] == [*phases, "ports", "roles"]
    assert "superblock: shard 0 at view 0, checkpoint 0" in told[2]


def test_templates_roles_and_names_that_start_accepts_are_the_same() -> None:
    templates = {
        path.name.removeprefix("tigerchat-").split(".")[0].rstrip("@"): path.read_text()
        for path in (TOP / "systemd").glob("tigerchat*.service")
        if path.name not in NO_NODE
    }
    folder = Path(roles.__file__).parent
    modules = {path.stem for path in folder.glob("[a-z]*.py")}
    modules |= {path.parent.name for path in folder.glob("*/role.py")}
    assert templates.keys() == modules | {"tigerchat"}
    assert set(start.command.commands) == {row.name for row in ROLES} == modules
    assert {row.module.removeprefix("appliance.roles.").split(".")[0] for row in ROLES} == modules
    for name, text in templates.items():
        words = re.search(r"^ExecStart=\S+/tigerchat start (.*)$", text, re.M).group(1).split()
        if name == "tigerchat":
            assert words[0] == "--node-folder"
            continue
        assert words[0] == name
        options = {
            option for parameter in start.command.commands[name].params for option in parameter.opts
        }
        assert {word for word in words[1:] if word.startswith("--")} <= options


def test_templates_hold_process_policy_and_no_shell() -> None:
    for path in (TOP / "systemd").glob("*.service"):
        text = path.read_text()
        assert "/bin/sh" not in text
        if path.name in NO_NODE:
            continue  # the first tries until there is a node, the second is done at once
        for wanted in (
            "Type=notify",
            "WatchdogSec=",
            "Restart=always",
            "TimeoutStopSec=",
            "RestartPreventExitStatus=2",
            "NoNewPrivileges=yes",
            "User=tigerchat",
        ):
            assert f"\n{wanted}" in text, f"{path.name}: {wanted}"


# --- the door -------------------------------------------------------------------------------------


def test_every_verb_has_its_module_and_every_module_its_verb() -> None:
    folder = Path(start.__file__).parent
    assert {path.stem for path in folder.glob("[a-z]*.py")} == {module_of(verb) for verb in VERBS}
    for verb in VERBS:
        module = importlib.import_module(f"appliance.commands.{module_of(verb)}")
        assert module.command.name == verb


def test_without_assertions_nothing_runs(sentence: Sentence) -> None:
    words = [COMMAND[0], "-O", *COMMAND[1:], "version"]
    result = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert sentence(result, 2).startswith("assertions are off, and they guard the data")
    result = subprocess.run(
        [*COMMAND, "version"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), "PYTHONOPTIMIZE": "1"},
    )
    sentence(result, 2)


def test_version_and_help_come_without_the_weight_of_the_others(tigerchat: Tigerchat) -> None:
    result = tigerchat("version")
    assert re.fullmatch(
        r"tigerchat \d+\.\d+\.\d+ \(from source, Python 3\.11\.\d+(, commit \S+)?\)\n",
        result.stdout,
    )
    told = tigerchat("--help")
    assert told.returncode == 0
    assert all(f"  {verb} " in told.stdout for verb in VERBS)


# --- what operators read --------------------------------------------------------------------------


def test_every_phase_verb_exit_code_and_halt_is_in_the_operators_book() -> None:
    book = (TOP / "docs/operations.md").read_text()
    for name, _ in node_start.PHASES:
        assert f"\n| {name} | " in book
    (started,) = re.findall(r"^\| roles \| (.*) \|$", book, re.M)
    for role in ROLES:
        assert re.search(rf"`{role.name}(-\w)?`", started), role.name
    for unit in (TOP / "systemd").glob("tigerchat*.*"):
        assert re.search(rf"`{unit.stem}(0|ttyS0)?(\.\w+)?`", book), unit.name
    for what in inspect.command.commands:
        assert f"`inspect {what}" in book
    for code in (0, 1, 2, 3, 130):
        assert f"\n| {code} | " in book
    sources = [
        *(TOP / "appliance/cores/vsr").glob("*.py"),
        TOP / "appliance/roles/replica/role.py",
        *(TOP / "appliance/drivers/nvme").glob("*.py"),
    ]
    halts = {
        code
        for path in sources
        for code in re.findall(
            r'"((?:SUPERBLOCK|WAL|CHECKPOINT|STORAGE|DISK|CLUSTER|CHAIN)_[A-Z_]+'
            r'|DIVERGED|ASSERTION)"',
            path.read_text(),
        )
    }
    assert len(halts) > 10
    for code in halts:
        assert f"`{code}`" in book, code
