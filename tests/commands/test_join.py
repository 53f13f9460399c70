"""`tigerchat found` and `join`: three machines become one site; codes that were used, changed or
have expired are refused by name."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from msgspec import UNSET

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.limits import MIB
from appliance.cores.raft.digest import SHA256, secret_of
from appliance.drivers.chat.access import local_access
from appliance.drivers.host.node_folder import (
    FARM_KEY_FILE,
    FARM_OPERATOR_PASSWORD_FILE,
    FARM_PASSWORD_FILE,
    FARM_USERS_FILE,
    FORMATTED_FILE,
    JOINING_FILE,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    NodeFolder,
    read_node,
)
from appliance.drivers.host.process import child_environment
from appliance.drivers.network.ask import status_of
from appliance.drivers.network.joining import Gathering, JoinRefused, ask_to_join
from appliance.drivers.network.stream_end import end
from appliance.drivers.nvme.device import device_of
from appliance.drivers.nvme.volume import read_facts
from appliance.formats.join_code import JoinCode, encode_join_code, parse_join_code
from appliance.formats.settings import SETTINGS_FILE, encode_settings
from appliance.formats.site_view import SiteView
from appliance.formats.status.farm import FarmStatus
from appliance.node import founding, inviting
from appliance.node.new_node import CLIENT_PORT, PORTS_DEFAULT
from appliance.roles.farm.node_files import may_sign
from appliance.roles.farm.settings import REALM_DEFAULT, read_password
from appliance.roles.farm.site_users import administrator_of, read_site_users, user_of
from tests import forked
from tests.loop_device import loop_device
from tests.patience import HUNG_S, within
from tests.ports import FreePorts
from tests.system.local_site import COMMAND, ports_in_a_row, wait_until

CLUSTER = bytes(15) + b"\x01"
SECRETS = [bytes([number]) * 16 for number in (1, 2)]


def test_three_machines_form_a_site_by_two_codes(tmp_path: Path, free_ports: FreePorts) -> None:
    first = ports_in_a_row(free_ports)

    def words(index: int, *more: str) -> list[str]:
        folder, port = tmp_path / f"m{index}", first + 100 * index
        return [
            *COMMAND, *more, "--node-folder", str(folder), "--name", f"m{index}",
            "--host", "127.0.0.1", "--port", str(port), "--geometry", "small",
        ]  # fmt: skip

    def begin(command: list[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())

    founder = begin(words(0, "found", "--segments-max", "8"))
    assert founder.stdout is not None
    lines: Iterator[str] = iter(founder.stdout.readline, "")
    codes = [line.split()[2] for line in (next(lines) for _ in range(3)) if "join TC1" in line]
    assert len(codes) == 2
    joiners = [begin(words(index, "join", code)) for index, code in enumerate(codes, 1)]
    for process in (*joiners, founder):
        told, _ = process.communicate(timeout=HUNG_S)
        assert process.returncode == 0, told
    nodes = [read_node(tmp_path / f"m{index}") for index in range(3)]
    texts = {(node.path / "site.toml").read_text() for node in nodes}
    assert len(texts) == 1
    assert {node.settings.index for node in nodes} == {0, 1, 2}
    for node in nodes:
        assert (node.path / FORMATTED_FILE).exists()
        assert read_facts(node.volume(0))["segments_max"] == 8
    assert len({(node.path / "jwks.json").read_text() for node in nodes}) == 1
    done = subprocess.run(
        words(1, "join", codes[0]),
        capture_output=True, text=True, check=False, env=child_environment(), timeout=HUNG_S,
    )  # fmt: skip
    assert done.returncode == 2 and "belongs to a site" in done.stderr
    check_farm(nodes)


def check_farm(nodes: list[NodeFolder]) -> None:
    """The machines are members of one farm from the start: each knows all, any of them may sign the
    directory, and no password of the founder's is in another folder."""
    (key,) = (node.path / FARM_KEY_FILE for node in nodes if (node.path / FARM_KEY_FILE).exists())
    assert key.parent == nodes[0].path and all(map(may_sign, nodes))
    own = (nodes[0].path / FARM_PASSWORD_FILE).read_text().strip()
    for node in nodes[1:]:
        private = [path.read_text() for path in (node.path / FARM_USERS_FILE).parent.iterdir()]
        assert not any(own in text for text in private)
    for node, other in permutations(nodes, 2):
        users = {
            user.name: user for user in read_site_users(other.path / FARM_USERS_FILE, other.site)
        }
        names = {FARM_PASSWORD_FILE: user_of(node.node)}
        names[FARM_OPERATOR_PASSWORD_FILE] = administrator_of(node.node)
        for file, name in names.items():
            password = read_password(node.path / file)
            secret = secret_of(SHA256, username=name, realm=REALM_DEFAULT, password=password)
            assert users[name].secrets[SHA256] == secret, f"{name} may log in"
    with contextlib.ExitStack() as running:
        for node in nodes:
            process = forked.start(
                ["start", "farm", "--node-folder", str(node.path)],
                environment=child_environment(),
                constants={"appliance.roles.farm.role.POLL_S": 0.2},
            )
            running.callback(process.wait)
            running.callback(process.terminate)
        told: list[FarmStatus | None] = []

        def agreed() -> bool:
            told[:] = (status_of(FarmStatus, n.sockets, cluster=n.site.cluster) for n in nodes)
            found = [status for status in told if status is not None]
            views = [status.view for status in found if status.view is not UNSET]
            (publisher, *others) = {view.publisher for view in views} or {0}
            members = {tuple(member.id for member in status.members) for status in found}
            signs = publisher in (1, 2, 3) and not others
            return len(views) == 3 and members == {(1, 2, 3)} and signs

        wait_until(agreed, HUNG_S, lambda: str(told))


