"""What a verb did becomes an audit record: a console of this machine shows and writes it, and waits
for a quorum where there is none. Where no console answers the verb writes it itself."""

import asyncio
import logging
import os
import pwd
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from appliance.base.errors import ApplianceError
from appliance.drivers.host import clock
from appliance.drivers.host.node_folder import KnownNode, read_node
from appliance.drivers.network.ask import ask_for
from appliance.formats.operator_act import DoneAct, bounded, encode_act
from appliance.formats.status.console import ConsoleStatus
from appliance.formats.status.part import plain
from appliance.roles.operator.trail import Trail

QUIET = "TIGERCHAT_NOTED_BY"  # set for a verb whose act the console that runs it notes itself
TERMINAL = "terminal"  # where acts came from
ANSWER_S = 0.5  # for a console that is there
PATIENCE_S = 3.0  # for the record, where no console is


def user() -> str:
    """Who sits at this terminal, as the machine knows."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    by = os.environ.get("SUDO_USER", "")
    return bounded(f"terminal user {name}" + (f" for {by}" if by else ""))


def note(
    nodes: Sequence[KnownNode], act: str, what: str, about: dict[str, str], *, verb: str = ""
) -> str:
    """Have it written that `act`, in words `what`, was done and seen. Why that is not certain, in
    words; empty: it is, or will be when there is a quorum. `nodes`: those of this machine.
    `verb`: by which the same is done, where that is not this command."""
    if os.environ.get(QUIET) == str(os.getppid()):
        return ""
    done = DoneAct(
        act=act,
        what=bounded(what),
        who=user(),
        came_from=TERMINAL,
        verb=bounded(verb or shlex.join(["tigerchat", *sys.argv[1:]])),
        about=about,
    )
    for node in nodes:
        wish, cluster = {"note": plain(done)}, node.site.cluster
        said = ask_for(ConsoleStatus, node.sockets, wish, cluster=cluster, timeout_s=ANSWER_S)
        if said is not None and said.get("noted"):
            return ""
    for node in nodes:
        try:
            return asyncio.run(_written(node.path, done))
        except ApplianceError:
            continue  # it lacks its keys
    return "no node of this machine could write it"


async def _written(folder: Path, done: DoneAct) -> str:
    node = read_node(folder)
    body = encode_act(done, node=node.node.name, at_us=clock.realtime_us())
    quiet = logging.getLogger("tigerchat.trail")
    quiet.disabled = True  # the reason is this: nothing could be committed
    if await Trail(node, quiet).write(body, PATIENCE_S):
        return ""
    return "no console answers here, and shard 0 commits nothing now"
