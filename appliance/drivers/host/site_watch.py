"""Notices that the site file has changed: nodes are added to it while the others run."""

from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.formats.site import Shard, Site, load_site


class SiteWatch:
    """Looks at a node's `site.toml` whenever it is asked; reads it when it is another file."""

    def __init__(self, path: Path, site: Site) -> None:
        self._path, self.site = path, site
        self._seen = self._stamp()
        self.trouble = ""  # why the newest file is not taken; empty while all is well

    def _stamp(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino)

    def changed(self) -> Site | None:
        """The new site, once, if it continues the one known; None otherwise."""
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            site = load_site(self._path)
            if not _continues(self.site, site):
                raise ConfigurationError(
                    f"{self._path} takes away or alters what is in use: add to its end only"
                )
        except (ConfigurationError, OSError) as error:
            self.trouble = str(error)
            return None
        self.trouble, self.site = "", site
        return site


def _continues(old: Site, new: Site) -> bool:
    """Whether all that processes hold on to stays where it is."""
    if old.cluster != new.cluster or len(old.shards) != len(new.shards):
        return False
    nodes = [node.public_key for node in new.nodes[: len(old.nodes)]]
    if nodes != [node.public_key for node in old.nodes]:
        return False
    return all(map(_shard_continues, old.shards, new.shards))


def _shard_continues(old: Shard, new: Shard) -> bool:
    count = len(old.members)
    return new.members[:count] == old.members and new.replica_ids[:count] == old.replica_ids
