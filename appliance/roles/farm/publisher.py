"""The signed directory on its way: signed by who is chosen, carried by its status, kept by all.

    chosen ──content changed, or half expired──▶ sign ──▶ own status in the log ──▶ every node

The log carries the signed bytes, so that each node can hand them out and a node that starts finds
the newest one there. Whoever takes one verifies it: a status alone is believed by nobody.
"""

import base64
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from appliance.base.errors import DirectoryRefused, FormatError
from appliance.cores.directory.directory import EXPIRY_PERIODS, Directory
from appliance.cores.directory.document import parse_document
from appliance.cores.directory.signed import open_directory, sign_directory
from appliance.drivers.host.durable_file import write_durable
from appliance.drivers.host.node_folder import FARM_DIRECTORY_FILE, NodeFolder
from appliance.formats.site import FARM
from appliance.formats.status.farm import DirectoryEndpoint, SignedDirectory
from appliance.formats.status.status import parse
from appliance.roles.farm.figures import Published
from appliance.roles.farm.node_files import read_delegation


def essence(content: dict[str, Any]) -> dict[str, Any]:
    """What of a directory is worth a new one: all but its age and the momentary load."""
    kept = {k: v for k, v in content.items() if k not in ("version", "term", "expires")}
    kept["endpoints"] = [{k: v for k, v in e.items() if k != "weight"} for e in kept["endpoints"]]
    return kept


def is_outdated(signed: dict[str, Any], fresh: dict[str, Any], period_ms: int) -> bool:
    """Whether what was signed last (empty: nothing) is to give way to what would be signed now."""
    if not signed or essence(fresh) != essence(signed):
        return True
    longer_ms = int(fresh["expires"]) - int(signed["expires"])
    # below 0: an administrator shortened the period
    return longer_ms >= EXPIRY_PERIODS * period_ms // 2 or longer_ms < 0


class Publisher:
    """The newest directory a node knows, and the next one if it has to sign it.

    Invariant: the version never falls, also over restarts.
    """

    def __init__(self, node: NodeFolder) -> None:
        self.node, self.id = node, node.node.farm_id
        self.path: Path = node.path / FARM_DIRECTORY_FILE
        self.data = b""
        self.content: dict[str, Any] = {}
        self.refused = ""  # why the newest candidate was refused
        self.own = Published()
        self._unwritten = False
        self._seen: dict[int, int] = {}  # poster -> index of the status that was looked at
        if self.path.exists():
            self._take(self.path.read_bytes())

    @property
    def version(self) -> int:
        return int(self.content.get("version", 0))

    def is_chosen(self, directory: Directory) -> bool:
        return directory.publisher.holder == self.id

    def on_applied(self, directory: Directory) -> bool:
        """Entries were taken: whether a newer directory was among them; it is durable then, or a
        OSError says that it could not be made so, and `write` is to be called again."""
        newer = False
        for poster, held in directory.documents.items():
            if self._seen.get(poster) == held.index:
                continue
            self._seen[poster] = held.index
            carried = _carried(held.value)
            if carried and self._take(carried):
                newer = self._unwritten = True
        self.write()
        return newer

    def write(self) -> None:
        """Make the newest one durable, if it is not."""
        if self._unwritten:
            write_durable(self.path, self.data)
            self._unwritten = False

    def is_due(self, directory: Directory) -> bool:
        """Whether we have to sign another one."""
        if not self.is_chosen(directory) or directory.index <= self.version:
            return False
        return is_outdated(self.content, directory.content(), directory.period[1])

    def sign(self, directory: Directory) -> Published:
        """The directory of this very index, for our next status."""
        data = sign_directory(
            self.node.signing_key, directory.content(), read_delegation(self.node)
        )
        self.own = Published(data, directory.index, int(time.time() * 1000))
        return self.own

    def told(self) -> SignedDirectory:
        """The newest one, valid or not."""
        content = self.content
        now_ms, expires = int(time.time() * 1000), int(content.get("expires", 0))
        return SignedDirectory(
            version=self.version,
            publisher=int(content.get("publisher", 0)),
            expires=expires,
            expired_ms=max(0, now_ms - expires) if content else 0,
            refused=self.refused,
            endpoints=list(_endpoints(content.get("endpoints"))),
            periods=EXPIRY_PERIODS,
        )

    def _take(self, data: bytes) -> bool:
        try:
            content = open_directory(
                data,
                cluster=FARM,
                offline=self.node.site.farm_key,
                version_least=self.version,
            )
        except DirectoryRefused as error:
            self.refused = error.reason
            return False
        if content["version"] == self.version:
            return False
        self.data, self.content = data, content
        return True


def _endpoints(rows: object) -> Iterator[DirectoryEndpoint]:
    """Those that are some: only who signed them has looked at each."""
    for row in rows if isinstance(rows, list) else []:
        with contextlib.suppress(FormatError):
            yield parse(DirectoryEndpoint, row)


def _carried(value: bytes) -> bytes:
    """The signed directory in a status; empty: there is none."""
    document = parse_document(value) or {}
    meta = document.get("meta")
    text = meta.get("lastPublishedLS") if isinstance(meta, dict) else None
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        return b""
