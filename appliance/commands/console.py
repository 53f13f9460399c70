"""`tigerchat console`: the console on a terminal, or as plain text for serial lines and screen
readers. `--locked`, as on the machine's own screen, offers nothing but reading until somebody signs
in as on the page.
"""

import asyncio
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click
import psutil

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import one_line
from appliance.cores.console.about import About
from appliance.cores.console.acts import BY_NAME, untyped
from appliance.cores.console.cells import BAD
from appliance.cores.console.console import Console
from appliance.cores.console.model import told
from appliance.cores.console.small_screen import (
    Line,
    alarm_lines,
    log_lines,
    member_lines,
    network_lines,
    overview_lines,
    text_of,
)
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import KnownNode
from appliance.drivers.network.ask import status_of
from appliance.drivers.terminal.options import LOCAL_DEFAULT, node_options_saying
from appliance.formats.site import SITE_FILE, load_site
from appliance.formats.status.console import SEEN, ConsoleStatus
from appliance.node.acting import act_site_of
from appliance.node.catalogue import ROLES
from appliance.node.log_tail import log_tail
from appliance.node.node_acts import CARRY_OUT
from appliance.roles.console.screen.app import ConsoleScreen
from appliance.roles.console.screen.asking import alarms_of, asked, carried_out
from appliance.roles.console.screen.port import Ended
from appliance.roles.console.watch import watch_of_node, watch_of_site
from appliance.roles.operator.noting import user

RATE_S = 0.5  # between the two polls that a rate needs
LOG_LINES = 200
ACTS_SHOWN = 8  # of operators, the newest
NO_CONSOLE_ACTS = "the console of this node, which does this, does not answer; in a terminal:"
NO_CONSOLE = (
    "the console of this node does not answer, and nobody else knows its secret: log in to the "
    "machine, and act by `tigerchat node`"
)
NO_LOG = (
    "No line of this node stands in the journal that this user may read. Under systemd: "
    "`journalctl -u tigerchat`; else whatever started it shows its output."
)


@click.command("console")
@node_options_saying(site="All nodes of the local site in DIR", node="The node in F.")
@click.option("--locked", is_flag=True, help="Acts only for who types the console's secret.")
@click.option("--plain", is_flag=True, help="Text without any colour, once; no keys.")
@click.option(
    "--watch", "every_s", type=click.IntRange(1), metavar="SECONDS", help="With --plain: again."
)
@click.pass_context
def command(
    ctx: click.Context, local: Path | None, node_folder: Path | None, locked: bool, plain: bool,
    every_s: int | None,
) -> None:  # fmt: skip
    """Show a node or local site on a screen of 80 columns and 24 lines, and act on it.

    With --plain exit code 1 while people notice something, as `tigerchat status`.
    """
    if every_s is not None and not plain:
        raise click.UsageError("--watch goes with --plain: the screen shows all anew each second")
    site = ScreenSite(local, node_folder, locked=locked)
    if plain:
        ctx.exit(_print(site, every_s))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("this is no terminal: say --plain for text")
    screen = ConsoleScreen(site)
    screen.run(mouse=False)
    ctx.exit(screen.return_code or 0)


def _print(site: "ScreenSite", every_s: int | None) -> int:
    """Overview, alarms and members; the exit code."""
    site.watch.poll()
    time.sleep(RATE_S)
    while True:
        began_s = time.monotonic()
        site.watch.poll()
        parts = {
            f"{site.name}: overview": overview_lines(site.console, site.start),
            "Alarms": alarm_lines(site.console),
            "Members": member_lines(site.console),
        }
        for title, lines in parts.items():
            click.echo(f"{one_line(title)}\n\n{text_of(lines)}\n")
        if every_s is None:
            return 1 if any(alarm.severity == BAD for alarm in site.console.alarms()) else 0
        sys.stdout.flush()
        time.sleep(max(0.0, began_s + every_s - time.monotonic()))


