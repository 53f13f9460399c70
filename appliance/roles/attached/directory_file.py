"""The farm's directory as the roles of a node have it: the file in its folder, if it fits."""

import time
from typing import Any

from appliance.base.errors import DirectoryRefused
from appliance.base.limits import FARM_DIRECTORY_SIZE_MAX
from appliance.cores.directory.signed import open_directory
from appliance.drivers.host.node_folder import FARM_DIRECTORY_FILE, NodeFolder
from appliance.formats.site import FARM
from appliance.formats.status.directory import HeldDirectory


class DirectoryFile:
    """`data`: signed bytes, empty before the first ones; `refused`: why newer ones are not taken.

    The last one stays when the file is gone, damaged or older: a farm without a majority writes
    none, and clients go on with the shards they know.
    """

    def __init__(self, node: NodeFolder) -> None:
        self.path = node.path / FARM_DIRECTORY_FILE
        self.key = node.site.farm_key  # verifies who may sign; empty: this site has no farm
        self.data = b""
        self.content: dict[str, Any] = {}
        self.refused = ""
        self._seen = (0, 0, 0)

    @property
    def version(self) -> int:
        return int(self.content.get("version", 0))

    def poll(self) -> bool:
        """Read the file if it is another one; True: there is a newer directory."""
        try:
            stat = self.path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if not self.key or seen == self._seen:
                return False
            self._seen = seen
            with self.path.open("rb") as file:
                data = file.read(FARM_DIRECTORY_SIZE_MAX + 1)
        except OSError:
            return False
        try:
            content = open_directory(
                data, cluster=FARM, offline=self.key, version_least=self.version
            )
        except DirectoryRefused as error:
            self.refused = error.reason
            return False
        self.refused = ""
        newer = int(content["version"]) > self.version
        self.data, self.content = data, content
        return newer

    @property
    def members(self) -> frozenset[int]:
        """Numbers of the members that serve something, and that nobody wants kept out."""
        return frozenset(row["node"] for row in self.content.get("endpoints", []))

    def shipper_of(self, shard: int) -> int:
        """The index of the node that the farm has chosen to ship a shard; -1: none, or what is
        known has expired, so that nobody is to begin."""
        if int(time.time() * 1000) > int(self.content.get("expires", 0)):
            return -1
        return int(self.content["shippers"].get(str(shard), 0)) - 1

    def told(self) -> HeldDirectory:
        expires = int(self.content.get("expires", 0))
        late_ms = int(time.time() * 1000) - expires
        return HeldDirectory(
            version=self.version,
            publisher=int(self.content.get("publisher", 0)),
            expires=expires,
            expired_ms=max(0, late_ms) if self.content else 0,
            refused=self.refused,
        )
