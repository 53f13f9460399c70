"""`tigerchat format`: makes a site once, completes what was interrupted, overwrites nothing."""

import contextlib
import ctypes
import hashlib
import os
import resource
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.__main__ import main
from appliance.base.limits import SEGMENTS_MAX_DEFAULT
from appliance.cores.vsr import open as opening
from appliance.drivers.host.node_folder import NodeFolder, open_node
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.geometry import PRODUCTION
from appliance.formats.settings import SETTINGS_FILE, load_settings
from appliance.formats.site import SITE_FILE, encode_site, load_site
from appliance.node import format_site
from appliance.roles.operator import volumes
from tests import forked
from tests.commands.conftest import Sentence, Tigerchat, environment
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import HEARS_NOBODY, ports_in_a_row

SMALL = ("--geometry", "small")
TWO = ("--nodes", 2, "--accept-two-replicas")
KILOBYTE, MEGABYTE = 1 << 10, 1 << 20


def format_small(tigerchat: Tigerchat, folder: Path, *words: object):
    """As `format` does, but for what takes long and is seen by nobody here."""
    return tigerchat("format", "--local", folder, *SMALL, "--brief", *words)


def contents(folder: Path) -> dict[str, str]:
    """Digest of each file, by name."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def assert_whole(folder: Path, *, nodes: int, shards: int) -> None:
    """Each node opens, and each volume is the replica that the site file names."""
    for index in range(nodes):
        node = open_node(folder / f"node-{index}")
        assert len(node.shards) == shards
        for shard in node.shards:
            block = opening.choose(superblock_copies(node, shard.number))[0]
            assert block.cluster == node.site.cluster
            assert block.replica_id == shard.replica_ids[index]
            assert block.members == shard.replica_ids
            assert block.view == shard.number % nodes


def superblock_copies(node: NodeFolder, shard: int) -> list[bytes | None]:
    reader = VolumeReader(node.volume(shard))
    try:
        return reader.read_many([(copy * 64 * KILOBYTE, 8 * KILOBYTE) for copy in range(4)])
    finally:
        reader.close()


# --- a new site -----------------------------------------------------------------------------------


def test_a_local_site_is_made_with_all_its_keys_and_volumes(
    tigerchat: Tigerchat, tmp_path: Path
) -> None:
    result = format_small(tigerchat, tmp_path / "run", "--nodes", 3, "--shards", 2)
    assert result.returncode == 0, result.stderr
    assert "node-2, shard 1: reserving" in result.stdout
    assert f"`tigerchat start --local {tmp_path / 'run'}`" in result.stdout
    assert_whole(tmp_path / "run", nodes=3, shards=2)


def test_one_more_node_ships_where_and_how_its_peers_do(
    tigerchat: Tigerchat, tmp_path: Path
) -> None:
    site = tmp_path / "run"
    assert format_small(tigerchat, site, "--nodes", 1).returncode == 0
    peer = site / "node-0" / SETTINGS_FILE
    chosen = f'ship_target = "{tmp_path / "archive"}"\nship_period_s = 60\n'
    peer.write_text(chosen + peer.read_text())
    result = format_small(tigerchat, site, "--another")
    assert result.returncode == 0, result.stderr
    first, added = (load_settings(site / f"node-{index}" / SETTINGS_FILE) for index in (0, 1))
    assert (first.ship_target, first.ship_period_s) == (str(tmp_path / "archive"), 60)
    assert (added.ship_target, added.ship_period_s) == (first.ship_target, first.ship_period_s)


@pytest.mark.parametrize("word", ["--without-objects", "--no-objects"])
def test_one_more_node_has_objects_as_its_peers_do(
    tigerchat: Tigerchat, tmp_path: Path, word: str
) -> None:
    """None of those that were made without, and nothing is said of them where nothing was before:
    the next start gives such a site a port for each."""
    site = tmp_path / "run"
    assert format_small(tigerchat, site, "--nodes", 1, word).returncode == 0
    path = site / SITE_FILE
    for found in ([0, 0], [None, None, None]):
        if None in found:
            path.write_text(path.read_text().replace("objects_port = 0\n", ""))
        assert format_small(tigerchat, site, "--another").returncode == 0
        assert [node.objects_port for node in load_site(path).nodes] == found


def test_volumes_are_written_and_secrets_can_be_read_by_their_owner_only(
    tigerchat: Tigerchat, tmp_path: Path
) -> None:
    result = tigerchat("format", "--local", tmp_path, *SMALL, "--nodes", 1)
    assert result.returncode == 0, result.stderr
    assert "node-0, shard 0: writing" in result.stdout
    assert_whole(tmp_path, nodes=1, shards=1)
    secrets = ["token.key", "node-0/keys/signing.key", "node-0/keys/tls.key"]
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in secrets] == ["0o600"] * 3
    folders = ["node-0/keys", "node-0/sockets", "node-0/shard-0"]
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in folders] == ["0o700"] * 3


def test_a_secret_that_others_can_read_is_refused(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    assert format_small(tigerchat, tmp_path, "--nodes", 1).returncode == 0
    key = tmp_path / "node-0/keys/signing.key"
    key.chmod(0o644)
    text = sentence(
        tigerchat("start", "replica", "--node-folder", tmp_path / "node-0", "--shard", 0), 2
    )
    assert text == f"{key} can be read by others: `chmod 600 {key}`"


def test_ports_start_where_they_are_told_to(
    tigerchat: Tigerchat, tmp_path: Path, free_ports: FreePorts
) -> None:
    first = ports_in_a_row(free_ports)
    assert format_small(tigerchat, tmp_path, *TWO, "--ports", first).returncode == 0
    nodes = load_site(tmp_path / "site.toml").nodes
    assert [
        tuple(port - first for port in (node.peer_port, node.client_port, node.console_port))
        for node in nodes
    ] == [(0, 43, 80), (100, 143, 180)]
    assert [node.objects_port for node in nodes] == [first + 90, first + 190], "unless told not to"


# --- what was formatted stays ---------------------------------------------------------------------


def test_a_second_format_is_refused_and_changes_no_byte(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    assert format_small(tigerchat, tmp_path).returncode == 0
    before = contents(tmp_path)
    text = sentence(format_small(tigerchat, tmp_path), 2)
    assert text.startswith(f"{tmp_path / 'site.toml'} exists, {tmp_path} is formatted: start it")
    assert f"`tigerchat start --local {tmp_path}`" in text
    text = sentence(tigerchat("format", "--node-folder", tmp_path / "node-1", *SMALL), 2)
    assert text.startswith(f"{tmp_path / 'node-1/formatted'} exists, the node is formatted")
    assert contents(tmp_path) == before


def test_a_lost_volume_is_never_made_again(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    assert format_small(tigerchat, tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "node-1/shard-0")
    sentence(format_small(tigerchat, tmp_path), 2)
    sentence(tigerchat("format", "--node-folder", tmp_path / "node-1", *SMALL), 2)
    text = sentence(tigerchat("start", "--quiet", "--node-folder", tmp_path / "node-1"), 1)
    assert "shard-0 is missing: a replica that lost its volume must not come back empty" in text
    assert not (tmp_path / "node-1/shard-0").exists()


# Kill it as soon as this name appears: keys, site file, a volume half written, the last node. A
# volume is written whole where the moment lies in that; elsewhere it would only take time.
WRITTEN = "node-0/shard-0/data"
MOMENTS = [
    "token.key",
    "node-1/keys/tls.key",
    "site.toml",
    WRITTEN,
    "node-0/shard-0/volume.json",
    "node-0/formatted.new",
    "node-1/shard-0/segments/000001.new",
    "node-2/shard-0/data",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_format_is_completed_by_the_next_one(
    tigerchat: Tigerchat, tmp_path: Path, moment: str
) -> None:
    words = ["format", "--local", tmp_path, *SMALL, *([] if moment == WRITTEN else ["--brief"])]
    process = forked.start(words, environment=environment())
    deadline = time.monotonic() + HUNG_S
    awaited = tmp_path / moment
    while not awaited.exists() and process.poll() is None and time.monotonic() < deadline:
        pass  # no pause: the moment is short
    process.kill()
    process.communicate()
    keys = {path: path.read_bytes() for path in tmp_path.rglob("keys/*.key")}
    complete = (tmp_path / "node-2/formatted").exists()
    result = format_small(tigerchat, tmp_path)
    assert result.returncode == (2 if complete else 0), result.stderr
    assert_whole(tmp_path, nodes=3, shards=1)
    signing = {path: raw for path, raw in keys.items() if path.name == "signing.key"}
    assert {path: path.read_bytes() for path in signing} == signing


def test_ctrl_c_leaves_what_the_next_format_completes(tigerchat: Tigerchat, tmp_path: Path) -> None:
    words = ["format", "--local", tmp_path, *SMALL, "--brief"]
    process = forked.start(words, environment=environment())
    while not (tmp_path / "site.toml").exists():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HUNG_S)
    assert "Traceback" not in errors
    assert process.returncode in (0, 130)
    format_small(tigerchat, tmp_path)
    assert_whole(tmp_path, nodes=3, shards=1)


def test_a_begun_site_is_not_completed_with_other_numbers(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    assert format_small(tigerchat, tmp_path, *TWO).returncode == 0
    (tmp_path / "node-1/formatted").unlink()
    before = contents(tmp_path)
    text = sentence(format_small(tigerchat, tmp_path, "--nodes", 3), 2)
    assert text.startswith(f"{tmp_path / 'site.toml'} has 2 nodes and 1 shard: name these")
    assert contents(tmp_path) == before


def test_two_formats_at_once_do_not_meet(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    words = ["format", "--local", tmp_path, *SMALL, "--brief"]
    process = forked.start(words, environment=environment())
    while not (tmp_path / "token.key").exists():
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGSTOP)
    text = sentence(format_small(tigerchat, tmp_path), 2)
    assert text.startswith(f"{tmp_path} is in use by process {process.pid}: stop that one first")
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(HUNG_S)
    assert process.returncode == 0
    assert_whole(tmp_path, nodes=3, shards=1)


# --- one node of a site file ----------------------------------------------------------------------


def test_a_node_makes_its_keys_asks_for_them_in_the_site_file_and_is_formatted(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    assert format_small(tigerchat, tmp_path / "site", *TWO).returncode == 0
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("site.toml", "node.toml", "jwks.json"):
        shutil.copy(tmp_path / "site/node-1" / name, folder)
    text = sentence(tigerchat("format", "--node-folder", folder, *SMALL, "--brief"), 2)
    assert "nodes[1].public_key is not that of" in text
    public_key = text.rsplit("allowed: ", 1)[1]
    site = load_site(folder / "site.toml")
    old = site.nodes[1]
    site_text = encode_site(site).replace(old.public_key.hex(), public_key)
    (folder / "site.toml").write_text(site_text)
    text = sentence(tigerchat("format", "--node-folder", folder, *SMALL, "--brief"), 2)
    assert "nodes[1].certificate is not that of" in text
    head, _, tail = site_text.rpartition(old.certificate_pem.strip())
    certificate = (folder / "keys/tls.crt").read_text().strip()
    (folder / "site.toml").write_text(head + certificate + tail)
    text = sentence(tigerchat("format", "--node-folder", folder, *SMALL, "--brief"), 2)
    assert "nodes[1].client_certificate is given" in text
    shown = f'client_certificate = """\n{old.client_certificate_pem.strip()}\n"""\n'
    site_text = (folder / "site.toml").read_text()
    assert site_text.count(shown) == 2  # the nodes of a local site show the same one
    (folder / "site.toml").write_text(site_text.replace(shown, ""))
    words = ("format", "--node-folder", folder, *SMALL, "--brief")
    text = sentence(tigerchat(*words, constants=HEARS_NOBODY), 1)
    assert text.startswith("shard 0: no other member answers, which does not prove")
    assert not (folder / "shard-0").exists()
    result = tigerchat(*words, "--new-site", constants=HEARS_NOBODY)
    assert result.returncode == 0, result.stderr
    assert open_node(folder).settings.index == 1


def test_a_folder_without_a_site_file_is_refused(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    text = sentence(tigerchat("format", "--node-folder", tmp_path / "absent"), 2)
    assert text.startswith(f"{tmp_path / 'absent/site.toml'} is missing: put the site file and")


# --- places that will not do ----------------------------------------------------------------------


def test_memory_is_refused(tigerchat: Tigerchat, sentence: Sentence) -> None:
    folder = Path("/dev/shm") / f"tigerchat-test-{os.getpid()}"
    try:
        text = sentence(format_small(tigerchat, folder), 1)
        assert "is on tmpfs, which lives in memory and forgets all at power-off" in text
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def drop_privileges() -> None:
    """Root may write everywhere; without these two capabilities (1, 2) it is a user like others."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; takes effect at exec


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    text = sentence(tigerchat("format", "--local", folder, preexec_fn=drop_privileges), 1)
    assert text == (
        f"{folder / '.lock'}: Permission denied; let this user read and write it, or "
        "run as the user who owns it"
    )
    text = sentence(tigerchat("format", "--local", folder / "run", preexec_fn=drop_privileges), 1)
    assert text.startswith(f"{folder / 'run'}: Permission denied; ")


