"""kill -9 of a node while people change objects through its edge: no id is used twice, and nothing
acknowledged is lost."""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import pytest

from appliance.formats.client.objects import Reaction
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import LocalSite, ports_in_a_row
from tests.system.object_client import ObjectClient, ask_objects, until

KILLS, KILLS_IN_SOAK = 3, 20
KILLED = 1  # node that dials one and is dialled by one
EDITORS = 4  # requests on their way at a time
ALIVE_S_MAX = 0.3  # from the first acknowledgement of a life to its end


class Editor:
    """Reacts to one new message after the other; each is an object of its own."""

    def __init__(self, device: ObjectClient, room: UUID, seed: int) -> None:
        self.device, self.room, self.chance = device, room, random.Random(seed)
        self.acknowledged: list[UUID] = []

    async def edit(self) -> None:
        while True:
            message = UUID(int=self.chance.getrandbits(128), version=4)
            await self.device.change(Reaction(room_id=self.room, msg_id=message, emoji="+1"))
            self.acknowledged.append(message)


async def wait_alike(site: LocalSite) -> dict[str, str]:
    """Key to value of what all nodes hold, the same on each."""
    places = [site.place(node) for node in site.nodes]

    async def alike() -> bool:
        try:
            return len({(await ask_objects(p, "vv"))["vv"] for p in places}) == 1
        except (OSError, ValueError):
            return False  # it is about to start

    await until(alike, "all nodes have seen the same")
    dumps = [dict((await ask_objects(place, "dump"))["rows"]) for place in places]
    assert dumps[0] == dumps[1] == dumps[2]
    return dumps[0]


async def story(site: LocalSite, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    access = site.access("editor")
    async with AsyncExitStack() as stack:
        device = ObjectClient([access.endpoints[KILLED]], access.token, patience_s=HUNG_S)
        await stack.enter_async_context(device)
        room = (await device.create_room("killed")).room_id
        editors = [Editor(device, room, seed + number) for number in range(EDITORS)]
        tasks = [asyncio.create_task(editor.edit()) for editor in editors]
        stack.callback(lambda: [task.cancel() for task in tasks])

        def count() -> int:
            assert not any(task.done() for task in tasks)
            return sum(len(editor.acknowledged) for editor in editors)

        for _ in range(kills):
            before = count()
            await until(lambda before=before: count() > before, "edits are acknowledged again")
            await asyncio.sleep(chance.uniform(0.0, ALIVE_S_MAX))
            await asyncio.to_thread(site.kill_node, KILLED)
            site.start(KILLED)
        before = count()
        await until(lambda: count() > before, "edits are acknowledged again")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    held = await wait_alike(site)
    for node in site.nodes:
        status = await ask_objects(site.place(node), "status")
        refused = [name for name in status["counters"] if name.startswith("refused_")]
        assert not refused, f"node {node}: {refused}"
    keys = "".join(held.values())
    acknowledged = [message for editor in editors for message in editor.acknowledged]
    assert len(acknowledged) > kills
    lost = [m for m in acknowledged if str(m).encode().hex() not in keys]
    assert not lost, f"{len(lost)} of {len(acknowledged)}"
    print(f"{kills} kills, {len(acknowledged)} acknowledged edits, all there")


@pytest.mark.parametrize("kills", [KILLS, pytest.param(KILLS_IN_SOAK, marks=pytest.mark.soak)])
def test_a_node_killed_while_it_edits_loses_nothing_and_uses_no_id_twice(
    tmp_path: Path, free_ports: FreePorts, seed: int, kills: int
) -> None:
    ports = ports_in_a_row(free_ports)
    # three processes a node instead of seven: starting them is most of what this takes
    options = {"objects": True, "supervised": False, "geometry": "small", "log_level": "warning"}
    with LocalSite(tmp_path / "site", ports, **options) as site:
        asyncio.run(story(site, seed, kills))
