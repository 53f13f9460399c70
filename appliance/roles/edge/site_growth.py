"""Whom shard 0 describes as a node that joins, the first edge of every node writes into the node's
site file; all roles read it from there (`drivers/host/site_watch.py`)."""

import logging
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.cores.edge.joining_nodes import JoiningNodes
from appliance.cores.edge.shard_room import ShardRoom
from appliance.drivers.files.folders import sync_folder
from appliance.drivers.host.durable_file import write_durable
from appliance.formats.joining_node import grown
from appliance.formats.revocation import SHARD
from appliance.formats.site import encode_site, load_site
from appliance.formats.site_view import UNDESCRIBED, SiteView


class SiteGrowth:
    """`go_on` each second. What cannot be written is told once, and tried again."""

    def __init__(self, path: Path, view: SiteView, log: logging.Logger) -> None:
        self.joining = JoiningNodes(len(view.site.nodes))
        self._path, self._log = path, log
        self._told = ""

    def go_on(self, view: SiteView, room: ShardRoom | None) -> None:
        """Append who comes next; and have the room read anew when the group has a member of whom
        nobody has told."""
        missed = UNDESCRIBED in view.groups[SHARD].members
        if missed and not self.joining.is_missed and room is not None:
            room.read_again()
        self.joining.is_missed = missed
        try:
            self._append(len(view.site.nodes))
            self._told = ""
        except (ConfigurationError, OSError) as error:
            if self._told != (told := str(error)):
                self._told = told
                self._log.error("a node that joins is not described here: %s", told)

    def _append(self, described: int) -> None:
        node = self.joining.next_after(described)
        if node is None:
            return
        site = load_site(self._path)
        if len(site.nodes) > described:
            return  # the file is ahead of its reader
        fresh = self._path.with_name(f"{self._path.name}.told")
        write_durable(fresh, encode_site(grown(site, node)))
        load_site(fresh)  # nobody reads what is refused: ports that two would have, for one
        fresh.rename(self._path)
        sync_folder(self._path.parent)
        self._log.info("%s is described as node %d", node.name, node.index)