def test_a_device_or_file_is_no_folder(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    (tmp_path / "disk").write_bytes(b"")
    for place in (tmp_path / "disk", Path("/dev/null")):
        text = sentence(format_small(tigerchat, place), 2)
        assert text.startswith(f"{place} is no folder: volumes are files in a folder; make a file")


def test_a_folder_with_other_things_in_it_is_left_alone(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    text = sentence(format_small(tigerchat, tmp_path), 2)
    assert text == f"{tmp_path} holds thesis.txt, which is not of a site: choose an empty folder"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_disk_that_is_too_small_is_refused_before_the_first_volume(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    state = os.statvfs(tmp_path)
    free = state.f_bavail * state.f_frsize
    shards = 40
    assert free < 6 * shards * 1205 * MEGABYTE, "this disk holds 290 GB, name a smaller one"
    text = sentence(tigerchat("format", "--local", tmp_path, "--nodes", 6, "--shards", shards), 1)
    assert text.startswith(f"{tmp_path}: 240 volumes need 289200 MiB, of which ")
    assert text.endswith(" MiB are free: make room, or choose another disk")
    assert not list(tmp_path.rglob("data"))


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE, MEGABYTE))


def test_a_disk_that_fills_up_meanwhile_is_named_and_format_goes_on_later(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    result = tigerchat("format", "--local", tmp_path, *SMALL, preexec_fn=limit_file_size)
    text = sentence(result, 1)
    assert text.startswith(f"{tmp_path / 'node-0/shard-0/data'}: no room for ")
    assert "free space on that file system" in text
    assert format_small(tigerchat, tmp_path).returncode == 0
    assert_whole(tmp_path, nodes=3, shards=1)


# --- two replicas ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("format", "--local", "run", "--nodes", "2"),
        ("format", "--local", "run", "--nodes", "2", "--standbys", "1"),
        ("start", "--local", "run", "--nodes", "2"),
        ("found", "--node-folder", "run", "--name", "a", "--host", "127.0.0.1", "--nodes", "2"),
    ],
)
def test_two_replicas_are_had_only_by_who_says_that_they_live_through_no_loss(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path, words: tuple[str, ...]
) -> None:
    text = sentence(tigerchat(*words, cwd=tmp_path), 2)
    assert "two replicas live through the loss of neither" in text
    assert "have three (--nodes 3)" in text and "--accept-two-replicas" in text
    assert list(tmp_path.iterdir()) == [], "nothing is begun"


