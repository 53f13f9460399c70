"""A role's view of the site, kept right while it runs: nodes are added to the site file, and groups
change, while the others serve."""

from collections.abc import Callable
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.formats.group import Configuration
from appliance.formats.site import Shard, Site, load_site
from appliance.formats.site_view import SiteView, configuration_in
from appliance.formats.status.replica import ReplicaStatus


class SiteWatch:
    """Polls a node's `site.toml` whenever it is asked, reads it when it is another file, and
    takes what replicas report of their groups. `on_view` is called with each view that is another
    one, `tell` with the reason why a file is not taken, once."""

    def __init__(
        self,
        path: Path,
        view: SiteView,
        on_view: Callable[[SiteView], None] = lambda view: None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._path, self.view = path, view
        self._on_view, self._tell = on_view, tell
        self._seen = self._stamp()
        self.trouble = ""  # why the newest file is not taken; empty while all is well

    def _stamp(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino)

    def poll(self) -> None:
        """Take the newest file if it continues the one that is known."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            site = load_site(self._path)
            if not _continues(self.view.site, site):
                raise ConfigurationError(
                    f"{self._path} takes away or alters what is in use: add to its end only"
                )
        except (ConfigurationError, OSError) as error:
            if self.trouble != str(error):
                self.trouble = str(error)
                self._tell(self.trouble)
            return
        self.trouble = ""
        self._become(self.view.described(site))

    def learn(self, shard: int, configuration: Configuration | None) -> None:
        """A member of `shard` reports its group so; None for one that tells of none."""
        self._become(self.view.learned(shard, configuration))

    def on_status(self, status: ReplicaStatus) -> None:
        """A replica tells how it is, and so of its group."""
        self.learn(status.shard, configuration_in(status))

    def _become(self, view: SiteView) -> None:
        if view is not self.view:
            self.view = view
            self._on_view(view)


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
