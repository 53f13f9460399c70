"""`tigerchat version`: what this executable is."""

import platform
import sys

import click

from appliance import VERSION


@click.command("version")
def command() -> None:
    """Print the version of this program and of the Python in it."""
    frozen = "frozen" if getattr(sys, "frozen", False) else "from source"
    click.echo(f"tigerchat {VERSION} ({frozen}, Python {platform.python_version()})")
