"""`tigerchat update`: signed updates, tried and kept or left by themselves.

pack TREE BUNDLE       sign a program's folder (whoever releases)
begin-with TREE        make the slots of a machine
stage BUNDLE           check an update and put it into the free slot
fits                   called by `stage`, of the program in the update: what it takes
on-start, on-ready     called by the unit: count a try, keep what was ready
status                 what runs, what is on trial
"""

import hashlib
import platform
import tarfile
import tempfile
from dataclasses import asdict
from pathlib import Path

import click
from click.core import ParameterSource

from appliance import VERSION
from appliance.base.errors import ConfigurationError
from appliance.base.limits import MIB
from appliance.base.printable import json_line
from appliance.base.signature import SigningKey
from appliance.drivers.host.node_folder import FORMATTED_FILE, read_seed
from appliance.drivers.host.node_user import work_as_owner
from appliance.drivers.host.slots import PROGRAM, TRIES, SlotFolder
from appliance.formats.update_bundle import Manifest, encode_head
from appliance.formats.volume_level import VOLUME_LEVEL

_FILE = click.Path(path_type=Path)
SLOTS_DEFAULT = Path("/var/lib/tigerchat/slots")
NODE_DEFAULT = Path("/var/lib/tigerchat/node")  # as the units have it
_slots = click.option(
    "--slots", type=_FILE, default=SLOTS_DEFAULT, show_default=True, metavar="DIR"
)
_counter = click.option(
    "--counter",
    type=click.IntRange(1),
    required=True,
    help="Number of the release; a machine takes none that is not above its own.",
)


@click.group("update")
def command() -> None:
    """Update the program of a machine from signed bundles."""


@command.command("pack")
@click.argument("tree", type=_FILE)
@click.argument("bundle", type=_FILE)
@click.option(
    "--key", type=_FILE, required=True, help="File of the seed that signs: 64 hex digits."
)
@_counter
@click.option(
    "--counter-least",
    type=click.IntRange(0),
    default=0,
    help="Release that must run before it; without this any may.",
)
@click.option("--release", default=VERSION, show_default=True, help="Version of the program in it.")
def pack(
    tree: Path, bundle: Path, key: Path, counter: int, counter_least: int, release: str
) -> None:
    """Sign the program's folder TREE as an update."""
    if not (tree / PROGRAM).is_file():
        raise ConfigurationError(f"{tree} holds no {PROGRAM}: name the folder that was frozen")
    if counter_least >= counter:
        raise ConfigurationError(
            f"--counter-least is {counter_least}; allowed: below --counter, which is {counter}: no "
            "machine could take it"
        )
    signing = SigningKey(read_seed(key))
    with tempfile.TemporaryFile(dir=bundle.absolute().parent) as payload:
        with tarfile.open(fileobj=payload, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(tree, ".", filter=_nobodys)
        size = payload.tell()
        payload.seek(0)
        digest = hashlib.file_digest(payload, "sha256").hexdigest()
        arch = platform.machine()
        manifest = Manifest(release, counter, arch, size, digest, counter_least)
        payload.seek(0)
        with bundle.open("wb") as file:
            file.write(encode_head(manifest, signing))
            while piece := payload.read(MIB):
                file.write(piece)
    click.echo(f"update: {bundle}: {release}, release {counter}, key {signing.public.hex()}")


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same bytes whoever packs them."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


@command.command("begin-with")
@click.argument("tree", type=_FILE)
@click.option("--key", required=True, metavar="HEX", help="Public key that signs updates.")
@_counter
@_slots
def begin_with(tree: Path, key: str, counter: int, slots: Path) -> None:
    """Make the slots of this machine: a copy of TREE runs, updates go beside it."""
    work_as_owner(slots)
    try:
        SlotFolder.make(slots, tree, VERSION, counter, key)
    except ValueError as error:
        raise ConfigurationError(f"--key {key}: allowed: 64 hexadecimal digits") from error
    click.echo(f"update: {slots} holds {VERSION}, release {counter}")


@command.command("stage")
@click.argument("bundle", type=_FILE)
@_slots
@click.option(
    "--node-folder",
    type=_FILE,
    default=NODE_DEFAULT,
    show_default=True,
    metavar="F",
    help="The node that the update must take.",
)
@click.option(
    "--no-way-back",
    is_flag=True,
    help="Take an update that writes into volumes what the program of now does not know.",
)
@click.pass_context
def stage(
    ctx: click.Context, bundle: Path, slots: Path, node_folder: Path, no_way_back: bool
) -> None:
    """Check an update and put it into the free slot; it is tried at the next start of the node.

    One that is not signed, older than what runs, damaged, whose program does not run here or would
    not take what lies in the node's folder, or behind which there is no way back, is refused, and
    nothing is changed.
    """
    work_as_owner(slots)
    is_there = (node_folder / FORMATTED_FILE).exists()
    named = ctx.get_parameter_source("node_folder") is not ParameterSource.DEFAULT
    if named and not is_there:
        raise ConfigurationError(
            f"{node_folder} is no folder of a formatted node: correct the path"
        )
    node = node_folder.absolute() if is_there else None
    staged = SlotFolder(slots).stage(bundle, node, no_way_back=no_way_back)
    if node is None:
        click.echo(f"update: {node_folder} holds no node: name yours with --node-folder", err=True)
    then = "runs again" if staged.has_way_back else "would halt with VOLUME_NEWER: no way back"
    click.echo(
        f"update: {staged.version} is staged: restart the node; if it is not ready in {TRIES} "
        f"starts, {staged.known} {then}"
    )


@command.command("fits")
@click.option("--node-folder", type=_FILE, metavar="F", help="Look whether it takes this one.")
def fits(node_folder: Path | None) -> None:
    """Tell how much this program writes into volumes, once it has looked whether it takes a node's.
    `stage` asks the program in an update so; nothing is changed."""
    if node_folder is not None:
        from appliance.node.start import check_takes

        check_takes(node_folder.absolute())
    click.echo(json_line({"version": VERSION, "volume_level": VOLUME_LEVEL}))


@command.command("on-start")
@_slots
def on_start(slots: Path) -> None:
    """Decide what runs now. The unit calls this before each start, of the known program."""
    click.echo(f"update: {SlotFolder(slots).on_start()}")


@command.command("on-ready")
@_slots
def on_ready(slots: Path) -> None:
    """Keep what runs: it was ready. The unit calls this after READY."""
    click.echo(f"update: {SlotFolder(slots).confirm()}")


@command.command("status")
@_slots
def status(slots: Path) -> None:
    """Show the slots as a line of JSON."""
    click.echo(json_line(asdict(SlotFolder(slots).state)))