@pytest.mark.root
def test_a_site_of_one_machine_waits_for_nobody_and_lies_on_a_device(tmp_path: Path) -> None:
    with loop_device(tmp_path / "disk", 64 * MIB) as device:

        def found(*more: str) -> "subprocess.CompletedProcess[str]":
            words = ["found", "--node-folder", str(tmp_path / "m"), "--name", "m", "--host"]
            words += ["127.0.0.1", "--nodes", "1", "--geometry", "small", "--segments-max", "8"]
            return subprocess.run(
                [*COMMAND, *words, "--device", str(device), *more],
                capture_output=True, text=True, check=False, env=child_environment(),
            )  # fmt: skip

        device.write_bytes(b"\x53\xef" * 4096)
        done = found()
        assert done.returncode == 1 and "carries an ext2, ext3 or ext4" in done.stderr
        assert not (tmp_path / "m").exists(), "refused, and something was made"
        done = found("--erase", "--erase")
        assert done.returncode == 0, done.stderr
        node = read_node(tmp_path / "m")
        assert (node.path / FORMATTED_FILE).exists() and device_of(node.volume(0)) == device
        assert [len(shard.members) for shard in node.site.shards] == [1]
        access = local_access(tmp_path / "m", "alice")
        assert [endpoint.port for endpoint in access.endpoints] == [PORTS_DEFAULT + CLIENT_PORT]
        assert access.token().count(".") == 2, "it keeps the issuer of tokens"


