"""What a cluster is restored from, sorted by shard, and whether the old one is really gone."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import counted
from appliance.base.prng import Prng
from appliance.cores.vsr.open import VolumeUnusable
from appliance.drivers.hdfs.open_target import open_target
from appliance.drivers.hdfs.target import Target
from appliance.drivers.host import clock
from appliance.drivers.host.durable_file import lock_folder
from appliance.drivers.nvme.reader import VolumeReader
from appliance.formats.manifest import parse_keys, shard_folder
from appliance.formats.settings import Settings
from appliance.formats.site import SITE_FILE, Site, load_site
from appliance.formats.superblock import Superblock
from appliance.roles.operator.archive_source import ArchiveSource
from appliance.roles.operator.log_source import LogSource
from appliance.roles.operator.old_cluster import refuse_quorum
from appliance.roles.operator.volume_rows import chosen_superblock
from appliance.roles.operator.volume_source import VolumeBroken, VolumeSource

_CLUSTER = "cluster="


@dataclass(slots=True)
class Remains:
    """All that is left of a cluster."""

    cluster: bytes = b""
    site: Site | None = None  # as its site file describes it; None: none was found
    shards: int = 0  # that it had
    trusted: frozenset[bytes] = frozenset()
    folders: list[tuple[Path, Superblock]] = field(default_factory=list)  # of volumes
    volumes: list[VolumeSource] = field(default_factory=list)  # those that were opened
    unusable: list[str] = field(default_factory=list)  # why others were not, in words
    archives: list[Target] = field(default_factory=list)

    def open(self, say: Callable[[str], None]) -> None:
        """Verify the fronts of the volumes, and keep others from working on them."""
        for folder, _ in self.folders:
            say(f"reads checkpoint and log of {folder}")
            try:
                self.volumes.append(VolumeSource(folder))
            except (VolumeBroken, VolumeUnusable) as error:
                self.unusable.append(f"{folder}: {error}")

    def close(self) -> None:
        """Let go of the volumes."""
        for volume in self.volumes:
            volume.reader.close()

    def sources(self, shard: int, say: Callable[[str], None]) -> list[LogSource]:
        """Of one shard: volumes, of the newest log first, then archives."""
        for target in self.archives:
            say(f"lists what lies at {target.describe()} of shard {shard}")
        volumes = [volume for volume in self.volumes if volume.block.shard == shard]
        volumes.sort(key=lambda volume: volume.log, reverse=True)
        folder = shard_folder(self.cluster, shard)
        archives = [
            ArchiveSource(target, self.cluster, shard, self.trusted)
            for target in self.archives
            if target.list(folder)
        ]
        return [*volumes, *archives]


def survey(
    locations: Iterable[str],
    settings: Settings,
    site_file: Path | None,
    keys_file: Path | None,
) -> Remains:
    """Look at everything that was named. `settings` say how an archive is reached."""
    found, beside = Remains(), []
    for location in locations:
        folder = Path(location)
        if "://" not in location and not folder.is_dir():
            raise ConfigurationError(f"--from {location}: there is no such folder")
        if "://" not in location and (folder / "volume.json").exists():
            try:
                found.folders.append((folder, chosen_superblock(VolumeReader(folder))))
            except VolumeUnusable as error:
                found.unusable.append(f"{folder}: {error}")
            beside.append(folder.absolute().parent / SITE_FILE)
            continue
        if "://" not in location:
            if not any(entry.name.startswith(_CLUSTER) for entry in folder.iterdir()):
                raise ConfigurationError(
                    f"--from {location} holds neither a volume (volume.json) nor shipped files "
                    f"({_CLUSTER}...): name the folder of a volume, like node-0/shard-0, or the "
                    "target of the shipper"
                )
            beside.append(folder.absolute().parent / SITE_FILE)
        target = location if "://" in location else str(folder.absolute())
        where = replace(settings, ship_target=target, ship_rate_max=0)
        found.archives.append(open_target(where, Path(), folder, Prng(clock.seed())))
    _identify(found, site_file, keys_file, beside)
    return found


def _identify(
    found: Remains, site_file: Path | None, keys_file: Path | None, beside: list[Path]
) -> None:
    """Which cluster it was: by the site file, the keys, or the volumes; all must agree."""
    there = [site_file] if site_file else [path for path in beside if path.exists()]
    clusters = {block.cluster for _, block in found.folders}
    if there:
        found.site = load_site(there[0])
        clusters.add(found.site.cluster)
        found.shards = len(found.site.shards)
        found.trusted = frozenset(node.public_key for node in found.site.nodes)
    if keys_file is not None:
        keys = parse_keys(_read(keys_file))
        clusters.add(keys.cluster)
        found.shards, found.trusted = found.shards or keys.shards, keys.public_keys
    if len(clusters) > 1:
        named = ", ".join(sorted(cluster.hex() for cluster in clusters))
        raise ConfigurationError(f"what was named is of several clusters: {named}")
    if not clusters:
        raise ConfigurationError(
            "nothing says which cluster this archive is of: name its site file (--site) or the "
            "keys that signed it (--keys)"
        )
    if found.archives and not found.trusted:
        raise ConfigurationError(
            "nothing says whose signatures to trust: name the site file of the old cluster "
            "(--site), or its keys (--keys), as `tigerchat ship keys` printed them"
        )
    found.cluster = clusters.pop()
    found.shards = found.shards or 1 + max(block.shard for _, block in found.folders)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error


def refuse_living(found: Remains, *, gone: bool, say: Callable[[str], None]) -> None:
    """StorageError while a quorum of any shard answers, or where nobody says that it is gone."""
    if found.site is None:
        if not gone:
            raise StorageError(
                "no site file says where the old nodes are, so that none can be asked whether the "
                "cluster is gone: name it (--site), or say --old-is-gone"
            )
        return
    for shard in found.site.shards:
        blocks = [block for _, block in found.folders if block.shard == shard.number]
        newest = max(blocks, key=lambda block: (block.epoch, block.members_op), default=None)
        voters = newest.members[: newest.replica_count] if newest else []
        names = refuse_quorum(found.site, shard, voters)
        if names:
            say(f"shard {shard.number} has no quorum any more; there answers {', '.join(names)}")


def refuse_lacking(found: Remains, sources: dict[int, list[LogSource]], lost: set[int]) -> None:
    """Each shard has a source, or is said to be lost."""
    lacking = [n for n in range(found.shards) if not sources[n] and n not in lost]
    if lacking:
        names, why = ", ".join(map(str, lacking)), "".join(f" ({w})" for w in found.unusable)
        raise ConfigurationError(
            f"the cluster had {counted(found.shards, 'shard')}, and nothing that was named is of "
            f"shard {names}{why}: name a volume or an archive of it, or say --lost-shard "
            f"{lacking[0]}: its rooms are gone then"
        )
    for number, given in sources.items():
        first = min((source.first_log_seq for source in given), default=1)
        if first > 1 and not any(isinstance(source, VolumeSource) for source in given):
            raise StorageError(
                f"shard {number}: nothing that was named has its records up to {first - 1}, and "
                "what follows is linked to them: name a volume as well, or all that was shipped "
                "(--from)"
            )


def staging_of(folder: Path) -> Path:
    """Where a site is made before it gets its name; what an earlier run left there is removed."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} is not empty: name a folder that is not there yet")
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = folder.with_name(f".{folder.name}.restoring")
    if staging.exists():
        click.echo(f"restore: removes what an earlier run left in {staging}", err=True)
        lock_folder(staging)  # until this process ends: nobody else is at work there
        shutil.rmtree(staging)
    return staging
