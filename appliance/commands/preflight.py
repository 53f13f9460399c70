"""`tigerchat preflight`: is this machine set up as its model was measured?"""

import dataclasses
import sys
from pathlib import Path

import click

from appliance.base.printable import counted, json_line, one_line
from appliance.drivers.host import machine_facts, resources
from appliance.drivers.host.durable_file import unusable, write_durable
from appliance.drivers.terminal.way_out import bare
from appliance.node.preflight import (
    DIFFERS,
    FITS,
    Line,
    choose,
    compare,
    fragments,
    load_facts,
    named,
)

_FILE = click.Path(path_type=Path)
_TONES = {FITS: "green", DIFFERS: "yellow"}


@click.command("preflight")
@click.option("--profile", metavar="NAME", help="Compare with this profile; else with the model's.")
@click.option("--strict", is_flag=True, help="Exit code 1 when anything differs.")
@click.option("--json", "as_json", is_flag=True, help="The lines for programs.")
@click.option("--record", is_flag=True, help="Print the facts of this machine, and nothing else.")
@click.option("--facts", type=_FILE, metavar="FILE", help="Facts of another machine, as recorded.")
@click.option("--dry-run", is_flag=True, help="Show what --apply would write.")
@click.option("--apply", "apply_", is_flag=True, help="Write settings of the kernel and devices.")
@click.option("--etc", type=_FILE, default=Path("/etc"), hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    profile: str | None,
    strict: bool,
    as_json: bool,
    record: bool,
    facts: Path | None,
    dry_run: bool,
    apply_: bool,
    etc: Path,
) -> None:
    """Compare this machine with its profile: what differs, what it costs, how to mend it.

    Nothing is changed but by --apply, which writes files below /etc that the next boot reads.
    Firmware is never touched.
    """
    if dry_run and apply_:
        raise click.UsageError("say --dry-run or --apply, not both: look first, then write")
    folder = resources.profiles()
    known = load_facts(facts) if facts is not None else machine_facts.read()
    chosen = named(folder, profile) if profile is not None else choose(folder, known)
    sysctls = chosen.tables["kernel"]["sysctl"]
    if facts is None:
        known = machine_facts.read(sysctls)
    if record:
        click.echo(json_line(dict(sorted(known.items())), indent=1))
        return
    if dry_run or apply_:
        _write(fragments(chosen, known), etc, really=apply_)
        return
    lines = compare(chosen, known)
    if as_json:
        for line in lines:
            click.echo(json_line(dataclasses.asdict(line)))
    else:
        _show(chosen.name, lines)
    ctx.exit(1 if strict and any(line.state == DIFFERS for line in lines) else 0)


def _show(name: str, lines: list[Line]) -> None:
    differing = sum(line.state == DIFFERS for line in lines)
    unknown = sum(line.state not in (FITS, DIFFERS) for line in lines)
    click.echo(f"{name}: {counted(differing, 'difference')}, {unknown} not told by this machine")
    for line in lines:
        state = click.style(f"{line.state:7}", fg=_TONES.get(line.state))
        what = one_line(f"{line.name}: {line.found}")
        if line.state == FITS:
            click.echo(f"{state}  {what}", file=bare(sys.stdout))
            continue
        click.echo(f"{state}  {what}; expected: {one_line(line.wanted)}", file=bare(sys.stdout))
        click.echo(f"         costs: {line.costs}")
        click.echo(f"         mend:  {line.mend}")


def _write(texts: dict[str, str], etc: Path, *, really: bool) -> None:
    for name, text in texts.items():
        path = etc / name
        there = path.exists() and path.read_text() == text
        verb = "is as it should be" if there else "is written" if really else "would be written"
        click.echo(f"preflight: {path} {verb}")
        if not really:
            click.echo(text)
        elif not there:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_durable(path, text)
            except OSError as error:
                raise unusable(path, error) from error
    if really:
        click.echo(
            "preflight: `sysctl --system` and `udevadm trigger` make the first two count now, "
            "`update-grub` the third at the next boot"
        )
