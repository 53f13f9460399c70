"""What an operator chooses of a member reaches those it is about: peers, the log, an export."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.base.errors import ConfigurationError, FarmMemberOut
from appliance.cores.directory.document import parse_document
from appliance.cores.raft.digest import ALGORITHMS
from appliance.cores.raft.settings import Settings
from appliance.drivers.host.identity import make_certificate
from appliance.drivers.host.node_folder import NodeFolder
from appliance.drivers.network.stream_end import end
from appliance.formats.raft_legacy.configuration import Server
from appliance.formats.status.replica import ReplicaStatus
from appliance.formats.status.status import parse
from appliance.roles.farm.exchange import exported, settings_of, unpack, write_export
from appliance.roles.farm.figures import (
    NodeStatus,
    Published,
    Service,
    group_of,
    status_document,
)
from appliance.roles.farm.member import FarmMember
from appliance.roles.farm.node_files import farm_settings, make_node_files, read_administrator
from appliance.roles.farm.settings import PLAIN, FarmSettings, make_user
from tests import forked
from tests.cores.console.worlds import replica, site
from tests.ports import FreePorts
from tests.roles.farm.inside import PASSWORD, REALM, USERS, Inside, inside, until

ALONE = FarmSettings(
    folder=Path("farm"),
    id=1,
    farm="farm",
    listen=("127.0.0.1", 7650),
    endpoint="tcp://127.0.0.1:7650",
    peers=(),
    join=False,
    carrier=PLAIN,
)


@contextlib.asynccontextmanager
async def gateway(port: int, farm: Inside, *, proofs: bool) -> AsyncIterator[list[bytes]]:
    """Takes whole URLs, and passes what is said on to the farm; request lines. `proofs`: whether
    those of the server are among it."""
    lines: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if not proofs:
                    data = data.replace(b"Authentication-Info:", b"X-Nothing:")
                writer.write(data)
        writer.close()

    async def on_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        inner = await asyncio.open_connection("127.0.0.1", farm.port)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines.append(head.split(b"\r\n", 1)[0])
            inner[1].write(head)
            await asyncio.gather(pass_on(reader, inner[1]), pass_on(inner[0], writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            await end(inner[1])
            await end(writer)

    server = await asyncio.start_server(on_stream, "127.0.0.1", port)
    try:
        yield lines
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("proofs", [True, False])
@pytest.mark.parametrize("insists", [True, False])
def test_a_member_dials_by_whole_urls_and_insists_on_proofs_as_it_is_told(
    tmp_path: Path, free_ports: FreePorts, proofs: bool, insists: bool
) -> None:
    own, port, between = free_ports(3)
    settings = FarmSettings(
        folder=tmp_path / "second",
        id=2,
        farm="farm",
        listen=("127.0.0.1", own),
        endpoint=f"tcp://127.0.0.1:{own}",
        peers=(Server(1, f"tcp://127.0.0.1:{port}"),),
        join=False,
        carrier=PLAIN,
        user="node2",
        password=PASSWORD,
        users=USERS,
        algorithms=tuple(ALGORITHMS),
        proxy=("127.0.0.1", between),
        proxy_absolute=True,
        require_server_proof=insists,
        raft=Settings(election_ticks_min=3, election_ticks_max=6, heartbeat_ticks=1),
    )
    settings.check()

    async def run() -> None:
        async with inside(tmp_path / "first", port) as farm:
            async with gateway(between, farm, proofs=proofs) as lines:
                member = FarmMember(settings, logging.getLogger("farm"))
                task = asyncio.create_task(member.run())
                if proofs or not insists:  # then it hears that the farm has it not as a member
                    with pytest.raises(FarmMemberOut):
                        await task
                    assert not member.counts["server_proof_missing"]
                else:
                    await until(lambda: member.counts["server_proof_missing"] > 0)
                    assert not member.node.member.peers[1].connected
                url = f"http://127.0.0.1:{port}/GarlicFarm/farm/1/websocket"
                assert set(lines) == {f"GET {url} HTTP/1.1".encode()}
                member.stop()
                if insists and not proofs:
                    await task

    (tmp_path / "first").mkdir()
    asyncio.run(run())


@pytest.mark.parametrize("imported", [True, False])
def test_what_cannot_be_chosen_is_said_at_the_start(tmp_path: Path, imported: bool) -> None:
    rows = [make_user(name="node1", role="member", server_id=1, realm=REALM, password=PASSWORD)]
    unpack(tmp_path, exported(dataclasses.replace(ALONE, carrier="raw"), b"", rows), "")
    serve = ["farm", "serve", "--folder", str(tmp_path), "--id", "1"]
    raw = ["--imported"] if imported else ["--listen", "127.0.0.1:7650", "--carrier", "raw"]
    done = forked.run([*serve, *raw, "--require-server-proof"])
    assert (done.returncode, "has no login" in done.stderr) == (2, True), done.stderr
    if not imported:
        done = forked.run([*serve, *raw, "--proxy", "127.0.0.1:1", "--proxy-absolute"])
        assert (done.returncode, "carrier plain" in done.stderr) == (2, True), done.stderr


def node_of(folder: Path, **chosen: Any) -> NodeFolder:
    """Node 0 of a site of three, with its files of the farm."""
    pem = make_certificate("farm", "127.0.0.1")[1]
    nodes = [
        dataclasses.replace(node, farm_port=7500 + node.index, certificate_pem=pem)
        for node in site().nodes
    ]
    made = dataclasses.replace(site(), nodes=nodes)
    for node in made.nodes:
        (folder / node.name / "keys").mkdir(parents=True)
    make_node_files(folder, made)
    settings = SimpleNamespace(index=0, client_tls=True, **chosen)
    own = made.nodes[0]
    found = SimpleNamespace(path=folder / own.name, node=own, site=made, settings=settings)
    return cast(NodeFolder, found)


@pytest.mark.parametrize("insists", [True, False])
def test_a_node_and_its_administrator_insist_as_node_toml_says(
    tmp_path: Path, insists: bool
) -> None:
    node = node_of(tmp_path, farm_require_server_proof=insists)
    own, administrator = farm_settings(node).credentials(), read_administrator(node)
    assert own is not None and administrator is not None
    assert own.require_server_proof is administrator.require_server_proof is insists


@pytest.mark.parametrize("publish", ["off", "on", "auto"])
def test_a_status_says_whether_the_operator_wants_its_node_to_publish(
    tmp_path: Path, publish: str
) -> None:
    status = NodeStatus(node_of(tmp_path, farm_publish=publish))
    value = status_document(status, [], date_ms=1, published=Published(), publishing=False)
    document = parse_document(value)
    assert document is not None and document["meta"]["publishConfig"] == publish


def test_a_status_tells_the_groups_as_replicas_report_them_by_the_numbers_of_nodes(
    tmp_path: Path,
) -> None:
    node = node_of(tmp_path, farm_publish="auto", connections_max=1)
    shard = node.site.shards[0]
    ids = [member.hex() for member in shard.replica_ids]

    def told(members: list[str], **changes: Any) -> Any:
        answer = replica(members=members, replica_count=2, members_op=17, epoch=1, **changes)
        group = group_of(shard, parse(ReplicaStatus, answer))
        services = [Service(0, 5, "", group=group), Service(1, 0, "the replica does not answer")]
        value = status_document(
            NodeStatus(node), services, date_ms=1, published=Published(), publishing=False
        )
        document = parse_document(value)
        assert document is not None
        assert document["address"] == "wss://127.0.0.1:7440/v1"
        return document["groups"]

    both = {"shard": 0, "op": 17, "voters": [3, 1]}
    assert told([ids[2], ids[0], ids[1]]) == [both | {"standbys": [2]}]
    assert told([ids[2], ids[0]]) == [both | {"standbys": []}]
    assert told([ids[2], ids[0], "ff" * 16]) == [], "of a member that is not described yet"
    assert told([]) == [], "an earlier version tells of no group"


def test_an_exported_farm_insists_on_proofs_where_it_is_imported(tmp_path: Path) -> None:
    rows = [make_user(name="node1", role="member", server_id=1, realm=REALM, password=PASSWORD)]

    def imported(content: dict[str, Any]) -> bool:
        unpack(tmp_path, content, PASSWORD)
        return settings_of(tmp_path, 1, listen=None, join=False).require_server_proof

    insists = dataclasses.replace(ALONE, require_server_proof=True)
    assert imported(exported(insists, b"", rows))
    content = exported(ALONE, b"", rows)
    assert not imported(content)
    write_export(tmp_path / "farm.json", content | {"require_server_proof": "yes"})
    with pytest.raises(ConfigurationError, match="neither true nor false"):
        settings_of(tmp_path, 1, listen=None, join=False)
    del content["require_server_proof"]
    assert not imported(content), "a file of an earlier version does not"
