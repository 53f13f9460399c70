"""Members are reached over TLS with pinned keys and through a real proxy; carriers have bounds."""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import ConfigurationError
from appliance.cores.raft.dial import Challenges, Credentials
from appliance.drivers.network.farm_stream import DialFailed, Route, open_stream
from appliance.formats.raft_legacy.configuration import Server
from appliance.formats.raft_legacy.frame import CLIENT_REQUEST, Request
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.link import Keys, LoginFailed, logged_in
from appliance.roles.farm.serve import KNOWN_S, renewal
from appliance.roles.farm.settings import FarmSettings, read_password, read_users, write_users
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.roles.farm.cluster import FARM, PASSWORD, Cluster
from tests.roles.farm.inside import USERS, ask, inside, until, user


@pytest.fixture
def one(tmp_path: Path, free_ports: FreePorts) -> Iterator[Cluster]:
    """A farm of one member, over TLS."""
    cluster = Cluster(tmp_path / "farm", free_ports(1), static=1)
    cluster.start(1)
    yield cluster
    cluster.end()


@contextlib.contextmanager
def tinyproxy(folder: Path, port: int) -> Iterator[None]:
    """The real program; it ends with the block."""
    settings = folder / "tinyproxy.conf"
    settings.write_text(f"Port {port}\nListen 127.0.0.1\nTimeout 600\nLogLevel Error\n")
    process = subprocess.Popen(["tinyproxy", "-d", "-c", str(settings)], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(HUNG_S)


def test_a_member_is_reached_through_connect_of_a_real_proxy(
    one: Cluster, free_port: int, tmp_path: Path
) -> None:
    with tinyproxy(tmp_path, free_port):

        def route_of(server_id: int, endpoint: str) -> Route:
            return replace(one.route_of(server_id, endpoint), proxy=("127.0.0.1", free_port))

        async def story() -> None:
            keys = Keys(FARM, Credentials("poster", PASSWORD), Challenges())
            client = FarmClient([Server(1, one.endpoint(1))], keys, route_of)
            assert await client.post([b"through a proxy"], HUNG_S) == 1
            await client.close()
            assert keys.challenges.counts["request_1"] == 1

        asyncio.run(story())
    one.stop()
    assert one.dump(1)[-1]["value"] == "through a proxy"


def test_a_proxy_that_cannot_reach_the_member_is_told_by_name(
    free_ports: FreePorts, tmp_path: Path
) -> None:
    port, nobody = free_ports(2)
    with tinyproxy(tmp_path, port):

        async def story() -> str:
            route = Route("127.0.0.1", nobody, proxy=("127.0.0.1", port))
            while True:
                try:
                    await open_stream(route)
                except DialFailed as error:
                    if error.reason != "dial_refused":  # the proxy itself listens by now
                        return error.reason

        assert asyncio.run(story()) == "proxy_refused"


def test_another_key_than_the_pinned_one_is_not_spoken_to(one: Cluster) -> None:
    one.leader()  # it serves

    async def story() -> None:
        route = one.route_of(1, one.endpoint(1))
        reader, writer = await open_stream(route)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()
        with pytest.raises(DialFailed, match="key_not_pinned"):
            await open_stream(replace(route, pin=bytes(32)))

    asyncio.run(story())


def test_a_second_connection_begins_with_the_proof_and_a_wrong_password_waits(
    tmp_path: Path, free_port: int
) -> None:
    async def story() -> None:
        async with inside(tmp_path, free_port) as farm:
            keys = Keys("farm", Credentials("poster", "correct horse"), Challenges())
            endpoint = f"tcp://127.0.0.1:{free_port}"
            for _ in range(3):
                async with logged_in(farm.route(), endpoint, keys) as (stream, entered):
                    assert (await ask(stream, Request(CLIENT_REQUEST))).accepted
            assert keys.challenges.counts == {"request_1": 1, "request_2": 3}
            assert farm.count("challenged") == 1
            wrong = Keys("farm", Credentials("poster", "wrong"), Challenges())
            with pytest.raises(LoginFailed, match="credentials_refused"):
                async with logged_in(farm.route(), endpoint, wrong):
                    raise AssertionError("let in with a wrong password")
            with pytest.raises(LoginFailed, match="login_waits"):
                async with logged_in(farm.route(), endpoint, wrong):
                    raise AssertionError("let in without a try")
            await until(lambda: farm.count("password_wrong") == 2)

    asyncio.run(story())


BASE = FarmSettings(
    folder=Path("farm"),
    id=1,
    farm="farm",
    listen=("127.0.0.1", 7650),
    endpoint="tcp://127.0.0.1:7650",
    peers=(Server(2, "tcp://127.0.0.1:7651"),),
    join=False,
    carrier="plain",
    user="node1",
    password="p",
    users=USERS,
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": 0}, "id 0"),
        ({"farm": "a/b"}, "allowed: 1 to 64"),
        ({"listen": ("0.0.0.0", 1)}, "loopback"),
        ({"carrier": "raw", "listen": ("10.0.0.1", 1)}, "loopback"),
        ({"endpoint": "tcp://10.0.0.1:1"}, "loopback"),
        ({"peers": (Server(2, "tcp://a_b:1"),)}, "underscores"),
        ({"carrier": "tls"}, "pinned key"),
        ({"carrier": "tls", "pins": {2: bytes(32)}}, "certificate"),
        ({"password": ""}, "password"),
        ({"join": True}, "lists no peers"),
        ({"carrier": "carrier pigeon"}, "allowed: tls, plain, raw"),
        ({"proxy_absolute": True}, "allowed: with a proxy and carrier plain"),
        ({"carrier": "raw", "require_server_proof": True}, "no login"),
        (
            {
                "carrier": "tls",
                "pins": {2: bytes(32)},
                "certificate": Path("c"),
                "key": Path("k"),
                "proxy": ("127.0.0.1", 1),
                "proxy_absolute": True,
            },
            "allowed: with a proxy and carrier plain",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_is_allowed(
    changes: dict[str, Any], words: str
) -> None:
    BASE.check()
    with pytest.raises(ConfigurationError, match=words):
        replace(BASE, **changes).check()


def test_secrets_that_others_may_read_are_refused(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("p\n")
    password.chmod(0o640)
    with pytest.raises(ConfigurationError, match="allowed: 600"):
        read_password(password)
    password.chmod(0o600)
    assert read_password(password) == "p"
    users = tmp_path / "users"
    write_users(users, [])
    assert users.stat().st_mode & 0o777 == 0o600
    assert read_users(users) == ()
    users.write_text('[{"name":"a","class":"member","id":0,"secrets":{}}]')
    with pytest.raises(ConfigurationError, match="not a list of users"):
        read_users(users)


def test_a_door_learns_what_its_member_knows_when_somebody_comes(
    tmp_path: Path, free_port: int
) -> None:
    async def story() -> None:
        async with inside(tmp_path, free_port) as farm:
            (gate,) = farm.door.doorway.gates.values()
            assert gate.hint is None, "nobody has come yet"
            async with farm.visit("poster"):
                assert gate.hint == farm.member.hint()
            now_s = 0.0
            renew = renewal(farm.door.doorway, farm.members, lambda: now_s)
            renew()
            farm.member.learn(user("late", "client"), b"")
            renew()
            assert "late" not in gate.users, "however many come"
            now_s = KNOWN_S
            renew()
            assert "late" in gate.users
            async with farm.visit("late"):
                pass

    asyncio.run(story())
