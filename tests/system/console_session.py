"""The console of a node as a signed-in operator sees it."""

import json
import re
import ssl
import urllib.request
from typing import Any

from tests.patience import HUNG_S
from tests.system.local_site import LocalSite, wait_until


def secret_of(site: LocalSite, node: int) -> str:
    """The one-time secret that the node's console printed last: a site serves before its consoles
    have said theirs."""
    port = site.site.nodes[node].console_port
    log = site.folder.parent / f"{site.folder.name}.log"
    secrets: list[str] = []

    def printed() -> bool:
        said = log.read_text(errors="replace")
        secrets[:] = re.findall(rf":{port}/console\s+one-time secret: (\S+)", said)
        return secrets != []

    wait_until(printed, HUNG_S, f"a secret of the console is in {log.name}")
    return secrets[-1]


class ConsoleSession:
    """Of one node. The operator signs in once: each secret opens one session, and the next one is
    printed in its own time."""

    def __init__(self, site: LocalSite, node: int) -> None:
        port = site.site.nodes[node].console_port
        self.address = f"https://127.0.0.1:{port}/console"
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        enter = urllib.request.Request(
            f"{self.address}/sign-in",
            data=json.dumps({"secret": secret_of(site, node)}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(enter, context=self._tls, timeout=HUNG_S) as answer:
            self._cookie = answer.headers["set-cookie"].split(";")[0]

    def shown(self) -> dict[str, Any]:
        """All that the page is told, as of a poll a second ago."""
        wanted = urllib.request.Request(f"{self.address}/status", headers={"cookie": self._cookie})
        with urllib.request.urlopen(wanted, context=self._tls, timeout=HUNG_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def begin(self, offer: dict[str, Any]) -> int:
        """An act as it was offered, with what is typed for it; its number in the list."""
        asked = {"act": offer["act"], "about": offer["about"], "typed": offer["typed"]}
        wanted = urllib.request.Request(
            f"{self.address}/acts",
            data=json.dumps(asked).encode(),
            headers={"cookie": self._cookie, "content-type": "application/json"},
        )
        with urllib.request.urlopen(wanted, context=self._tls, timeout=HUNG_S) as answer:
            return int(json.load(answer)["number"])
