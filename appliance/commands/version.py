"""`tigerchat version`: what this executable is, what is in it, and whether it runs here."""

import importlib
import platform
from collections.abc import Iterator

import click

from appliance import VERSION
from appliance.base.errors import ConfigurationError
from appliance.drivers.host import natives, resources
from appliance.node.catalogue import ROLES


def _verbs(ctx: click.Context) -> Iterator[object]:
    """Each is imported when its name is asked for."""
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    return (root.command.get_command(root, verb) for verb in root.command.list_commands(root))


def _roles() -> Iterator[object]:
    return (importlib.import_module(row.module) for row in ROLES)


def _imported(what: str, modules: Iterator[object]) -> natives.Result:
    """What no import statement names: a program may have been made without it."""
    try:
        return what, True, f"{sum(1 for _ in modules)} are imported"
    except ImportError as error:
        return what, False, f"{type(error).__name__}: {error}"


@click.command("version")
@click.option("--sbom", is_flag=True, help="Print the bill of materials of a frozen program.")
@click.option("--selftest", is_flag=True, help="Load all parts; run the native ones.")
@click.pass_context
def command(ctx: click.Context, sbom: bool, selftest: bool) -> None:
    """Print the version of this program and of the Python in it."""
    if sbom:
        stored = resources.release_file(resources.SBOM_FILE)
        if stored is None:
            raise ConfigurationError(
                "this program runs from source: its parts are what packaging/locks/node.txt names; "
                "`make executable` makes one that carries its bill of materials"
            )
        click.echo(stored.decode(), nl=False)
        return
    build = resources.build()
    origin = "frozen" if build.frozen else "from source"
    commit = f", commit {build.commit}" if build.commit else ""
    click.echo(f"tigerchat {VERSION} ({origin}, Python {platform.python_version()}{commit})")
    if selftest:
        results = [
            *natives.run_each(),
            _imported("verbs", _verbs(ctx)),
            _imported("roles", _roles()),
        ]
        for name, works, told in results:
            click.echo(f"{'ok  ' if works else 'FAIL'}  {name:16} {told}")
        ctx.exit(0 if all(works for _, works, _ in results) else 1)
