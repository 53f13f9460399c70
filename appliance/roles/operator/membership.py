"""Operators' acts on a shard's group: a standby is added or removed, two members change places.

Every change is an operation of the shard's log: the group commits it, or says why not.
"""

import asyncio
import dataclasses
import json
import time
from collections.abc import Callable

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.limits import MEMBERS_MAX
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import REMOVED_FILE, NodeFolder
from appliance.formats.envelope import OPERATION_MEMBER_CHANGE, OPERATION_RECONFIGURE
from appliance.formats.group import Configuration
from appliance.formats.membership import (
    KIND_ADD,
    KIND_REMOVE,
    MemberChange,
    Reconfigure,
    Verdict,
    decode_change_result,
    encode_change,
    encode_reconfigure,
)
from appliance.formats.site import SITE_FILE, Node, Shard, Site
from appliance.roles.operator.session import OperatorSession

PATIENCE_S = 30.0
READY_S = 60.0  # for a standby to come close enough to be promoted
AGAIN_S = 0.5
# A change before is not settled, or the member that answered has not come along with it.
_LATER = (Verdict.IN_PROGRESS, Verdict.EPOCH_IN_PAST)
REMEDIES = {
    Verdict.EPOCH_IN_PAST: "the group has changed meanwhile: look with `tigerchat member list`",
    Verdict.EPOCH_IN_FUTURE: "the group has changed meanwhile: look with `tigerchat member list`",
    Verdict.CONFLICT: "another change won: look with `tigerchat member list`",
    Verdict.STANDBY_NOT_READY: "the standby is away or lags: wait until `tigerchat status` shows "
    "it close to the others",
    Verdict.IN_PROGRESS: "the change before is not settled: wait, and run this again",
    Verdict.TOO_MANY_MEMBERS: f"allowed: {MEMBERS_MAX} members; remove a standby first",
    Verdict.NOT_A_STANDBY: "a replica that votes must be retired first, with `member retire`",
}


def name_of(site: Site, shard: Shard, replica_id: bytes) -> str:
    """The node that has this replica of the shard, in words."""
    index = shard.node_of(replica_id)
    if index is None:
        return f"replica {replica_id.hex()}, not in the site file"
    return site.nodes[index].name


Say = Callable[[str], None]


async def group_of(node: NodeFolder, shard: Shard) -> Configuration:
    """Who belongs to it, as it says itself. StorageError: nobody answers."""
    async with OperatorSession(node, shard, "member") as session:
        if not await session.poll(PATIENCE_S):
            raise StorageError(f"shard {shard.number}: no member answers: start the site first")
        return session.configuration


async def change_members(
    node: NodeFolder,
    shard: Shard,
    change: MemberChange,
    *,
    verb: str = "member",
    say: Say = click.echo,
    of: Configuration | None = None,
) -> Configuration:
    """Have a standby added or removed; the group afterwards. What lasts is told where a `verb`
    asks. `of`: the group that is to be changed, and no other one; None: as it is found."""
    what = "add" if change.kind == KIND_ADD else "remove"
    name = name_of(node.site, shard, change.replica_id)
    deadline = time.monotonic() + READY_S
    async with OperatorSession(node, shard, verb) as session:
        while True:
            if not await session.poll(PATIENCE_S):
                raise StorageError(f"shard {shard.number}: no member answers: start the site first")
            _refuse_other(shard, session.configuration, of)
            now = dataclasses.replace(change, epoch=session.configuration.epoch)
            raw = await session.ask(
                OPERATION_MEMBER_CHANGE,
                encode_change(now),
                PATIENCE_S,
                f"the change ({what})",
                again=False,  # somebody may have changed it back
            )
            verdict = decode_change_result(raw)
            if verdict not in _LATER or time.monotonic() > deadline:
                break
            session.waits("the end of a change that is under way")
            session.greet()
            await asyncio.sleep(AGAIN_S)
        _tell_result(shard, verdict, f"{what} {name}", say)
        wanted = change.kind == KIND_ADD
        while (change.replica_id in session.configuration.members) != wanted:
            if time.monotonic() > deadline + PATIENCE_S:
                raise StorageError(f"shard {shard.number}: changed, but no member tells so yet")
            session.waits("a member that tells of the change")
            session.greet()
            await asyncio.sleep(AGAIN_S)
        return session.configuration


