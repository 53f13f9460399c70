"""`tigerchat support`: one file for whoever helps, with nothing in it that is secret."""

import contextlib
import io
import os
import tarfile
import time
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError
from appliance.base.limits import MIB
from appliance.drivers.host.durable_file import unusable
from appliance.node.catalogue import ROLES
from appliance.node.support import bundle
from appliance.roles.console.watch import Watch, watch_of_node

RATE_S = 0.5  # between the two looks that a rate needs
_PATH = click.Path(path_type=Path)


@click.command("support")
@click.option(
    "--node-folder", "folder", type=_PATH, required=True, metavar="F", help="The folder of a node."
)
@click.option("--out", type=_PATH, metavar="FILE", help="Where to write; else tigerchat-NAME-TIME.")
def command(folder: Path, out: Path | None) -> None:
    """Write what is needed to find a fault of a node: versions, settings, status, alarms, machine,
    a day of the journal, superblocks and headers of the log.

    No key, token, message or name of a user is in it, and it has 50 MiB at most. Look into it
    before you give it away: it is a tar.gz of text.
    """
    watch = watch_of_node(folder, ROLES, tell=lambda line: click.echo(f"support: {line}", err=True))
    if out is None:
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        out = Path(f"tigerchat-{folder.absolute().name}-{moment}.tar.gz")
    try:
        fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(f"{out} is there already: name another file") from None
    except OSError as error:
        raise unusable(out, error) from error
    with contextlib.ExitStack() as unfinished:
        unfinished.callback(out.unlink)  # half of one helps nobody
        with open(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in bundle(folder, lambda: _status(watch)):
                click.echo(f"support: {name}, {len(text)} bytes", err=True)
                _add(archive, out.name.removesuffix(".tar.gz"), name, text)
        unfinished.pop_all()
    click.echo(f"support: {out}, {out.stat().st_size / MIB:.1f} MiB")


def _status(watch: Watch) -> dict[str, object]:
    """After two looks: a rate needs both."""
    watch.remember()
    watch.poll()
    time.sleep(RATE_S)
    watch.poll()
    return watch.console.plain()


def _add(archive: tarfile.TarFile, folder: str, name: str, text: bytes) -> None:
    entry = tarfile.TarInfo(f"{folder}/{name}")
    entry.size, entry.mode, entry.mtime = len(text), 0o600, int(time.time())
    archive.addfile(entry, io.BytesIO(text))
