"""Makes the volumes of a node, each under a lock that belongs to the replica's identity.

A volume is made in three cases: a new site is said to begin, a running group has taken a new
member in, or it has vouched for one that lost its disk. In the last two a file beside the volume
says what the group told (`shard-S.group`). Whoever makes a volume holds the lock `.shard-S.lock` of
the node's folder, as the replica does while it runs: an old process that goes on with files which
were moved away still has it, so nobody makes a second volume for the same identity beside it.
"""

import contextlib
import os
import shutil
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from appliance import VERSION
from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.json_text import parse_json
from appliance.cores.vsr.open import NewReplica, format_writes
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.node_folder import (
    FORMATTED_FILE,
    NodeFolder,
    group_name,
    lock_replica,
)
from appliance.drivers.network.tls import shown_at
from appliance.drivers.nvme.device import DATA, check_free, claim, device_of, notes, probe
from appliance.drivers.nvme.direct import refuse_memory
from appliance.drivers.nvme.extents import EXTENTS_AT_FORMAT
from appliance.drivers.nvme.volume import FILES, GEOMETRIES, Write, create, read_facts
from appliance.formats.geometry import Geometry
from appliance.formats.site import SEGMENTS_MAX_HIGH, Shard

Say = Callable[[str], None]
WritesOf = Callable[[Geometry, NewReplica], Iterable[Write]]  # what a volume begins with
RELEASE_S = 5.0  # for a replica to notice that its volume was moved away, and to end
PROBE_S = 2.0  # for whatever listens at a peer port to take a connection
PROBE_EVERY_S = 0.5  # each one stays in the queue of a process that stands still
_POLL_S = 0.05
_NOT_OURS_BUT_FINE = {"lost+found"}  # of a file system mounted at the volume's folder


def volume_complete(volume: Path) -> bool:
    """Whether format reached its end there; a volume that cannot be judged is never made again."""
    if not (volume / "volume.json").exists():
        return False
    read_facts(volume)
    return True


def lost_volumes(node: NodeFolder) -> list[Shard]:
    """The shards whose volumes a node is to have and has not. ConfigurationError: it lacks none."""
    lost = [shard for shard in node.held if not volume_complete(node.volume(shard.number))]
    if lost:
        return lost
    raise ConfigurationError(
        f"{node.path} lacks no volume: nothing to recover; a volume that is broken beyond repair "
        f"has to be moved away first ({node.volume(node.shards[0].number)})"
    )


def make_volumes(
    node: NodeFolder,
    geometry: str,
    say: Say,
    shards: list[Shard],
    *,
    vouched: bool = True,
    brief: bool = False,
    writes_of: WritesOf = format_writes,
) -> None:
    """Make the volumes of `shards` that are not there yet. The caller holds their locks.

    Those that are not `vouched` for vote when the other replicas have said that they never heard
    of this one. `brief` as in `create`; `writes_of` gives what they begin with.
    """
    for shard in shards:
        volume = node.volume(shard.number)
        what = f"format: {node.node.name}, shard {shard.number}"
        if volume_complete(volume):
            say(f"{what}: kept, it was complete")
            continue
        device = device_of(volume)
        doing = "reserving" if brief and not device else "writing"
        to = f" to {device}" if device else ""
        say(f"{what}: {doing} {volume_size(geometry) >> 20} MiB{to}")
        for sentence in notes(probe(device)) if device else ():
            say(f"{what}: {device}: {sentence}")
        started = time.monotonic()
        facts = _make_volume(node, shard, geometry, vouched, brief, writes_of)
        flush = facts["flush"]
        say(
            f"{what}: done in {time.monotonic() - started:.1f} s; a durable write takes "
            f"{flush['p50_us'] / 1000:.2f} ms by {flush['method']}"
        )


def mark_formatted(node: NodeFolder) -> None:
    """Say that the node was completed: nothing of it is made again by `format`."""
    write_durable(node.path / FORMATTED_FILE, f"by tigerchat {VERSION}\n")


