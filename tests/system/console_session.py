"""The console of a node as a signed-in operator sees it."""

import json
import re
import ssl
import urllib.request
from typing import Any

from tests.patience import HUNG_S
from tests.system.local_site import LocalSite, wait_until


class ConsoleSession:
    """Of one node. The operator signs in once: each secret opens one session, and the next one is
    printed in its own time."""

    def __init__(self, site: LocalSite, node: int) -> None:
        port = site.site.nodes[node].console_port
        self._base = f"https://127.0.0.1:{port}/console"
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        log = site.folder.parent / f"{site.folder.name}.log"
        secrets: list[str] = []

        def printed() -> bool:
            """A site serves before its consoles have said theirs: so does the log."""
            said = log.read_text(errors="replace")
            secrets[:] = re.findall(rf":{port}/console\s+one-time secret: (\S+)", said)
            return secrets != []

        wait_until(printed, HUNG_S, f"a secret of the console is in {log.name}")
        enter = urllib.request.Request(
            f"{self._base}/sign-in",
            data=json.dumps({"secret": secrets[-1]}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(enter, context=self._tls, timeout=HUNG_S) as answer:
            self._cookie = answer.headers["set-cookie"].split(";")[0]

    def shown(self) -> dict[str, Any]:
        """All that the page is told, as of a poll a second ago."""
        wanted = urllib.request.Request(f"{self._base}/status", headers={"cookie": self._cookie})
        with urllib.request.urlopen(wanted, context=self._tls, timeout=HUNG_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
