"""`tigerchat flash IMAGE DEVICE`: write a disk image to a device, and read it back."""

from pathlib import Path

import click

from appliance.base.limits import MIB
from appliance.drivers.nvme.flash import flash

_FILE = click.Path(path_type=Path)


@click.command("flash")
@click.argument("image", type=_FILE)
@click.argument("device", type=_FILE)
@click.option(
    "--erase",
    count=True,
    help="Said twice: overwrite a device that carries something; all of that is lost.",
)
def command(image: Path, device: Path, erase: int) -> None:
    """Write IMAGE to DEVICE and verify what the device then holds.

    Refused, with nothing changed: a device that is in use or too small, one that carries something
    unless --erase is said twice, an image that was cut short or damaged.
    """
    tenth = -1

    def progress(what: str, done: int, total: int) -> None:
        nonlocal tenth
        if done * 10 // total != tenth:
            tenth = done * 10 // total
            click.echo(f"flash: {what}: {done // MIB} of {total // MIB} MiB")

    digest = flash(image, device.absolute(), erase=erase, progress=progress)
    click.echo(f"flash: {device} holds {image}: SHA-256 {digest}")
