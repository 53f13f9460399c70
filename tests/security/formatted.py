"""A formatted site of one node, for tests of what lies in its folder."""

from pathlib import Path

from appliance.commands.format import command


def format_one(folder: Path) -> Path:
    """The folder of a local site in `folder`, with its node `node-0`."""
    site = folder / "s"
    words = ["--local", str(site), "--nodes", "1", "--geometry", "small", "--brief"]
    command.main(words, standalone_mode=False)
    return site