def _make_volume(
    node: NodeFolder,
    shard: Shard,
    geometry: str,
    vouched: bool,
    brief: bool,
    writes_of: WritesOf,
) -> dict[str, Any]:
    index = shard.replica_index(node.settings.index)
    assert index is not None
    volume = node.volume(shard.number)
    _clear(volume)
    path = node.path / group_name(shard.number)
    first = shard.number % shard.replica_count
    group: dict[str, Any] = (
        _read_group(path)
        if path.exists()
        else {
            "epoch": 0,
            "members_op": 0,
            "members": shard.replica_ids,
            "replica_count": shard.replica_count,
            "view": first,
            "log_view": first,
            "vouched": vouched,
        }
    )
    segments_max = shard.segments_max
    new = NewReplica(
        cluster=node.site.cluster,
        shard=shard.number,
        replica_id=shard.replica_ids[index],
        segments_max=segments_max,
        **group,
    )
    writes = writes_of(GEOMETRIES[geometry], new)
    facts = create(volume, geometry=geometry, segments_max=segments_max, writes=writes, brief=brief)
    path.unlink(missing_ok=True)
    sync_folder(node.path)
    return facts


def _clear(volume: Path) -> None:
    """Remove what a format that did not reach its end left in `volume`: nothing was stored there.

    The folder itself stays, because a disk of its own may be mounted there; so does the link to a
    device, which the operator has named.
    """
    if not volume.exists():
        return
    entries = sorted(entry.name for entry in volume.iterdir())
    foreign = [name for name in entries if name not in FILES and name not in _NOT_OURS_BUT_FINE]
    if foreign:
        raise ConfigurationError(
            f"{volume} holds {foreign[0]}, which is not of a volume: move it away, or put an empty "
            "folder or disk there"
        )
    for name in entries:
        path = volume / name
        if name in _NOT_OURS_BUT_FINE or (name == DATA and device_of(volume) is not None):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _read_group(path: Path) -> dict[str, Any]:
    """What the running group said of itself when `recover` or `member add` asked it."""
    try:
        group: dict[str, Any] = parse_json(path.read_text())
        group["members"] = [bytes.fromhex(member) for member in group["members"]]
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"{path} is damaged: remove it, and recover this node anew") from error
    return group


# --- devices --------------------------------------------------------------------------------------


def claim_devices(
    folder: Path,
    named: list[str],
    volume_paths: list[Path],
    geometry: str,
    segments_max: int,
    erase: int,
) -> None:
    """Let volumes lie on raw devices: each of `named` is PATH, or VOLUME=PATH with the volume's
    folder as it lies in `folder`. All are checked before anything is changed; a device that
    carries something is taken when `erase` was said twice. Volumes that are there are left alone.
    """
    sizes = GEOMETRIES[geometry]
    chosen: dict[Path, Path] = {}
    for text in named:
        name, _, given = text.rpartition("=")
        volume, device = folder / name if name else volume_paths[0], Path(given).absolute()
        if volume not in volume_paths or (not name and len(volume_paths) > 1):
            known = ", ".join(str(known.relative_to(folder)) for known in volume_paths)
            raise ConfigurationError(f"--device {text}: say which volume as VOLUME=PATH: {known}")
        if volume in chosen or device in chosen.values():
            raise ConfigurationError(f"--device {text}: named twice; a volume has a device alone")
        chosen[volume] = device
    for volume, device in chosen.items():
        if volume_complete(volume):
            if device_of(volume) == device:
                continue
            raise ConfigurationError(f"{volume} already holds a volume: leave out its --device")
        if not (volume / DATA).is_symlink() or device_of(volume) != device:  # else it was begun
            check_free(device, sizes.data_size + segments_max * sizes.extent_size, erase)
    for volume, device in chosen.items():
        claim(volume, device)


def claim_node_devices(
    node: NodeFolder, shards: list[Shard], named: list[str], geometry: str, erase: int
) -> None:
    """As `claim_devices`, for those of one node's `shards` whose volumes are not there yet."""
    if named:
        volume_paths = [node.volume(shard.number) for shard in shards]
        most = max(shard.segments_max for shard in shards)
        claim_devices(node.path, named, volume_paths, geometry, most, erase)


# --- room -----------------------------------------------------------------------------------------


def volume_size(geometry: str) -> int:
    """Bytes that a new volume takes."""
    sizes = GEOMETRIES[geometry]
    return sizes.data_size + EXTENTS_AT_FORMAT * sizes.extent_size


def check_room(folder: Path, wanted: list[tuple[NodeFolder, Shard]], geometry: str) -> None:
    """Refuse before the first byte what cannot be completed: volumes that are missing, counted by
    the file system on which each will lie."""
    refuse_memory(folder)
    volume_paths = [node.volume(shard.number) for node, shard in wanted]
    wanting = [
        volume for volume in volume_paths if not volume_complete(volume) and not device_of(volume)
    ]
    for disk in _disks(folder, wanting):
        needed = disk.volumes * volume_size(geometry)
        if disk.free < needed:
            raise StorageError(
                f"{disk.there}: {disk.volumes} volume{'s need' if disk.volumes > 1 else ' needs'} "
                f"{needed >> 20} MiB, of which {disk.free >> 20} MiB are free: make room, or "
                "choose another disk"
            )


