"""`tigerchat clock`: bring the time of a log back that a clock was ahead of once."""

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from appliance.base.errors import StorageError
from appliance.base.limits import CORRECTION_OFF_US_MAX, LOG_AHEAD_US_MAX
from appliance.cores.console.cells import duration
from appliance.cores.vsr.evictions import EVICT_CLOCK_FAR, EVICT_MEMBER_OLD, EVICT_OPERATION
from appliance.drivers.host import clock
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import SOCKETS_FOLDER, NodeFolder, read_node
from appliance.drivers.network.ask import status_of
from appliance.drivers.terminal.options import LOCAL_DEFAULT
from appliance.formats import record
from appliance.formats.envelope import OPERATION_APPEND_CLOCK
from appliance.formats.event import Correction, encode_correction
from appliance.formats.session import DUPLICATE, OK, RESULT_STRUCT
from appliance.formats.site import SITE_FILE, Shard, load_site
from appliance.formats.status.replica import GroupClock, ReplicaStatus
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0
_SECOND_MAX = 253_402_300_799  # the last one of the year 9999
_FOLDER = click.Path(path_type=Path)


@click.group("clock")
def command() -> None:
    """The time that messages bear, where a clock was ahead once."""


@command.command("correct")
@click.option(
    "--local",
    type=_FOLDER,
    metavar="DIR",
    help=f"The local site in DIR; {LOCAL_DEFAULT} if nothing else is said.",
)
@click.option("--node-folder", type=_FOLDER, metavar="F", help="The node in F.")
@click.option("--yes", is_flag=True, help="Do not ask whether this machine's clock is right.")
@click.pass_context
def correct(ctx: click.Context, local: Path | None, node_folder: Path | None, yes: bool) -> None:
    """Bring log time back to this machine's clock, in each shard that is ahead of it.

    It is written into the log: messages before it keep their times and their places, those behind
    it bear the time of the clocks again. Set the clocks of all nodes right first. All nodes have
    to run, with a program that knows this command, and agree about the time within five minutes.

    Exit code 0: no log is ahead any more; 1: it was refused or could not be committed, or nobody
    confirmed it.
    """
    nodes = _nodes(local, node_folder)
    for shard in nodes[0].site.shards:
        node, of_clock = _asked(nodes, shard)
        ahead_us = of_clock.log_ahead_us
        if ahead_us <= LOG_AHEAD_US_MAX:
            click.echo(f"clock: shard {shard.number}: log time is not ahead of the clock")
            continue
        own_us, now_us = of_clock.log_us - of_clock.corrected_us, clock.realtime_us()
        click.echo(
            f"clock: shard {shard.number}: log time is {_moment(own_us)}, the clock of this "
            f"machine says {_moment(now_us)}"
        )
        if not yes and not click.confirm("Is the clock right?"):
            ctx.exit(1)
        place = asyncio.run(correct_to(node, shard, now_us))
        click.echo(
            f"clock: shard {shard.number}: record {place} brings log time back by "
            f"{duration(ahead_us // 1000)}"
        )


def _moment(time_us: int) -> str:
    return datetime.fromtimestamp(min(time_us // 1_000_000, _SECOND_MAX), UTC).strftime(
        "%Y-%m-%d %H:%M:%S UTC"
    )


def _nodes(local: Path | None, node_folder: Path | None) -> list[NodeFolder]:
    if local is not None and node_folder is not None:
        raise click.UsageError("say --local DIR or --node-folder F, not both")
    if node_folder is not None:
        return [read_node(node_folder.absolute())]
    folder = (local or Path(LOCAL_DEFAULT)).absolute()
    site = load_site(folder / SITE_FILE)
    found = neighbours(folder / site.nodes[0].name, site)
    if not found:
        raise StorageError("no node of the site is on this machine")
    return [read_node(place.path) for place in found]


def _asked(nodes: list[NodeFolder], shard: Shard) -> tuple[NodeFolder, GroupClock]:
    """A node whose replica of the shard serves, and what it says of its clock."""
    for node in nodes:
        sockets = node.path / SOCKETS_FOLDER
        status = status_of(ReplicaStatus, sockets, cluster=node.site.cluster, number=shard.number)
        if status is not None and status.serves:
            return node, status.clock
    raise StorageError(f"shard {shard.number}: no replica of this machine serves: start it first")


def refusal(reason: int, told: int, wanted_us: int, member: Callable[[int], str]) -> str:
    """Why the primary prepares no correction to `wanted_us`, and what to do; empty: it may yet.
    `member` names one of the group."""
    if reason == EVICT_OPERATION:
        return "the primary's program does not know how to correct a clock: update its node first"
    if reason == EVICT_MEMBER_OLD:
        return (
            f"{member(told)} has not said in the last seconds that its program can correct a "
            "clock: update it, start it, or take it out of the group; then run this again"
        )
    if reason == EVICT_CLOCK_FAR:
        return (
            f"the clock of this machine says {_moment(wanted_us)}, the clocks of the group "
            f"{_moment(told)}: more than {CORRECTION_OFF_US_MAX // 60_000_000} minutes apart, set "
            "them right first"
        )
    return ""


async def correct_to(node: NodeFolder, shard: Shard, wanted_us: int) -> int:
    """The number of the record that brings the time back; StorageError when there is none."""
    raw = record.encode(
        room_id=record.SHARD_ROOM_ID,
        msg_id=os.urandom(16),
        author_id=0,
        body=encode_correction(Correction(wanted_us)),
        client_id=os.urandom(16),
        client_seq=1,
        kind=record.KIND_CLOCK,
    )
    async with OperatorSession(node, shard, "clock") as session:
        answer = await session.ask(
            OPERATION_APPEND_CLOCK,
            raw,
            PATIENCE_S,
            "the correction",
            records=1,
            refusal=lambda reason, told: refusal(reason, told, wanted_us, session.member),
        )
    _, log_seq, _, code = RESULT_STRUCT.unpack_from(answer)[:4]
    if code not in (OK, DUPLICATE):  # a duplicate is ours: its answer was lost with a session
        raise StorageError(
            f"shard {shard.number}: log time is not ahead of {_moment(wanted_us)} any more"
        )
    return int(log_seq)
