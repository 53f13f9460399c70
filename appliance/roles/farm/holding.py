"""The replicas that this node runs, as the groups have it: one that was moved away is ended and its
volume put aside, one that was taken in again gets a new volume and is started.

    group without us ──▶ mark ──▶ replica stopped ──▶ volume put aside ──▶ mark says where
    group with us, marked ──▶ new volume, as the group vouches for ──▶ replica started ──▶ no mark

What is done follows from the mark, the volume and the group, so it may be cut off anywhere. Only a
marked shard gets a volume: one that was lost stays lost until an operator recovers it, as an empty
volume must not deny what the old one acknowledged. What was put aside is never opened again.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from appliance.base.errors import ApplianceError, ConfigurationError, StorageError
from appliance.base.json_text import parse_json
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.node_folder import (
    SOCKETS_FOLDER,
    NodeFolder,
    group_name,
    left_name,
    lock_replica,
)
from appliance.drivers.network.ask import ask_for
from appliance.drivers.nvme.device import DATA, device_of
from appliance.drivers.nvme.volume import read_facts
from appliance.formats.group import Configuration
from appliance.formats.site import Shard
from appliance.formats.status.supervisor import SupervisorStatus
from appliance.roles.farm.member import FarmMember
from appliance.roles.operator.membership import begin_text, group_of
from appliance.roles.operator.volumes import (
    check_room,
    identities,
    make_volumes,
    volume_complete,
)

POLL_S = 1.0  # between two looks
BRIEF = False  # as in `create`, of volumes that are made here
WISH_S = 5.0  # for the supervisor to answer
_OP, _ASIDE = "op", "aside"  # of a mark: the group without us, and where the volume lies


class Holding(Protocol):
    """Whose node it is: the role."""

    node: NodeFolder
    member: FarmMember | None


class Holdings:
    """`poll` again and again. `troubles`: why a shard is not as it should be, by its number."""

    def __init__(self, role: Holding, log: logging.Logger) -> None:
        self._role, self._log = role, log
        self.troubles: dict[int, str] = {}

    async def poll(self) -> None:
        """See to each shard that an administrator has placed, or that was moved away."""
        node, member = self._role.node, self._role.member
        if member is None:
            return
        placed, groups = member.directory.placement.nodes, member.directory.groups()
        own = node.node.farm_id
        for shard in node.shards:
            number, marked = shard.number, node.has_left(shard.number)
            if number not in groups or not (marked or number in placed):
                continue
            group = groups[number]
            is_in = own in (*group.voters, *group.standbys)
            if marked:
                due = is_in or _volume(node, shard).exists() or _is_half_done(node, shard)
            else:
                due = not is_in
            if not due:
                self.troubles.pop(number, None)
                continue
            try:
                await self._see_to(node, shard, group.op)
            except ApplianceError as error:
                if self.troubles.get(number) != str(error):
                    self._log.warning("shard %d: %s", number, error)
                self.troubles[number] = str(error)
            else:
                self.troubles.pop(number, None)

    async def _see_to(self, node: NodeFolder, shard: Shard, op: int) -> None:
        """`op`: of the newest group that was reported."""
        group = await group_of(node, shard)
        if group.op < op:
            return  # who answered lags
        own_id = shard.replica_id_of(node.index)
        mark = _mark_of(node, shard)
        if own_id in group.members:
            if mark is not None and group.op > mark[_OP]:
                await self._come_in(node, shard, group, mark)
        else:
            if mark is None or (mark[_ASIDE] is not None and _volume(node, shard).exists()):
                mark = {_OP: group.op, _ASIDE: None}
                _write_mark(node, shard, mark)
            await self._put_aside(node, shard, mark)

    async def _put_aside(
        self, node: NodeFolder, shard: Shard, mark: dict[str, Any]
    ) -> dict[str, Any]:
        """The mark that says at the end that it is done; it may be done again."""
        if mark[_ASIDE] is not None:
            return mark
        await self._want(node, "stop", shard)
        aside = f"{left_name(shard.number)}-{mark[_OP]}"
        if _volume(node, shard).exists():
            await asyncio.to_thread(_rename, node, shard, aside)
        mark = {**mark, _ASIDE: aside}
        _write_mark(node, shard, mark)
        self._log.info("shard %d was moved away: its volume lies in %s", shard.number, aside)
        return mark

    async def _come_in(
        self, node: NodeFolder, shard: Shard, group: Configuration, mark: dict[str, Any]
    ) -> None:
        """As one that follows, with a volume that knows nothing but the group."""
        mark = await self._put_aside(node, shard, mark)
        if not volume_complete(_volume(node, shard)):
            if group.members.index(shard.replica_id_of(node.index)) < group.replica_count:
                raise StorageError(
                    f"{node.node.name} votes and has no volume: let another one vote in its place"
                )
            _refuse_device(node, shard, node.path / str(mark[_ASIDE]))
            write_durable(node.path / group_name(shard.number), begin_text(group))
            await asyncio.to_thread(_make, node, shard, self._say)
        if not await self._want(node, "start", shard) and not _runs(node, shard):
            raise StorageError(
                f"no supervisor is there: start the replica of shard {shard.number}, as with "
                f"`systemctl enable --now tigerchat-replica@{shard.number}`"
            )
        (node.path / left_name(shard.number)).unlink(missing_ok=True)
        sync_folder(node.path)
        self._log.info("shard %d was taken in: its replica has a new volume", shard.number)

    async def _want(self, node: NodeFolder, verb: str, shard: Shard) -> bool:
        """The supervisor's word that the replica is not wanted any more, or again; False: none is
        there, as where units run the roles."""
        answer = await asyncio.to_thread(
            ask_for,
            SupervisorStatus,
            node.path / SOCKETS_FOLDER,
            {verb: f"replica-{shard.number}"},
            cluster=node.site.cluster,
            timeout_s=WISH_S,
        )
        if answer is not None and not answer.get("done"):
            raise StorageError(
                f"the supervisor does not {verb} the replica of shard {shard.number}: start the "
                "node again"
            )
        return answer is not None

    def _say(self, line: str) -> None:
        self._log.info("%s", line)


def _volume(node: NodeFolder, shard: Shard) -> Path:
    return node.volume(shard.number)


def _mark_of(node: NodeFolder, shard: Shard) -> dict[str, Any] | None:
    """What the mark of a shard says; None: there is none."""
    path = node.path / left_name(shard.number)
    try:
        mark = parse_json(path.read_text())
        fits = isinstance(mark, dict) and type(mark[_OP]) is int
        if fits and isinstance(mark[_ASIDE], str | None):
            return dict(mark)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        pass
    raise ConfigurationError(f"{path} is damaged: see whether `tigerchat member list` names this "
                             "node, and remove it if it does not")  # fmt: skip


def _write_mark(node: NodeFolder, shard: Shard, mark: dict[str, Any]) -> None:
    write_durable(node.path / left_name(shard.number), json.dumps(mark) + "\n")


def _is_half_done(node: NodeFolder, shard: Shard) -> bool:
    """Whether a volume has to be put aside yet."""
    try:
        mark = _mark_of(node, shard)
    except ConfigurationError:
        return True  # looked at, and told
    return mark is not None and mark[_ASIDE] is None


def _runs(node: NodeFolder, shard: Shard) -> bool:
    """Whether somebody works as this replica."""
    try:
        os.close(lock_replica(node.path, shard.number))
    except StorageError:
        return True
    return False


def _rename(node: NodeFolder, shard: Shard, aside: str) -> None:
    """Once the replica has let go of it."""
    with identities(node, [shard]):
        try:
            _volume(node, shard).rename(node.path / aside)
        except OSError as error:
            raise StorageError(
                f"{_volume(node, shard)} cannot be put aside ({error.strerror}): a disk of its own "
                f"is unmounted, or moved to {aside}, by hand"
            ) from error
        sync_folder(node.path)


def _refuse_device(node: NodeFolder, shard: Shard, former: Path) -> None:
    """StorageError: the former volume has a device, and nobody said whether it may be written
    over."""
    device, volume = device_of(former), _volume(node, shard)
    if device is not None and device_of(volume) is None:
        raise StorageError(
            f"{former} lies on {device}: link {volume / DATA} to a device that may be written "
            "over, or remove the former one to have files instead"
        )


def _make(node: NodeFolder, shard: Shard, say: Callable[[str], None]) -> None:
    geometry = _geometry(node)
    with identities(node, [shard]):
        check_room(node.path, [(node, shard)], geometry)
        make_volumes(node, geometry, say, [shard], brief=bool(BRIEF))


def _geometry(node: NodeFolder) -> str:
    """That of another volume of this node, put aside or in use; else the usual one."""
    for facts in sorted(node.path.glob("shard-*/volume.json")):
        return str(read_facts(facts.parent)["geometry"])
    return "production"
