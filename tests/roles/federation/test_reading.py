"""What a kill has a carrying node read again of its site's log."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.base.signature import SEED_SIZE, SigningKey
from appliance.drivers.chat.client import Client
from appliance.drivers.host.federation_file import write_federation
from appliance.drivers.host.node_folder import open_node
from appliance.formats.causal import rows
from appliance.formats.federation_site import FederationSite
from appliance.formats.room_name import room_id_of
from appliance.formats.sharing import SharedSite, Sharing
from appliance.roles.federation import shared_rooms
from appliance.roles.federation.role import STORE_FOLDER, FederationRole
from appliance.roles.federation.shared_rooms import SharedRooms
from appliance.roles.federation.store import LmdbChannelStore
from appliance.roles.operator.sharing import set_sharing
from tests.ports import FreePorts
from tests.roles.conftest import MakeSite
from tests.roles.wired_site import WiredSite, until

SHARED, OTHERS = "lobby", 2  # rooms; the small geometry remembers few who write
KEPT = 15  # records behind which the position is kept


@pytest.fixture
def north(make_site: MakeSite, free_ports: FreePorts) -> WiredSite:
    """A site of one node that is one among others."""
    site = make_site(1)
    seed = bytes(range(SEED_SIZE))
    write_federation(site.node(0), FederationSite("north", seed.hex(), (free_ports(1)[0],)))
    return site


async def begin(site: WiredSite) -> None:
    """A room is shared, and clients are served."""
    await site.start_replica(0)
    edge = await site.start_edge(0)
    await until(lambda: not edge.health())
    keys = [SigningKey(seed).public for seed in (bytes(range(SEED_SIZE)), bytes(SEED_SIZE))]
    sharing = Sharing((SharedSite("north", keys[0]), SharedSite("south", keys[1])))
    await set_sharing(open_node(site.node(0)), SHARED, sharing)


async def talk(client: Client, room: str, count: int) -> None:
    """So much is said in a room, which is made; that it is new wakes whoever carries."""
    room_id = (await client.create_room(room)).room_id
    await asyncio.gather(*[await client.post(room_id, f"{number}") for number in range(count)])


async def read_all(site: WiredSite, carrying: FederationRole) -> int:
    """How far the log was read, once that is as far as it is told."""
    told = carrying.shards[0].session
    read_to: Callable[[], int] = lambda: carrying.status().shards[0].read_to  # noqa: E731
    await until(lambda: told.source and carrying.live_rooms() and read_to() == told.source.log_seq)
    return read_to()


def after_a_kill(site: WiredSite, copy: Path) -> list[int]:
    """From where it is read again: the policies, and the shared room."""
    shutil.copytree(site.node(0) / STORE_FOLDER / "0", copy)
    policies, room = SharedRooms(copy / "rooms"), LmdbChannelStore(copy / room_id_of(SHARED).hex())
    found = [policies.position, int.from_bytes(room.get(rows.CURSOR) or b"", "big")]
    policies.close()
    room.close()
    return found


def test_a_kill_takes_back_no_more_than_so_many_records_of_whatever_rooms(
    north: WiredSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_rooms, "FEDERATED_KEPT_RECORDS", KEPT)

    async def story(site: WiredSite) -> None:
        await begin(site)
        carrying = await site.start_federation(0)
        async with site.client(0) as client:
            await talk(client, SHARED, 1)
            shared = await read_all(site, carrying)
            for number in range(OTHERS):
                await talk(client, f"other {number}", KEPT)
                read_to = await read_all(site, carrying)
                kept = after_a_kill(site, tmp_path / f"{number}")
                assert all(read_to - KEPT < at <= read_to for at in kept), (kept, read_to)
            assert read_to > shared + (OTHERS - 1) * KEPT

    north.run(story)
