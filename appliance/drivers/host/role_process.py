"""This process as one role of a node: its folder, its log, its loop, and how it ends."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import uvloop

from appliance.base.errors import ApplianceError
from appliance.drivers.host import service, tuning
from appliance.drivers.host.beat import EXIT_BUG, say_why
from appliance.drivers.host.log import start_log
from appliance.drivers.host.node_folder import NodeFolder, open_node


class Role(Protocol):
    """What a node has to do for long."""

    async def serve(self) -> int:
        """Until it is told to stop; the exit code."""


def run_role(
    folder: Path,
    name: str,
    make: Callable[[NodeFolder, logging.Logger], Role],
    *,
    nice: int = 0,
    busy: bool = False,
) -> int:
    """Do a role's duty for the node in `folder`; the exit code. An ApplianceError is for the
    operator and passes through; anything else is a bug and ends in a traceback. A `busy` one may
    run at a real-time priority.
    """
    node = open_node(folder)
    log = start_log(name, node.settings.log_level)
    os.chdir(node.path)  # sockets are found by short, relative paths
    os.nice(nice)
    try:
        return uvloop.run(_serve(node, log, make, busy=busy))
    except ApplianceError as error:
        service.notify(f"STATUS={error}", f"{service.REASON}{error}")
        raise
    except Exception as error:
        say_why(name, error)
        return EXIT_BUG


async def _serve(
    node: NodeFolder,
    log: logging.Logger,
    make: Callable[[NodeFolder, logging.Logger], Role],
    *,
    busy: bool,
) -> int:
    role = make(node, log)
    settings = node.settings
    refused = tuning.tune(
        memory_lock=settings.memory_lock == "auto",
        priority=settings.realtime_priority if busy else 0,
    )
    service.notify(service.REFUSED + json.dumps(refused))
    return await role.serve()
