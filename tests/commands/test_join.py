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
from pathlib import Path

import pytest

from appliance.base.errors import ConfigurationError
from appliance.base.limits import MIB
from appliance.drivers.host.node_folder import (
    FORMATTED_FILE,
    TLS_CERTIFICATE_FILE,
    TLS_KEY_FILE,
    read_node,
)
from appliance.drivers.host.process import child_environment
from appliance.drivers.network.joining import Founding, JoinRefused, ask_to_join
from appliance.drivers.network.stream_end import end
from appliance.drivers.nvme.device import device_of
from appliance.drivers.nvme.volume import read_facts
from appliance.formats.join_code import JoinCode, encode_join_code, parse_join_code
from appliance.node import founding
from tests.loop_device import loop_device
from tests.patience import HUNG_S, within
from tests.ports import FreePorts
from tests.system.local_site import COMMAND, ports_in_a_row

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


class Site:
    """A founder in this process."""

    def __init__(self, folder: Path, port: int, seconds: float = HUNG_S) -> None:
        self.folder, self.port, self.told = folder, port, list[str]()
        self.own = founding.describe(folder / "founder", "founder", "127.0.0.1", port - 99)
        self.founding = Founding(
            folder / "founder" / TLS_CERTIFICATE_FILE,
            folder / "founder" / TLS_KEY_FILE,
            SECRETS,
            seconds=seconds,
            check=lambda row, others: founding.check_description(row, [self.own, *others]),
            told=self.told.append,
        )
        self.code = JoinCode(
            "127.0.0.1", port, CLUSTER, founding.fingerprint(folder / "founder"), SECRETS[0]
        )

    def machine(self, name: str, port: int) -> founding.Row:
        return founding.describe(self.folder / name, name, "127.0.0.1", port)

    async def heard(self, line: str) -> None:
        async with within(HUNG_S):
            while line not in self.told:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def both() -> None:
            gathering = asyncio.create_task(
                self.founding.gather(
                    "127.0.0.1", self.port, lambda rows: [{"index": 1}, {"index": 2}]
                )
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
        with pytest.raises(JoinRefused, match="this code was used, by one"):
            await ask_to_join(site.code, other)
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
        with pytest.raises(JoinRefused, match="not one of this site's: it was changed"):
            await ask_to_join(replace(site.code, secret=bytes(16)), one)
        with pytest.raises(JoinRefused, match="another machine answers"):
            await ask_to_join(replace(site.code, fingerprint=bytes(32)), one)
        assert "one has come" not in site.told

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
    gathering = asyncio.create_task(site.founding.gather("127.0.0.1", site.port, list))
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
            site.founding._complete.set_exception(TimeoutError())  # their time is over
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
            while site.founding._strangers < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            gathering.cancel()
            await asyncio.gather(gathering, return_exceptions=True)

        asyncio.run(beside(site, story, told))
        with pytest.raises(JoinRefused, match="has gone away before the site was formed"):
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
