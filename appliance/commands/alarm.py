"""`tigerchat alarm`: the alarms of a day, as a console of this machine knows them, and that one was
seen."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from appliance.base.errors import StorageError
from appliance.base.printable import json_line, one_line
from appliance.cores.console.about import About
from appliance.drivers.host.neighbours import neighbours
from appliance.drivers.host.node_folder import KnownNode
from appliance.drivers.network.ask import ask_status
from appliance.drivers.terminal.options import LOCAL_DEFAULT, node_options
from appliance.formats.site import SITE_FILE, load_site
from appliance.formats.status.console import ConsoleStatus
from appliance.node.acting import ActSite
from appliance.roles.operator.noting import user

ANSWER_S = 5.0  # for a console that is there and busy
NO_CONSOLE = "no console of this machine answers: start the node"


@click.group("alarm")
def command() -> None:
    """List the alarms of a day; say that one was seen."""


@command.command("list")
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(local: Path | None, node_folder: Path | None, as_json: bool) -> None:
    """What holds, then what is over, the newest first: raised, cleared, seen by whom."""
    _, nodes = _nodes(local, node_folder)
    said = _ask(nodes, {"alarms": "day"})[0]
    for row in said["alarms"]:
        click.echo(json_line(row) if as_json else one_line(_line(row)))


@command.command("seen")
@click.argument("name")
@click.option("--of", "subject", required=True, metavar="SUBJECT", help="As `alarm list` has it.")
@node_options
def seen(name: str, subject: str, local: Path | None, node_folder: Path | None) -> None:
    """Say that the alarm NAME was seen: pages show by whom. It goes on until it clears itself."""
    site, nodes = _nodes(local, node_folder)
    answers = _ask(nodes, {"seen": [name, subject, user()]})
    if not any(answer.get("seen") for answer in answers):
        raise StorageError(str(answers[0].get("error", NO_CONSOLE)))
    site.record("alarm-seen", About(), f"alarm-seen {name} {subject}")
    click.echo(f"alarm: {one_line(name)} of {one_line(subject)} is seen")


def _nodes(local: Path | None, node_folder: Path | None) -> tuple[ActSite, list[KnownNode]]:
    if node_folder is not None:
        folder = node_folder.absolute()
        site = load_site(folder / SITE_FILE)
        found = [node for node in neighbours(folder, site) if node.path == folder]
        return ActSite(folder, folder, site), found
    folder = (local or Path(LOCAL_DEFAULT)).absolute()
    site = load_site(folder / SITE_FILE)
    first = folder / site.nodes[0].name
    return ActSite(folder, first, site), neighbours(first, site)


def _ask(nodes: list[KnownNode], wish: dict[str, Any]) -> list[dict[str, Any]]:
    """What each console says; StorageError where none answers."""
    kind = ConsoleStatus.socket_kind()
    said = [
        ask_status(
            node.sockets, cluster=node.site.cluster, shard=0, kind=kind, timeout_s=ANSWER_S,
            wish=wish,
        )
        for node in nodes
    ]  # fmt: skip
    found = [answer for answer in said if answer is not None]
    if not found:
        raise StorageError(NO_CONSOLE)
    return found


def _line(row: dict[str, Any]) -> str:
    over = f"until {_moment(row['cleared_ms'])}" if row["cleared_ms"] else "holds"
    who = f"  (seen by {row['seen_by']})" if row["seen_by"] else ""
    return (
        f"{_moment(row['raised_ms'])}  {over}  {row['severity']} {row['name']}  {row['subject']}  "
        f"{row['text']}{who}"
    )


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
