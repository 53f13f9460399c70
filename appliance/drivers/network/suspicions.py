"""Messages that look as if their sender lied: counted by peer, logged by its name, and told as long
as they are fresh. So are peers whose messages nobody here can read, as they are of another version.

A peer's bytes come over TLS, so a wrong signature, a nonce seen before, another site's name or a
view that cannot be is a bug, a stolen key or somebody who tries.
"""

import logging
from collections import Counter
from collections.abc import Mapping

from appliance.formats.envelope import VERSION

FRESH_NS = 60_000_000_000  # after the last one it is no alarm any more


class Suspicions:
    """Of one replica, about the nodes of its site, by their names."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._frames: dict[str, Counter[str]] = {}  # by the check of the frame that failed
        self._messages: dict[str, Counter[str]] = {}  # by the reason of the core
        self._seen: dict[str, Counter[str]] = {}  # as of the last look
        self._fresh: dict[str, int] = {}  # when the last look found more
        self._versions: dict[str, tuple[int, int]] = {}  # of peers: another one, when it came last

    def of_frames(self, name: str) -> Counter[str]:
        """What the checks of connections with that node count."""
        return self._frames.setdefault(name, Counter())

    def of_messages(self, name: str, reasons: Mapping[str, int]) -> None:
        """What the core has counted of that node so far."""
        self._messages[name] = Counter(reasons)

    def of_version(self, name: str, version: int, now_ns: int) -> None:
        """That node was turned away for the version that it speaks."""
        if name not in self._versions or self._versions[name][0] != version:
            self._log.error("%s %s", name, _speaks(version))
        self._versions[name] = version, now_ns

    def scan(self, now_ns: int) -> None:
        """Once a second: say what is new, and forget what is over."""
        for name in self._frames.keys() | self._messages.keys():
            total = self._frames.get(name, Counter()) + self._messages.get(name, Counter())
            more = total - self._seen.get(name, Counter())
            if more:
                told = ", ".join(f"{reason} {count}" for reason, count in sorted(more.items()))
                self._log.error("%s sends what no honest peer sends: %s", name, told)
                self._fresh[name] = now_ns
            self._seen[name] = total
        self._versions = {
            name: (version, since)
            for name, (version, since) in self._versions.items()
            if now_ns - since < FRESH_NS
        }
        self._fresh = {
            name: since for name, since in self._fresh.items() if now_ns - since < FRESH_NS
        }

    def recent(self) -> dict[str, dict[str, int]]:
        """Counts since the start, of those nodes only that did it lately."""
        return {name: dict(self._seen[name]) for name in sorted(self._fresh)}

    def versions(self) -> dict[str, str]:
        """Who was turned away for its version lately, and why."""
        return {name: _speaks(version) for name, (version, _) in sorted(self._versions.items())}


def _speaks(version: int) -> str:
    """The sentence about a node that speaks another version."""
    older = "its program is too old" if version < VERSION else "the program here is too old"
    return (
        f"speaks version {version} of the protocol between nodes, and this node speaks {VERSION}: "
        f"{older} to work with the other; upgrade it"
    )
