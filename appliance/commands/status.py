"""`tigerchat status`: the console's tables in the terminal, or its figures as JSON."""

import sys
import time
from pathlib import Path

import click

from appliance.base.printable import json_line, one_line
from appliance.cores.console.cells import BAD, FAINT, GOOD, WARN, lines
from appliance.drivers.terminal.options import LOCAL_DEFAULT, node_options_saying
from appliance.drivers.terminal.way_out import CLEAR, bare
from appliance.formats.site import SITE_FILE, load_site
from appliance.node.catalogue import ROLES
from appliance.roles.console.watch import POLL_S, Watch, watch_of_node, watch_of_site

RATE_S = 0.5  # between the two looks that a rate needs
COLOURS = {GOOD: "green", WARN: "yellow", BAD: "red", FAINT: "bright_black"}


@click.command("status")
@node_options_saying(site="All nodes of the local site in DIR", node="The node in F alone.")
@click.option("--json", "as_json", is_flag=True, help="Figures for programs, one object a look.")
@click.option("--watch", "again", is_flag=True, help="Look again each second, until Ctrl-C.")
@click.pass_context
def command(
    ctx: click.Context, local: Path | None, node_folder: Path | None, as_json: bool, again: bool
) -> None:
    """Show how the replicas and edges of a site or node are, and what is wrong.

    Exit code 0: no alarms, or only such as pass by themselves; 1: people notice something.
    """
    watch = (
        watch_of_node(node_folder, ROLES, tell=_warn)
        if node_folder is not None
        else _watch_site(local if local is not None else Path(LOCAL_DEFAULT))
    )
    watch.remember()
    watch.poll()
    while True:
        time.sleep(POLL_S if again else RATE_S)
        watch.poll()
        if as_json:
            click.echo(json_line(watch.console.plain()))
        else:
            _show(watch, clear=again)
        if not again:
            break
    ctx.exit(1 if any(alarm.severity == BAD for alarm in watch.console.alarms()) else 0)


def _watch_site(folder: Path) -> Watch:
    """Every node whose folder lies in `folder`."""
    site = load_site(folder / SITE_FILE)
    first = folder.absolute() / site.nodes[0].name
    return watch_of_site(folder / SITE_FILE, first, site, ROLES, tell=_warn)


def _warn(line: str) -> None:
    click.echo(f"status: {line}", err=True)


def _paint(text: str, tone: str) -> str:
    shown = one_line(text)
    return click.style(shown, fg=COLOURS[tone]) if tone in COLOURS else shown


def _show(watch: Watch, *, clear: bool) -> None:
    if clear and sys.stdout.isatty():
        click.echo(CLEAR, file=bare(sys.stdout), nl=False)
    blocks = ["\n".join(lines(table, _paint)) for table in watch.console.tables()]
    shown = "\n\n".join(block for block in blocks if block)  # without colours where no terminal is
    click.echo(shown, file=bare(sys.stdout))
    if clear:
        click.echo()
