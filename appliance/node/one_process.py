"""All roles of a node in one process, for laptops and tests: same code, services of one loop."""

import asyncio
import os
import signal

import uvloop

from appliance.drivers.host.log import start_log
from appliance.drivers.host.node_folder import NodeFolder
from appliance.drivers.host.role_process import Role
from appliance.node.catalogue import ROLES


def run_in_one_process(node: NodeFolder) -> int:
    """The roles of a node as services of one loop, one edge among them; the exit code."""
    log = start_log(node.node.name, node.settings.log_level)
    os.chdir(node.path)
    # An edge more would need a process of its own: edges share a port, not a loop.
    roles = [
        row.make(node, number, log)
        for row in ROLES
        for number in row.instances(node)
        if (row.name != "edge" or number == 0) and row.wanted(node, number)
    ]
    return uvloop.run(_serve_together(roles))


async def _serve_together(roles: list[Role]) -> int:
    """Until one of them ends, then the others; the first exit code that is not 0."""
    tasks = [asyncio.create_task(role.serve()) for role in roles]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    os.kill(os.getpid(), signal.SIGTERM)
    return next((code for code in await asyncio.gather(*tasks) if code), 0)
