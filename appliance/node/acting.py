"""What verbs share that do what the console's page does: they judge by the same table, refuse with
the same sentence, and have what was done written into the same audit."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import click

from appliance.base.errors import StorageError
from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.acts import BY_NAME, about_names, in_words, refusal
from appliance.cores.console.model import SiteSnapshot
from appliance.cores.console.stakes import LEVEL_FIRST, is_unsettled
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.terminal.waiting import Waiting
from appliance.formats.site import SITE_FILE, Site
from appliance.node.catalogue import ROLES
from appliance.roles.console.watch import PROBE_S, watch_of_site
from appliance.roles.operator.noting import note

READY_S = 60.0  # for a member to come close enough to the others
SETTLES_S = 5.0  # for a group to choose who leads, on a machine with much to do
AGAIN_S = 0.5


class ActSite:
    """A site as a verb finds it: `path` is a node's folder, which may be gone; its site file lies
    in `folder`. `group`: that of the verb, which says so when it waits. `verb`: by which the same
    is done in a terminal, where that is not this command."""

    def __init__(
        self, folder: Path, path: Path, site: Site, group: str = "node", verb: str = ""
    ) -> None:
        self.folder, self.path, self.site, self._group = folder, path, site, group
        self._verb = verb
        self._watch = watch_of_site(folder / SITE_FILE, path, site, ROLES, patience_s=PROBE_S)

    def seen(self) -> SiteSnapshot:
        """How all is now. Answers within a second, also when processes are dead or stand still:
        those do not serve."""
        asyncio.run(self._watch.poll_beside())
        return self._watch.console.seen()

    def refuse(self, act: str, about: About, hint: str = "", *, level_s: float = 0.0) -> None:
        """StorageError with the table's sentence, and a `hint` behind it, if the act is refused.
        Who only lags is waited for, at most for `level_s`."""
        self.refuse_for(lambda seen: refusal(act, seen, about), hint, level_s=level_s)

    def refuse_for(
        self, rule: Callable[[SiteSnapshot], str], hint: str = "", *, level_s: float = 0.0
    ) -> None:
        """As `refuse`, by a rule of stakes. A group that is about to choose who leads, as it does
        after each change of its members, is looked at again before it counts as one that lacks
        replicas."""
        begin = time.monotonic()
        with Waiting(self._group) as waiting:
            while why := rule(seen := self.seen()):
                if why.endswith(LEVEL_FIRST):
                    patience_s = level_s
                else:
                    patience_s = SETTLES_S if is_unsettled(seen) else 0.0
                if time.monotonic() - begin >= patience_s:
                    raise StorageError(why + hint)
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
        if why := note(nodes, act, words, names, verb=self._verb):
            click.echo(f"tigerchat: {act} is done, and stands in no audit: {why}", err=True)


def act_site_of(folder: Path, site: Site, index: int, *, is_local: bool, verb: str = "") -> ActSite:
    """To act on the node of this number in the site file: of a local site in `folder`, or, where
    that is a node's own folder, the one whose folder lies beside it. `verb` as for `ActSite`."""
    if is_local:
        return ActSite(folder, folder / site.nodes[index].name, site, verb=verb)
    for node in neighbours(folder, site):
        if node.index == index:
            return ActSite(folder, node.path, site, verb=verb)
    return ActSite(folder, folder, site, verb=verb)
