"""`tigerchat status` asks real sockets; who answers is scripted."""

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from appliance.commands import status as status_verb
from appliance.commands.status import command
from appliance.drivers.host.identity import make_certificate
from appliance.drivers.network.status import StatusServer
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.formats.site import SITE_FILE, Node, Site, encode_site
from tests.cores.console.worlds import edge, replica, site
from tests.patience import HUNG_S

Answering = Callable[..., object]
TRIES = 20  # of which one has to be quick: others may have the processors


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_verb, "RATE_S", 0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folders of a local site of three nodes: what status reads of them."""
    _, certificate = make_certificate("node", "127.0.0.1")
    plain = site()
    nodes = [
        Node(
            **(
                vars(node)
                | {"certificate_pem": certificate, "public_key": bytes([node.index + 1]) * 32}
            )
        )
        for node in plain.nodes
    ]
    described = Site(**(vars(plain) | {"nodes": nodes}))
    (tmp_path / SITE_FILE).write_text(encode_site(described))
    for node in nodes:
        place = tmp_path / node.name
        (place / "sockets").mkdir(parents=True)
        (place / SITE_FILE).write_text(encode_site(described))
        (place / SETTINGS_FILE).write_text(encode_settings(node.index))
    return tmp_path


@contextmanager
def answering(folder: Path, *, but: tuple[str, ...] = (), **changes: object) -> Iterator[None]:
    """Processes of all three nodes answer, `but` those of these socket names (node/socket)."""
    loop, stop, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def serve() -> None:
        servers = []
        for i in range(3):
            said = replica(i, role="backup" if i else "primary", **(changes if i == 1 else {}))
            for name, status in (("shard-0", said), ("edge-0", edge())):
                if f"node-{i}/{name}" not in but:
                    path = folder / f"node-{i}" / "sockets" / name
                    servers.append(
                        StatusServer(
                            path,
                            cluster=site().cluster,
                            number=0,
                            status=lambda status=status: status,
                        )
                    )
        for server in servers:
            await server.start()
        ready.set()
        await stop.wait()
        for server in servers:
            await server.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(HUNG_S)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(HUNG_S)
        loop.close()


def status(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


def test_a_healthy_site_is_a_table_and_code_0(folder: Path) -> None:
    with answering(folder):
        result = status("--local", str(folder))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "No alarms."
    assert [
        line.split()[2:5] for line in lines if line.startswith("0      ") and "normal" in line
    ] == [
        ["node-0", "primary", "normal"],
        ["node-1", "backup", "normal"],
        ["node-2", "backup", "normal"],
    ]


def test_a_node_that_is_just_being_made_is_not_asked_for_yet(folder: Path) -> None:
    shutil.copytree(folder / "node-2", folder / "node-3")
    (folder / "node-3" / SETTINGS_FILE).write_text(encode_settings(3))
    with answering(folder):
        result = status("--local", str(folder))
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "No alarms.")


def test_a_silent_replica_is_an_alarm_and_code_1(folder: Path) -> None:
    with answering(folder, but=("node-2/shard-0",)):
        result = status("--local", str(folder))
    assert result.exit_code == 1
    assert result.output.splitlines()[1].split()[:5] == [
        "replica_down",
        "shard",
        "0",
        "on",
        "node-2",
    ]


def test_a_warning_alone_is_code_0(folder: Path) -> None:
    with answering(folder, status="view_change"):
        result = status("--local", str(folder))
    assert result.exit_code == 0
    assert "not_normal" in result.output


def test_json_holds_the_figures_and_the_same_tables(folder: Path) -> None:
    with answering(folder):
        told = json.loads(status("--local", str(folder), "--json").output)
        shown = status("--local", str(folder)).output
    assert [line["answers"] for line in told["shards"][0]["replicas"]] == [True] * 3
    for table in told["tables"]:
        for row in table["rows"]:
            assert any(all(text in line for text, _ in row) for line in shown.splitlines())


def test_one_node_alone_knows_the_others_from_its_replica(folder: Path) -> None:
    with answering(folder):
        told = json.loads(status("--node-folder", str(folder / "node-1"), "--json").output)
    replicas = told["shards"][0]["replicas"]
    assert [line["asked"] for line in replicas] == [False, True, False]
    assert [line["normal"] for line in replicas] == [True, True, True]


def test_nothing_running_is_told_in_a_table_too(folder: Path) -> None:
    result = status("--local", str(folder))
    assert result.exit_code == 1
    assert result.output.count("does not answer") == 9
    assert "no_quorum" in result.output


def test_wrong_folders_and_both_options_are_refused(folder: Path, tmp_path: Path) -> None:
    both = status("--local", str(folder), "--node-folder", str(folder / "node-0"))
    assert both.exit_code == 2
    missing = status("--local", str(tmp_path / "missing"))
    assert "cannot be read" in str(missing.exception)
    plain = status("--node-folder", str(folder))
    assert "is not a folder of a node" in str(plain.exception)


def dribble(listener: socket.socket) -> None:
    """Answer a byte at a time, for ever, until the listener is shut."""
    with contextlib.suppress(OSError):
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=_dribble_to, args=(peer,), daemon=True).start()


def _dribble_to(peer: socket.socket) -> None:
    with contextlib.suppress(OSError), peer:
        while True:
            peer.sendall(b"\0")
            time.sleep(0.05)


def test_whether_a_quorum_is_left_is_known_a_second_after_the_command_began_to_ask(
    folder: Path, tigerchat: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Of the other nodes every process takes connections; of one none answers, as when it was
    stopped, and those of the other never come to an end. What the command takes without a site, it
    takes to start: that is the machine's speed."""
    hanging = [
        path
        for node in (1, 2)
        for kind in ("shard-0", "edge-0", "supervisor-0", "shipper-0", "farm-0", "metadata-0")
        for path in [folder / f"node-{node}" / "sockets" / kind]
    ]
    listeners = [socket.socket(socket.AF_UNIX) for _ in hanging]
    names = tuple(f"{path.parts[-3]}/{path.name}" for path in hanging)
    starts_s: list[float] = []
    took_s: list[float] = []
    try:
        with answering(folder, but=names):
            for path, listener in zip(hanging, listeners, strict=True):
                listener.bind(str(path))
                listener.listen()
                if "node-2" in path.parts:
                    threading.Thread(target=dribble, args=(listener,), daemon=True).start()
            while not took_s or min(took_s) >= 1.0 + min(starts_s) and len(took_s) < TRIES:
                began = time.monotonic()
                assert tigerchat("node", "stop", "--help").returncode == 0
                started = time.monotonic()
                starts_s.append(started - began)
                done = tigerchat("node", "stop", "node-0", "--local", folder)
                took_s.append(time.monotonic() - started)
                assert done.returncode == 1
                assert "has 0 of 2 needed replicas" in done.stderr
    finally:
        for listener in listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
    assert min(took_s) < 1.0 + min(starts_s), (took_s, starts_s)
