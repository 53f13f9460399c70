"""`tigerchat disks`: what the NVMe disks of this machine say of their health."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from appliance.base.errors import ConfigurationError
from appliance.base.printable import json_line, one_line
from appliance.cores.console.disks import troubles
from appliance.drivers.host.durable_file import unusable, write_durable
from appliance.drivers.nvme import health
from appliance.drivers.terminal.way_out import bare
from appliance.formats.nvme_health import Health

_FOLDER = click.Path(path_type=Path)
_TONES = {"bad": "red", "warn": "yellow"}


@click.command("disks")
@click.option("--volume", type=_FOLDER, metavar="FOLDER", help="Those under this volume only.")
@click.option("--json", "as_json", is_flag=True, help="All that they count, for programs.")
@click.option("--record", type=_FOLDER, metavar="FOLDER", help="Leave each page there, as it came.")
@click.pass_context
def command(ctx: click.Context, volume: Path | None, as_json: bool, record: Path | None) -> None:
    """Show the health of this machine's NVMe disks: spare blocks, wear, temperature, errors.

    Only root may ask a disk. --record leaves what it said in a folder, where nodes read it. The
    exit code is 1 when a disk fails.
    """
    names = health.controllers() if volume is None else _under(volume)
    if record is not None:
        _record(record, names)
        return
    found = {name: health.health_of(name, ask=health.ask) for name in names}
    if as_json:
        for name, it in found.items():
            told = asdict(it) if isinstance(it, Health) else {"untold": it}
            click.echo(json_line({"disk": name, **told}))
    elif not found:
        click.echo(f"disks: not told: {health.NO_CONTROLLER if volume else 'no NVMe disk here'}")
    else:
        for name, it in found.items():
            click.echo(_line(one_line(name), it), file=bare(sys.stdout))
    severities = [s for it in found.values() if isinstance(it, Health) for s, _ in troubles(it)]
    ctx.exit(1 if "bad" in severities else 0)


def _under(volume: Path) -> list[str]:
    try:
        return sorted(health.controllers_of(health.device_under(volume)))
    except OSError as error:
        raise ConfigurationError(
            f"{volume}: {error.strerror}; name the folder of a volume, like node-0/shard-0"
        ) from error


def _line(name: str, it: Health | str) -> str:
    if isinstance(it, str):
        return f"{name}: not told: {one_line(it)}"
    found = sorted(troubles(it))
    words = "; ".join(text for _, text in found) or "good"
    shown = click.style(one_line(words), fg=_TONES[found[0][0]] if found else "green")
    return (
        f"{name}: {shown}; spare {it.spare_percent} %, used {it.used_percent} %, "
        f"{it.temperature_c} °C, written {it.written_bytes / 1e12:,.1f} TB, "
        f"power lost {it.unsafe_shutdowns:,} times in {it.power_on_hours:,} h"
    )


def _record(folder: Path, names: list[str]) -> None:
    """A disk that does not answer leaves its old page, which says by its age that it is old."""
    for name in names:
        try:
            page = health.ask(name)
        except OSError as error:
            click.echo(f"disks: {name} does not answer: {error.strerror}", err=True)
            continue
        try:
            write_durable(folder / name, page)
        except OSError as error:
            raise unusable(folder / name, error) from error
