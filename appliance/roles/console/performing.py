"""How each act of the table is done, by the functions of its verb. Nothing is waited for here but
that whoever is asked has taken it; what came of it a poll shows."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from appliance.cores.console.about import About
from appliance.cores.console.acts import BY_NAME
from appliance.cores.console.stakes import NONE
from appliance.drivers.host.node_folder import NodeFolder
from appliance.roles.operator.keeping import Keeper
from appliance.roles.operator.leading import step_down
from appliance.roles.operator.membership import exchange, take_out

# With a node whose keys open connections, and where the processes of this machine's nodes answer.
Perform = Callable[[About, NodeFolder, Callable[[int], Path]], Awaitable[None]]
Sockets = Callable[[int], Path]


def _kept(call: Callable[[Keeper, About], None]) -> Perform:
    """What the supervisor of the node is asked, in a thread: it may be busy."""

    async def run(about: About, node: NodeFolder, sockets: Sockets) -> None:
        keeper = Keeper(sockets(about.node), node.site.cluster)
        await asyncio.to_thread(call, keeper, about)

    return run


async def _step_down(about: About, node: NodeFolder, sockets: Sockets) -> None:
    assert about.shard != NONE
    folder, cluster = sockets(about.node), node.site.cluster
    await asyncio.to_thread(step_down, folder, cluster=cluster, shard=about.shard)


def _say_nothing(line: str) -> None:
    """The list of acts says it."""


async def _promote(about: About, node: NodeFolder, sockets: Sockets) -> None:
    await exchange(node, about.node, about.other, verb="", say=_say_nothing)


async def _retire(about: About, node: NodeFolder, sockets: Sockets) -> None:
    await exchange(node, about.other, about.node, verb="", say=_say_nothing)


async def _remove(about: About, node: NodeFolder, sockets: Sockets) -> None:
    await take_out(node, about.node, verb="", say=_say_nothing)


PERFORM: dict[str, Perform] = {
    "drain": _kept(lambda keeper, about: keeper.drain()),
    "undrain": _kept(lambda keeper, about: keeper.undrain()),
    "stop": _kept(lambda keeper, about: keeper.stop(about.process)),
    "start": _kept(lambda keeper, about: keeper.start(about.process)),
    "step-down": _step_down,
    "promote": _promote,
    "retire": _retire,
    "remove": _remove,
}
assert PERFORM.keys() == BY_NAME.keys()


async def perform(name: str, about: About, node: NodeFolder, sockets: Sockets) -> None:
    """ApplianceError says why it was not done, or not to its end."""
    await PERFORM[name](about, node, sockets)
