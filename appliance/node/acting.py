"""What verbs share that do what the console's page does: they judge by the same table, refuse with
the same sentence, and have what was done written into the same audit."""

import asyncio
import time
from pathlib import Path

import click

from appliance.base.errors import StorageError
from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.acts import BY_NAME, about_names, in_words, refusal
from appliance.cores.console.model import SiteSnapshot
from appliance.cores.console.stakes import LEVEL_FIRST
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.terminal.waiting import Waiting
from appliance.formats.site import SITE_FILE, Site
from appliance.node.catalogue import ROLES
from appliance.roles.console.watch import PROBE_S, watch_of_site
from appliance.roles.operator.noting import note

READY_S = 60.0  # for a member to come close enough to the others
AGAIN_S = 0.5


class ActSite:
    """A site as a verb finds it: `path` is a node's folder, which may be gone; its site file lies
    in `folder`."""

    def __init__(self, folder: Path, path: Path, site: Site) -> None:
        self.folder, self.path, self.site = folder, path, site
        self._watch = watch_of_site(folder / SITE_FILE, path, site, ROLES, patience_s=PROBE_S)

    def seen(self) -> SiteSnapshot:
        """How all is now. Answers within a second, also when processes are dead or stand still:
        those do not serve."""
        asyncio.run(self._watch.poll_beside())
        return self._watch.console.seen()

    def refuse(self, act: str, about: About, hint: str = "") -> None:
        """StorageError with the table's sentence, and a `hint` behind it, if the act is refused."""
        if why := refusal(act, self.seen(), about):
            raise StorageError(why + hint)

    def refuse_once_level(self, act: str, about: About, verb: str) -> None:
        """As `refuse`, but who only lags is waited for."""
        deadline = time.monotonic() + READY_S
        with Waiting(verb) as waiting:
            while why := refusal(act, self.seen(), about):
                if not why.endswith(LEVEL_FIRST) or time.monotonic() > deadline:
                    raise StorageError(why)
                waiting.on(why)
                time.sleep(AGAIN_S)

    def is_so(self, act: str, about: About) -> bool:
        """Whether what the act brings about is there already."""
        snapshot = self.seen()
        return BY_NAME[act].seen(snapshot, about, snapshot)

    def record(self, act: str, about: About, what: str = "") -> None:
        """Have it written that the act was done; said where that is not certain."""
        names = about_names(self.site, about)
        words = what or f"{act} {in_words(self.site, about)}"
        nodes = neighbours(self.path, self.site)
        nodes.sort(key=lambda node: about.node not in (NOBODY, node.index))
        if why := note(nodes, act, words, names):
            click.echo(f"tigerchat: {act} is done, and stands in no audit: {why}", err=True)