def segments_that_fit(folder: Path, volume_paths: list[Path], geometry: str) -> int:
    """How many segments each of these new volumes can come to hold: their disks' space is shared
    evenly, and retention gives none of it back before the last one was written."""
    sizes = GEOMETRIES[geometry]
    devices = [probe(device).size for device in map(device_of, volume_paths) if device]
    files = [volume for volume in volume_paths if not device_of(volume)]
    shares = devices + [disk.free // disk.volumes for disk in _disks(folder, files)]
    fits = [(share - sizes.data_size) // sizes.extent_size for share in shares]
    return max(0, min(fits, default=SEGMENTS_MAX_HIGH))


def check_capacity(
    folder: Path, volume_paths: list[Path], geometry: str, segments_max: int
) -> None:
    """Refuse volumes that would be full before they hold what their site file says."""
    fit = segments_that_fit(folder, volume_paths, geometry)
    if segments_max > fit >= EXTENTS_AT_FORMAT:  # of less `check_room` says what is missing
        size = GEOMETRIES[geometry].extent_size * segments_max + GEOMETRIES[geometry].data_size
        raise StorageError(
            f"{folder}: {len(volume_paths)} volume{'s' if len(volume_paths) > 1 else ''} of "
            f"segments_max {segments_max} may come to need {size >> 20} MiB each, and the disk "
            f"holds {fit} segments: say fewer (--segments-max, or segments_max in the site file of "
            "a new site), make room, or choose another disk"
        )


class _Disk(NamedTuple):
    """A file system on which so many new volumes will lie; `free` bytes, begun ones included."""

    there: Path
    volumes: int
    free: int


def _disks(folder: Path, volume_paths: list[Path]) -> list[_Disk]:
    """By file system; that of `folder`, unless the place of a volume is there already."""
    of: dict[int, list[tuple[Path, Path]]] = {}  # by device: (volume, a folder that is there)
    for volume in volume_paths:
        there = volume if volume.exists() else folder
        of.setdefault(there.stat().st_dev, []).append((volume, there))
    found = []
    for volumes in of.values():
        begun = sum(
            file.stat().st_blocks * 512
            for volume, _ in volumes
            if volume.exists()
            for file in volume.rglob("*")
        )
        there = volumes[0][1] if len(volumes) == 1 else folder
        state = os.statvfs(there)
        found.append(_Disk(there, len(volumes), state.f_bavail * state.f_frsize + begun))
    return found


# --- one volume for an identity -------------------------------------------------------------------


@contextlib.contextmanager
def identities(node: NodeFolder, shards: list[Shard], *, fresh: bool = False) -> Iterator[None]:
    """Hold the identities of these replicas; StorageError while anything answers under one.

    Under `fresh` ones, which this run has drawn, nobody can, and nobody is asked. A replica whose
    folder was moved away ends by itself within a second or two, so it is waited for; one that
    stands still does not, and must be stopped first.
    """
    held: list[int] = []
    try:
        for shard in shards:
            held.append(_lock(node, shard))
            if not fresh:
                _refuse_listener(node, shard)
        yield
    finally:
        for lock in held:
            os.close(lock)


def _lock(node: NodeFolder, shard: Shard) -> int:
    deadline = time.monotonic() + RELEASE_S
    while True:
        try:
            return lock_replica(node.path, shard.number)
        except StorageError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _refuse_listener(node: NodeFolder, shard: Shard) -> None:
    """The replica may run from another folder, or from this one before it was moved away. Whoever
    listens at its port and shows another key is not it."""
    host, port = node.node.host, node.node.peer_port + shard.number
    replica = f"the replica of shard {shard.number} of {node.node.name}"
    deadline = time.monotonic() + RELEASE_S
    while True:
        who = f"and does not show whether it is {replica}"
        try:
            if shown_at(host, port, PROBE_S) != node.node.spki:
                return
            who = f"as {replica}"
        except (TimeoutError, ssl.SSLError, ConnectionResetError, BrokenPipeError):
            pass  # not refused: a process that stands still takes no more connections
        except OSError:
            return  # nobody there
        if time.monotonic() > deadline:
            raise StorageError(
                f"something answers at {host}:{port} {who}: a second volume beside it would deny "
                "what it acknowledges; stop that process first, then run this again"
            )
        time.sleep(PROBE_EVERY_S)
