"""The farm's directory as a command goes by it: verified, and nodes chosen by their weight."""

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from appliance.base.errors import ConfigurationError, DirectoryRefused
from appliance.base.limits import FARM_DIRECTORY_SIZE_MAX
from appliance.cores.directory.signed import open_directory
from appliance.drivers.chat.access import Access
from appliance.drivers.chat.endpoint import Endpoint
from appliance.drivers.host.node_folder import FARM_DIRECTORY_FILE
from appliance.formats.site import FARM

_KEY_SIZE = 32


class DirectoryGuide:
    """A `Guide` of the chat client. `content`: of the newest directory that fits, or nothing."""

    def __init__(
        self,
        key: bytes,
        endpoint_of: Callable[[str], Endpoint | None],
        tell: Callable[[str], None],
    ) -> None:
        """`key`: the site's offline key; `tell` hears, in words, why a directory is refused."""
        self.content: dict[str, Any] = {}
        self._key, self._endpoint_of, self._tell = key, endpoint_of, tell
        self._chance = random.Random()

    def take(self, signed: bytes) -> bool:
        """Whether these bytes are a directory to go by, newer than what was known."""
        if not signed:
            return False
        version = int(self.content.get("version", 0))
        try:
            content = open_directory(signed, cluster=FARM, offline=self._key, version_least=version)
        except DirectoryRefused as error:
            self._tell(f"a node's directory does not fit ({error.reason}): {error}")
            return False
        newer = int(content["version"]) > version
        self.content = content
        return newer

    def begin(self, kept: Iterable[bytes]) -> None:
        """With the newest of these directories that fits, before a node has handed out one."""
        for signed in kept:
            version = int(self.content.get("version", 0))
            with contextlib.suppress(DirectoryRefused):  # nobody has said it: nobody is told
                self.content = open_directory(
                    signed, cluster=FARM, offline=self._key, version_least=version
                )

    def order(self, known: Sequence[Endpoint]) -> list[Endpoint]:
        """All nodes, each once, by chance and weight; behind them those that it does not list,
        without those that have left. Once it has expired these come last: they may be back."""
        if not self.content:
            return []
        weights = {
            endpoint["address"]: int(endpoint["weight"])
            for endpoint in self.content["endpoints"]
            if endpoint["address"]
        }
        by_url = {endpoint.url: endpoint for endpoint in known}
        # each waits for a time drawn at a rate of its weight: the order in which they come
        drawn = sorted(weights, key=lambda url: self._chance.expovariate(weights[url]))
        listed = [by_url.get(url) or self._endpoint_of(url) for url in drawn]
        left = {url for row in self.content.get("left", ()) for url in row["addresses"]}
        order = [endpoint for endpoint in listed if endpoint is not None]
        order += [e for url, e in by_url.items() if url not in weights and url not in left]
        if not order or int(time.time() * 1000) > int(self.content["expires"]):
            order += [e for url, e in by_url.items() if url not in weights and url in left]
        return order


def guide_of(access: Access, key: str | None, tell: Callable[[str], None]) -> DirectoryGuide | None:
    """None: the site's key is not known, so nothing that a node says of others is believed.

    `key`: of the site's farm in hex; None: as the site file of a local site has it.
    ConfigurationError when it is none.
    """
    raw = access.farm_key
    if key is not None:
        try:
            raw = bytes.fromhex(key)
        except ValueError:
            raw = b""
        if len(raw) != _KEY_SIZE:
            raise ConfigurationError("--farm-key: allowed: 64 hexadecimal digits, as in site.toml")
    if not raw:
        return None
    guide = DirectoryGuide(raw, access.endpoint_of, tell)
    if access.folder is not None:
        guide.begin(kept_in(access.folder))
    return guide


def kept_in(folder: Path) -> Iterator[bytes]:
    """The directories of a node, or of the nodes of a local site, that lie in its folder."""
    for path in (folder / FARM_DIRECTORY_FILE, *sorted(folder.glob(f"*/{FARM_DIRECTORY_FILE}"))):
        with contextlib.suppress(OSError), path.open("rb") as file:
            yield file.read(FARM_DIRECTORY_SIZE_MAX + 1)