def test_two_replicas_that_were_accepted_are_completed_without_saying_it_again(
    tigerchat: Tigerchat, tmp_path: Path
) -> None:
    assert format_small(tigerchat, tmp_path, *TWO).returncode == 0
    (tmp_path / "node-1/formatted").unlink()
    assert format_small(tigerchat, tmp_path, "--nodes", 2).returncode == 0
    assert_whole(tmp_path, nodes=2, shards=1)


# --- wrong words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say either --local DIR or --node-folder F"),
        (("--local", "a", "--node-folder", "b"), "say either --local DIR or --node-folder F"),
        (("--local", "a", "--nodes", "0"), "'--nodes': 0 is not in the range 1<=x<=6"),
        (("--local", "a", "--nodes", "7"), "'--nodes': 7 is not in the range 1<=x<=6"),
        (("--local", "a", "--shards", "0"), "'--shards': 0 is not in the range 1<=x<=40"),
        (("--local", "a", "--ports", "0"), "'--ports': 0 is not in the range"),
        (("--local", "a", "--segments-max", "1"), "'--segments-max': 1 is not in the range"),
        (("--local", "a", "--ports", "65500"), "--ports 65500 leads to port 65591 for node 0"),
    ],
)
def test_wrong_words_are_named_with_what_is_allowed(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in sentence(tigerchat("format", *words, cwd=tmp_path), 2)


def test_segments_that_the_disk_cannot_hold_are_refused(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    """Else retention would free too late: extents are written again in turn, after the last one."""
    state = os.statvfs(tmp_path)
    free = state.f_bavail * state.f_frsize
    most, place = 1 << 20, tmp_path / "run"
    assert 3 * most * PRODUCTION.extent_size > free, "this disk is too large"
    words = ("--nodes", 3, "--segments-max", most)
    text = sentence(tigerchat("format", "--local", place, *words), 1)
    assert text.startswith(f"{place}: 3 volumes of segments_max {most} may come to need ")
    told = int(text.partition("the disk holds ")[2].split()[0])
    wanted = (free // 3 - PRODUCTION.data_size) // PRODUCTION.extent_size
    assert abs(told - wanted) < 0.1 * wanted
    assert not (place / "site.toml").exists()


def test_a_node_whose_disk_cannot_hold_the_sites_segments_is_not_formatted(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    site = tmp_path / "run"
    assert format_small(tigerchat, site, "--nodes", 1).returncode == 0
    place, text = site / "node-0", (site / "site.toml").read_text()
    shutil.rmtree(place / "shard-0")
    (place / "formatted").unlink()
    wanted = f"segments_max = {SEGMENTS_MAX_DEFAULT}\n"
    assert wanted in text, "left out, it is the default on a disk that is large enough"
    (place / "site.toml").write_text(text.replace(wanted, f"segments_max = {1 << 20}\n"))
    words = ("format", "--node-folder", place, *SMALL, "--new-site", "--brief")
    done = tigerchat(*words, constants=HEARS_NOBODY)
    assert "1 volume of segments_max 1048576 may come to need" in sentence(done, 1)
    assert not (place / "shard-0").exists()
    (place / "site.toml").write_text(text)
    assert tigerchat(*words, constants=HEARS_NOBODY).returncode == 0


# --- what listens at the ports of the new site ----------------------------------------------------


@contextlib.contextmanager
def listening(port: int, shows: Path | None) -> Iterator[None]:
    """Something takes connections there: with the key of the node in the folder `shows`, or with
    none, and then it says nothing."""
    door = socket.create_server(("127.0.0.1", port))
    if shows is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(shows / "keys" / "tls.crt", shows / "keys" / "tls.key")
        door = context.wrap_socket(door, server_side=True)

    def serve() -> None:
        while True:
            try:
                door.accept()[0].close()
            except ssl.SSLError:
                continue
            except OSError:
                return  # closed

    thread = threading.Thread(target=serve)
    if shows is not None:
        thread.start()
    try:
        yield
    finally:
        door.shutdown(socket.SHUT_RDWR)
        door.close()
        if shows is not None:
            thread.join(HUNG_S)


def test_a_new_site_is_made_beside_one_that_listens_at_its_ports(
    tigerchat: Tigerchat, tmp_path: Path, free_ports: FreePorts
) -> None:
    """As the pattern of a site on several machines is, beside `make run`."""
    (port,) = free_ports(1)
    with listening(port, None):
        made = format_small(tigerchat, tmp_path / "run", "--nodes", 1, "--ports", port)
    assert made.returncode == 0, made.stderr
    assert_whole(tmp_path / "run", nodes=1, shards=1)


def test_a_volume_is_completed_unless_its_replica_may_be_the_one_that_listens(
    tigerchat: Tigerchat,
    tmp_path: Path,
    free_ports: FreePorts,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(volumes, "RELEASE_S", 0.0)
    monkeypatch.setattr(volumes, "PROBE_S", 5.0)
    (port,) = free_ports(1)
    other, run = tmp_path / "other", tmp_path / "run"
    for folder in (other, run):
        assert format_small(tigerchat, folder, "--nodes", 1, "--ports", port).returncode == 0
    (run / "node-0" / "formatted").unlink()  # as if it had been interrupted
    (run / "node-0" / "shard-0" / "volume.json").unlink()
    words = ["format", "--local", str(run), "--nodes", "1", *SMALL, "--brief"]
    with listening(port, run / "node-0"):
        assert main(words) == 1
    assert f"at 127.0.0.1:{port} as the replica of shard 0 of node-0" in capsys.readouterr().err
    monkeypatch.setattr(volumes, "PROBE_S", 0.1)
    with listening(port, None):
        assert main(words) == 1
    assert f"at 127.0.0.1:{port} and does not show whether it is" in capsys.readouterr().err
    monkeypatch.setattr(volumes, "PROBE_S", 5.0)
    with listening(port, other / "node-0"):
        assert main(words) == 0, capsys.readouterr().err
    assert_whole(run, nodes=1, shards=1)


def test_what_a_site_is_made_for_by_itself_fits_though_others_write_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: FreePorts
) -> None:
    monkeypatch.setattr(format_site, "segments_that_fit", lambda *_: 1000)
    monkeypatch.setattr(volumes, "segments_that_fit", lambda *_: 995)  # as it is a moment later
    format_site.format_local(
        tmp_path / "run", nodes=1, standbys=0, shards=1, ports=ports_in_a_row(free_ports),
        segments_max=None, geometry="small", brief=True,
    )  # fmt: skip
    assert load_site(tmp_path / "run" / "site.toml").shards[0].segments_max == 990