class ScreenSite:
    """A node, or the nodes of a local site, as the screen looks at them; see its `Port`."""

    def __init__(self, local: Path | None, node_folder: Path | None, *, locked: bool) -> None:
        self._is_local = node_folder is None
        self._folder = (node_folder or local or LOCAL_DEFAULT).absolute()
        site = load_site(self._folder / SITE_FILE)
        if node_folder is None:
            first = self._folder / site.nodes[0].name
            self.watch = watch_of_site(self._folder / SITE_FILE, first, site, ROLES)
        else:
            first = self._folder
            self.watch = watch_of_node(node_folder, ROLES, tell=lambda line: None)
        self._nodes = neighbours(first, site)
        self._locked, self._session = locked, ""
        self.watch.remember()

    @property
    def name(self) -> str:
        return "local site" if self._is_local else self._own.node.name

    @property
    def start(self) -> str:
        folder = shlex.quote(str(self._folder))
        if self._is_local:
            return f"`tigerchat start --local {folder}`"
        return f"`systemctl start tigerchat`, or `tigerchat start --node-folder {folder}`"

    @property
    def console(self) -> Console:
        return self.watch.console

    async def poll(self) -> None:
        await self.watch.poll_beside()

    @property
    def _own(self) -> KnownNode:
        """The node whose console knows the secret, and of which network facts are shown."""
        here = [node for node in self._nodes if node.path == self._folder]
        return (here or self._nodes)[0]

    def network(self) -> list[Line]:
        found = psutil.net_if_addrs()
        addresses = [
            (name, address.address)
            for name in sorted(found)
            for address in found[name]
            if address.family.name in ("AF_INET", "AF_INET6")
        ]
        return network_lines(self.console.view.site, self._own.settings, addresses)

    def log(self) -> list[Line]:
        acts = [
            act
            for _, status in told(self.watch.answers, ConsoleStatus)
            for act in status.operator_acts
        ]
        acts.sort(key=lambda act: act.at_ms)
        return log_lines(acts[-ACTS_SHOWN:], log_tail(LOG_LINES), NO_LOG)

    async def read_seen(self) -> None:
        node = await asyncio.to_thread(self._with_console)
        rows = [] if node is None else await asyncio.to_thread(alarms_of, node)
        for row in rows:
            if row["seen_by"] and not row["cleared_ms"]:
                self.console.life.see(row["name"], row["subject"], row["seen_by"], row["seen_ms"])

    # --- acts

    @property
    def is_locked(self) -> bool:
        return self._locked and not self._session

    def sign_in(self, secret: str) -> None:
        said = self._ask({"secret": secret})
        if type(said.get("session")) is not str:
            raise StorageError(str(said.get("error", NO_CONSOLE)))
        self._session = said["session"]

    def new_secret(self) -> str:
        if self._locked:
            raise StorageError("no secret is shown here: it is in the journal of the node")
        said = self._ask({"renew": True})
        if type(said.get("new_secret")) is not str:
            raise StorageError(NO_CONSOLE)
        return str(said["new_secret"])

    def lock(self) -> None:
        session, self._session = self._session, ""
        if session:
            self._ask({"leave": session})

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return asked(self._own, request)

    def carry_out(
        self,
        offer: dict[str, Any],
        typed: str,
        written: dict[str, str],
        enough: threading.Event,
    ) -> Ended:
        if self._locked and not self._ask({"session": self._session or ""}).get("signed_in"):
            self._session = ""
            raise StorageError("sign in first: nothing was changed")
        node = self._own if self._locked else self._with_console()
        if node is not None:
            who = {"session": self._session} if self._locked else {"who": user()}
            return carried_out(node, offer, typed, written, who, enough)
        if offer["act"] not in CARRY_OUT:
            raise StorageError(f"{NO_CONSOLE_ACTS} {offer['verb']}")
        about, site = About(**offer["about"]), load_site(self._folder / SITE_FILE)
        acted = act_site_of(
            self._folder, site, about.node, is_local=self._is_local, verb=offer["verb"]
        )
        if why := untyped(BY_NAME[offer["act"]], acted.seen(), about, typed):
            raise StorageError(why)
        CARRY_OUT[offer["act"]](acted, about)
        return Ended(SEEN)

    def _with_console(self) -> KnownNode | None:
        """A node whose console answers, its own if that does."""
        others = [node for node in self._nodes if node != self._own] if self._is_local else []
        for node in (self._own, *others):
            if status_of(ConsoleStatus, node.sockets, cluster=node.site.cluster) is not None:
                return node
        return None
