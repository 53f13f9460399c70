"""`tigerchat start`: a site on this machine, one node, or one role of a node.

    start --local DIR          formats DIR if it is not; a process `start --node-folder` a node
    start --node-folder F      the supervisor of a node; a process `start ROLE` a role
    start ROLE                 one role, in this process: a verb for each row of `node/catalogue`

Every process asks the kernel to end it with the one that started it, so nothing is left behind.
"""

from pathlib import Path
from typing import Any

import click

from appliance.base.errors import ConfigurationError
from appliance.base.limits import MEMBERS_MAX, REPLICAS_MAX
from appliance.drivers.host.node_folder import open_node
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.host.process import die_with_parent
from appliance.node.catalogue import ROLES, RoleRow

_FOLDER = click.Path(path_type=Path)


@click.group("start", invoke_without_command=True)
@click.option("--local", type=_FOLDER, metavar="DIR", help="All nodes of the local site in DIR.")
@click.option("--nodes", type=click.IntRange(1, REPLICAS_MAX), help="With --local; 3 if new.")
@click.option(
    "--standbys", type=click.IntRange(0, MEMBERS_MAX - 1), help="With --local; none if new."
)
@click.option("--shards", type=click.IntRange(1), help="With --local; 1 if new.")
@click.option("--ports", type=click.IntRange(1, 65535), help="First port of a local site; 7400.")
@click.option("--node-folder", type=_FOLDER, metavar="F", help="The node in F.")
@click.option("--one-process", is_flag=True, help="All roles of a node in one process.")
@click.option("--quiet", is_flag=True, help="Say only what goes wrong.")
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse a machine that differs from its profile, or does not let us tune it.",
)
@click.option(
    "--profile",
    metavar="NAME",
    help="With --node-folder: compare the machine with this profile, not with its model's.",
)
@click.option("--unpinned", is_flag=True, hidden=True)
@click.option("--brief", is_flag=True, hidden=True)  # for a new site, as that of `format`
@click.pass_context
def command(
    ctx: click.Context,
    local: Path | None,
    nodes: int | None,
    standbys: int | None,
    shards: int | None,
    ports: int | None,
    node_folder: Path | None,
    one_process: bool,
    quiet: bool,
    strict: bool,
    profile: str | None,
    unpinned: bool,
    brief: bool,
) -> None:
    """Run a site on this machine, a node, or one role of a node."""
    if ctx.invoked_subcommand is not None:
        return
    if (local is None) == (node_folder is None):
        raise click.UsageError("say --local DIR, --node-folder F, or a role")
    if strict and (local is not None or one_process):
        raise click.UsageError("--strict is for a node on a machine of its own: say --node-folder")
    die_with_parent()
    # Imported here: a role needs neither, and each of a node's processes comes by this way.
    if local is not None:
        from appliance.node.local_site import start_local

        ctx.exit(
            start_local(
                local.absolute(),
                nodes=nodes,
                standbys=standbys,
                shards=shards,
                ports=ports,
                one_process=one_process,
                brief=brief,
            )
        )
    assert node_folder is not None
    from appliance.node.start import NodeStart

    work_as_owner(node_folder)
    start = NodeStart(
        node_folder.absolute(), quiet=quiet, pinned=not unpinned, strict=strict, profile=profile
    )
    ctx.exit(start.run(one_process=one_process))


# --- one role -------------------------------------------------------------------------------------


def _verb(row: RoleRow) -> click.Command:
    """`start ROLE`, which runs one instance of a role in this process."""

    def run(node_folder: Path, number: int = 0) -> None:
        die_with_parent()
        if row.option_is_required:
            _check_number(row, node_folder, number)
        click.get_current_context().exit(row.run(node_folder, number))

    parameters: list[click.Parameter] = [
        click.Option(["--node-folder"], type=_FOLDER, required=True, metavar="F")
    ]
    if row.option is not None:
        default: dict[str, Any] = {} if row.option_is_required else {"default": row.option_default}
        parameters.append(
            click.Option(
                [f"--{row.option}", "number"],
                type=click.IntRange(0),
                required=row.option_is_required,
                metavar=row.option[0].upper(),
                **default,
            )
        )
    return click.Command(row.name, callback=run, params=parameters, help=row.summary)


def _check_number(row: RoleRow, node_folder: Path, number: int) -> None:
    held = list(row.instances(open_node(node_folder)))
    if number not in held:
        raise ConfigurationError(
            f"--{row.option} is {number}; allowed: {', '.join(map(str, held))}, the "
            f"{row.option}s of {node_folder.absolute()}"
        )


for _row in ROLES:
    command.add_command(_verb(_row))