async def reconfigure(
    node: NodeFolder,
    shard: Shard,
    up: int,
    down: int,
    *,
    verb: str = "member",
    say: Say = click.echo,
    of: Configuration | None = None,
    ready_s: float = READY_S,
) -> None:
    """Let the node `up`, a standby, vote in the place of `down`, and wait until it may. `of` as in
    `change_members`."""
    ids = [shard.replica_id_of(index) for index in (up, down)]
    what = f"promote {node.site.nodes[up].name}, retire {node.site.nodes[down].name}"
    deadline = time.monotonic() + ready_s
    async with OperatorSession(node, shard, verb) as session:
        while True:
            if not await session.poll(PATIENCE_S):
                raise StorageError(f"shard {shard.number}: no member answers: start the site first")
            group = session.configuration
            _refuse_other(shard, group, of)
            members = exchanged(group, shard.number, *ids)
            if members is None:
                say(f"member: shard {shard.number}: {what}: it is so already")
                return
            order = Reconfigure(group.epoch + 1, group.replica_count, members)
            raw = await session.ask(
                OPERATION_RECONFIGURE, encode_reconfigure(order), PATIENCE_S, "the reconfiguration"
            )
            verdict = decode_change_result(raw)
            waits = verdict in (Verdict.STANDBY_NOT_READY, Verdict.IN_PROGRESS)
            if not waits or time.monotonic() > deadline:
                break
            session.waits(f"what a change needs: {verdict.name.lower()}")
            await asyncio.sleep(AGAIN_S)
    _tell_result(shard, verdict, what, say)


def _refuse_other(shard: Shard, found: Configuration, of: Configuration | None) -> None:
    """StorageError: the group is not the one that is to be changed."""
    if of is not None and (found.epoch, found.op) != (of.epoch, of.op):
        raise StorageError(f"shard {shard.number}: {REMEDIES[Verdict.EPOCH_IN_PAST]}")


def exchanged(
    group: Configuration, shard: int, standby: bytes, replica: bytes
) -> tuple[bytes, ...] | None:
    """The members once a standby and a replica have changed places; None: they have already.
    ConfigurationError when they are no such pair: then nothing would be exchanged."""
    members = list(group.members)
    if standby not in members or replica not in members:
        raise ConfigurationError(
            f"shard {shard}: both must be members: look with `tigerchat member list`"
        )
    a, b = members.index(standby), members.index(replica)
    up_votes, down_votes = a < group.replica_count, b < group.replica_count
    if up_votes and not down_votes:
        return None
    if up_votes or not down_votes:
        both = "both vote already" if up_votes else "neither of them votes"
        raise ConfigurationError(
            f"shard {shard}: {both}: name a standby to promote and a replica to retire, as "
            "`tigerchat member list` shows them"
        )
    members[a], members[b] = members[b], members[a]
    return tuple(members)


def _tell_result(shard: Shard, verdict: Verdict, what: str, say: Say) -> None:
    """Say what was committed; StorageError for a refusal."""
    said = verdict.name.lower()
    if verdict not in (Verdict.OK, Verdict.ALREADY_APPLIED):
        remedy = REMEDIES.get(verdict, "look with `tigerchat member list`")
        raise StorageError(f"shard {shard.number}: {what}: {said}; {remedy}")
    say(f"member: shard {shard.number}: {what}: {said}")


async def exchange(
    node: NodeFolder, up: int, down: int, *, verb: str = "member", say: Say = click.echo
) -> None:
    """Let two members change places in every shard that both belong to."""
    site = node.site
    shards = [s for s in site.shards if up in s.members and down in s.members]
    if not shards:
        names = " and ".join(site.nodes[index].name for index in (up, down))
        raise ConfigurationError(f"{names} share no shard")
    for shard in shards:
        await reconfigure(node, shard, up, down, verb=verb, say=say)


async def take_out(
    node: NodeFolder, index: int, *, verb: str = "member", say: Say = click.echo
) -> None:
    """Take the standby at `index` out of every shard; a local site starts it no more."""
    for shard in node.site.shards_of(index):
        await change_members(node, shard, removal(shard, index), verb=verb, say=say)
    name = node.site.nodes[index].name
    for neighbour in neighbours(node.path, node.site):
        if neighbour.index == index and (neighbour.path.parent / SITE_FILE).is_file():
            write_durable(neighbour.path / REMOVED_FILE, f"{name} belongs to no shard any more\n")
            say(f"member: {name} is started no more with this site")


def addition(shard: Shard, node: Node) -> MemberChange:
    """That a node of the site file becomes a standby of the shard."""
    where = f"{node.host}:{node.peer_port + shard.number}"
    return MemberChange(0, KIND_ADD, shard.replica_id_of(node.index), node.public_key, where)


def removal(shard: Shard, index: int) -> MemberChange:
    """That the standby of a node is none any more."""
    return MemberChange(0, KIND_REMOVE, shard.replica_id_of(index))


def begin_text(group: Configuration, view: int = 0) -> str:
    """What a volume that this group vouches for begins with (`shard-S.group`)."""
    begin = {
        "epoch": group.epoch, "members_op": group.op, "replica_count": group.replica_count,
        "members": [member.hex() for member in group.members],
        "view": view, "log_view": 0,
    }  # fmt: skip
    return json.dumps(begin) + "\n"