class Site:
    """A founder in this process."""

    def __init__(self, folder: Path, port: int, seconds: float = HUNG_S) -> None:
        self.folder, self.port, self.told = folder, port, list[str]()
        self.own = founding.describe(folder / "founder", "founder", "127.0.0.1", port - 99)
        self.gathering = Gathering(
            folder / "founder" / TLS_CERTIFICATE_FILE,
            folder / "founder" / TLS_KEY_FILE,
            SECRETS,
            cluster=CLUSTER,
            seconds=seconds,
            check=lambda row, others: founding.check_description(row, [self.own, *others]),
            told=self.told.append,
            expired="the codes have expired",
        )
        self.code = JoinCode(
            "127.0.0.1", port, CLUSTER, founding.fingerprint(folder / "founder"), SECRETS[0]
        )

    async def form(self, rows: list[founding.Row]) -> list[founding.Row]:
        return [{"index": index} for index in range(1, len(rows) + 1)]

    def machine(self, name: str, port: int) -> founding.Row:
        return founding.describe(self.folder / name, name, "127.0.0.1", port)

    async def refuses(self, code: JoinCode, machine: founding.Row, why: str) -> None:
        """That the machine hears it, and is not taken meanwhile, which it would wait for."""
        asking = asyncio.create_task(ask_to_join(code, machine))
        while not asking.done():
            assert f"{machine['name']} has come" not in self.told, why
            await asyncio.sleep(0.01)
        with pytest.raises(JoinRefused, match=why):
            asking.result()

    async def heard(self, line: str) -> None:
        async with within(HUNG_S):
            while line not in self.told:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def both() -> None:
            gathering = asyncio.create_task(
                self.gathering.gather("127.0.0.1", self.port, self.form)
            )
            try:
                async with within(HUNG_S):
                    await asyncio.sleep(0.1)
                    await story()
            finally:
                gathering.cancel()
                await asyncio.gather(gathering, return_exceptions=True)

        asyncio.run(both())


@pytest.fixture
def site(tmp_path: Path, free_ports: FreePorts) -> Site:
    return Site(tmp_path, free_ports(1)[0])


def test_a_code_is_used_once_and_free_again_when_its_machine_goes_away(site: Site) -> None:
    async def story() -> None:
        one, other = site.machine("one", 40_000), site.machine("other", 40_100)
        joining = asyncio.create_task(ask_to_join(site.code, one))
        await site.heard("one has come")
        await site.refuses(site.code, other, "this code was used, by one")
        joining.cancel()
        await site.heard("one has gone away: its code may be used again")
        answers = await asyncio.gather(
            ask_to_join(site.code, other),
            ask_to_join(replace(site.code, secret=SECRETS[1]), one),
        )
        assert answers == [{"index": 1}, {"index": 2}]

    site.run(story)


def test_codes_that_were_changed_are_refused(site: Site) -> None:
    text = encode_join_code(site.code)
    assert parse_join_code(text.lower().replace("-", "")) == site.code
    other = "A" if text[20] != "A" else "B"
    swapped = [text[:20] + letter + text[21:] for letter in (other, "0", "é", "ß", "€", "\0", "–")]
    for changed in (text[:-1], *swapped, text.replace("-", "–"), text + "…", "TC1-", "TC1é"):
        with pytest.raises(ConfigurationError, match="a character of it is wrong"):
            parse_join_code(changed)

    async def story() -> None:
        one = site.machine("one", 40_000)
        begun = asyncio.get_running_loop().time()
        changed = replace(site.code, secret=bytes(16))
        await site.refuses(changed, one, "not one of this site's: it was changed")
        assert asyncio.get_running_loop().time() > begun + 0.5, "secrets may be tried at any rate"
        other = replace(site.code, cluster=bytes(16))
        await site.refuses(other, one, "this code is of another site")
        foreign = replace(site.code, fingerprint=bytes(32))
        await site.refuses(foreign, one, "another machine answers")

    site.run(story)


def test_codes_end_with_their_time(tmp_path: Path, free_ports: FreePorts) -> None:
    site = Site(tmp_path, free_ports(1)[0], seconds=0.5)

    async def story() -> None:
        one = site.machine("one", 40_000)
        with pytest.raises(JoinRefused, match="this code has expired"):
            await ask_to_join(site.code, one)

    site.run(story)


