"""What commands print of texts that strangers chose: nothing that a terminal obeys."""

import ast
import json
from pathlib import Path

import pytest

from appliance import commands
from appliance.commands.ship import verify
from appliance.formats import manifest
from appliance.formats.site import SITE_FILE, load_site
from tests.security.formatted import format_one

STRANGE = "hour=\x1b[2J\u202e\x9b31m\n03"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with a folder at its target whose name somebody else chose."""
    folder = format_one(tmp_path_factory.mktemp("shown"))
    described = load_site(folder / SITE_FILE)
    shard = folder / "node-0" / "shipped" / manifest.shard_folder(described.cluster, 0)
    place = shard / "date=2026-01-02" / STRANGE
    place.mkdir(parents=True)
    (place / manifest.manifest_name(0)).write_text("no manifest")
    return folder


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_name_at_the_target_commands_no_terminal(
    site: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    ended = verify.main(["--local", str(site), *form], standalone_mode=False)
    told = capsys.readouterr().out
    assert ended == 1 and "[2J" in told
    assert all(character.isprintable() or character == "\n" for character in told), repr(told)
    assert not [line for line in told.splitlines() if line.startswith("03")]  # no line of its own
    if form:
        assert any(STRANGE in finding["path"] for finding in json.loads(told)["findings"])


def printed_json(path: Path) -> list[str]:
    """Where a command prints JSON that may hold what a terminal obeys."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "print"):
            if "json.dumps(" in ast.unparse(node):
                found.append(f"{path.name}:{node.lineno}")
    return found


def test_no_command_prints_json_in_another_way() -> None:
    files = sorted(Path(commands.__path__[0]).rglob("*.py"))
    assert len(files) > 10
    assert [place for path in files for place in printed_json(path)] == []


def test_json_that_is_printed_as_it_comes_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "command.py"
    path.write_text("import click, json\nclick.echo(json.dumps({}) if 1 else '')\n")
    assert printed_json(path) == ["command.py:2"]