async def beside(
    site: Site, story: Callable[["asyncio.Task[None]"], Awaitable[None]], told: list[str]
) -> None:
    """A founder as its verb runs it, with whose end the loop ends; `told` hears of errors that
    nobody asked for."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(str(context)))
    gathering = asyncio.create_task(site.gathering.gather("127.0.0.1", site.port, site.form))
    async with within(HUNG_S):
        listens = False
        while not listens:
            with contextlib.suppress(OSError):
                await end((await asyncio.open_connection("127.0.0.1", site.port))[1])
                listens = True
        await story(gathering)


def test_who_waits_when_the_codes_end_is_told_so_though_the_founder_ends_then(site: Site) -> None:
    told: list[str] = []
    one = site.machine("one", 40_000)
    joining: Future[founding.Row]
    with ThreadPoolExecutor() as elsewhere:

        async def story(gathering: "asyncio.Task[None]") -> None:
            nonlocal joining
            joining = elsewhere.submit(lambda: asyncio.run(ask_to_join(site.code, one)))
            await site.heard("one has come")
            site.gathering._complete.set_exception(TimeoutError())  # their time is over
            with pytest.raises(JoinRefused, match="the codes have expired"):
                await gathering

        asyncio.run(beside(site, story, told))
        with pytest.raises(JoinRefused, match="this code has expired: ask for a new one"):
            joining.result(HUNG_S)
    assert told == []


def test_a_founder_that_is_interrupted_prints_nothing_of_those_who_dialled(site: Site) -> None:
    told: list[str] = []
    one = site.machine("one", 40_000)

    def silent() -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", site.port), HUNG_S) as sock,
            context.wrap_socket(sock) as stream,
        ):
            return stream.recv(1)

    joining: Future[founding.Row]
    dialled: Future[bytes]
    with ThreadPoolExecutor() as elsewhere:

        async def story(gathering: "asyncio.Task[None]") -> None:
            nonlocal joining, dialled
            joining = elsewhere.submit(lambda: asyncio.run(ask_to_join(site.code, one)))
            dialled = elsewhere.submit(silent)
            await site.heard("one has come")
            while site.gathering._strangers < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            gathering.cancel()
            await asyncio.gather(gathering, return_exceptions=True)

        asyncio.run(beside(site, story, told))
        with pytest.raises(JoinRefused, match="has gone away before it let this machine in"):
            joining.result(HUNG_S)
        assert dialled.result(HUNG_S) == b""
    assert told == []


def test_a_machine_with_the_name_or_ports_of_another_is_refused(site: Site) -> None:
    async def story() -> None:
        with pytest.raises(JoinRefused, match="name founder is taken"):
            await ask_to_join(site.code, {**site.machine("one", 40_000), "name": "founder"})
        with pytest.raises(JoinRefused, match="first port 100 higher"):
            await ask_to_join(site.code, site.machine("two", site.port - 98))
        with pytest.raises(JoinRefused, match="does not describe itself"):
            await ask_to_join(site.code, {"name": "three"})

    site.run(story)


def test_who_cannot_be_let_in_hears_why_and_so_does_who_invited(site: Site) -> None:
    told: list[str] = []

    async def form(rows: list[founding.Row]) -> list[founding.Row]:
        raise StorageError("shard 0 has no quorum")

    async def story(gathering: "asyncio.Task[None]") -> None:
        codes = [replace(site.code, secret=secret) for secret in SECRETS]
        machines = [site.machine("one", 40_000), site.machine("two", 40_100)]
        asking = [ask_to_join(*pair) for pair in zip(codes, machines, strict=True)]
        for refusal in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(refusal, JoinRefused) and "shard 0 has no quorum" in str(refusal)
        with pytest.raises(StorageError, match="no quorum"):
            await gathering

    site.form = form  # type: ignore[method-assign]
    asyncio.run(beside(site, story, told))
    assert told == []


# --- a site that runs -----------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The folder of a node whose site has another one."""
    rows = [founding.describe(tmp_path / name, name, name, 7400) for name in ("a", "b")]
    made = founding.form_site(CLUSTER, rows, shards=1, segments_max=8)
    told = founding.answer(made, "{}", 0)
    founding.take(tmp_path / "a", told, rows[0]["public_key"], CLUSTER)
    return tmp_path / "a"


def test_a_code_is_for_one_machine_that_is_none_of_the_site(node: Path, tmp_path: Path) -> None:
    machine = founding.describe(tmp_path / "c", "c", "c", 7400)
    inviting.check_machine(node, machine, "c")
    with pytest.raises(ConfigurationError, match="this code is for d, not for c"):
        inviting.check_machine(node, machine, "d")
    with pytest.raises(ConfigurationError, match="name b is taken"):
        inviting.check_machine(node, machine | {"name": "b"}, "b")
    with pytest.raises(ConfigurationError, match="first port 100 higher"):
        inviting.check_machine(node, machine | {"host": "b", "peer_port": 7450}, "c")
    with pytest.raises(ConfigurationError, match="does not describe itself"):
        inviting.check_machine(node, {"name": "c"}, "c")
    known = founding.describe(tmp_path / "b", "b", "b", 7400)
    inviting.check_machine(node, known, "b")  # it went away in the middle, and comes again


def test_a_machine_says_where_its_member_of_a_farm_would_listen(node: Path, tmp_path: Path) -> None:
    machine = founding.describe(tmp_path / "c", "c", "c", 7400)
    assert machine["farm_port"] == 7491
    for wrong in (-1, 65536, "x", None):
        with pytest.raises(ConfigurationError, match="does not describe itself"):
            inviting.check_machine(node, machine | {"farm_port": wrong}, "c")
    opened = read_node(node)
    assert inviting._next(opened, machine).farm_port == 0, "this site has no farm"
    nodes = [replace(other, farm_port=7491) for other in opened.site.nodes]
    member = replace(opened, view=SiteView(replace(opened.site, nodes=nodes)))
    assert inviting._next(member, machine).farm_port == 7491
    del machine["farm_port"]  # as of an earlier version
    inviting.check_machine(node, machine, "c")
    assert inviting._next(member, machine).farm_port == 0


def told_by(node: Path, row: founding.Row, lost: str) -> founding.Row:
    """What a machine is told that is let in."""
    (node / SETTINGS_FILE).write_text(
        encode_settings(0, room_rate=7, ship_target="off", console_host="10.0.0.1", pinning="off")
    )
    opened = read_node(node)
    rows = [*map(founding.row_of, opened.site.nodes), row]
    told = founding.answer(
        founding.form_site(CLUSTER, rows, shards=1, segments_max=8), "{}", len(rows) - 1
    )
    return told | {"begins": {"0": "{}"}, "lost": lost, "federation": "its key"} | {
        "settings": inviting.site_settings(opened)
    }  # fmt: skip


def test_a_machine_takes_what_is_the_sites_and_is_told_no_other_place(
    node: Path, tmp_path: Path
) -> None:
    row = founding.describe(tmp_path / "c", "c", "c", 7400)
    told = told_by(node, row, lost="b")
    for wrong in (told | {"index": 0}, told | {"site": (node / "site.toml").read_text()}):
        with pytest.raises(ConfigurationError, match="another machine's place was told"):
            founding.take(tmp_path / "c", wrong, row["public_key"], CLUSTER)
    with pytest.raises(ConfigurationError, match="another site was told"):
        founding.take(tmp_path / "c", told, row["public_key"], bytes(16))
    assert not (tmp_path / "c" / "site.toml").exists()
    assert not (tmp_path / "c" / JOINING_FILE).exists(), "refused, and something was written"
    founding.take(tmp_path / "c", told, row["public_key"], CLUSTER)
    joined = read_node(tmp_path / "c")
    assert (joined.index, joined.settings.room_rate, joined.settings.ship_target) == (2, 7, "off")
    assert (joined.settings.console_host, joined.settings.pinning) == ("127.0.0.1", "auto")
    assert (joined.path / "shard-0.group").read_text() == "{}"
    assert (joined.path / JOINING_FILE).read_text() == "b\n"
    federation = joined.path / "federation.json"
    assert federation.read_text() == "its key" and federation.stat().st_mode & 0o777 == 0o600
    assert founding.is_joining(joined.path)
    with pytest.raises(ConfigurationError, match="belongs to a site"):
        founding.refuse_known(tmp_path / "c")
