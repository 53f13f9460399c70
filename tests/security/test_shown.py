"""What commands print of texts that strangers chose: nothing that a terminal obeys."""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from appliance import commands
from appliance.__main__ import main, tigerchat
from appliance.base.errors import StorageError
from appliance.commands.ship import verify
from appliance.drivers.terminal.way_out import harmless
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


def every_verb(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All verbs with their words, and the groups they are in."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield (*words, name), found
        if isinstance(found, click.Group):
            yield from every_verb(found, *words, name)


def test_whatever_a_verb_prints_commands_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each verb of the program is made to print all that strangers may have chosen, in each way."""
    endings = [StorageError(STRANGE), click.UsageError(STRANGE), click.ClickException(STRANGE)]

    def careless(**_: object) -> None:
        click.echo(STRANGE)
        click.echo(STRANGE, err=True)
        print(STRANGE)
        sys.stdout.writelines([STRANGE])
        sys.stderr.write(STRANGE)
        raise endings[0]

    verbs = dict(every_verb(tigerchat))
    assert len(verbs) > 80
    for words, verb in verbs.items():
        if isinstance(verb, click.Group) and not verb.invoke_without_command:
            continue  # prints its help alone
        with monkeypatch.context() as patched:
            for group in (verbs[words[:depth]] for depth in range(1, len(words))):
                patched.setattr(group, "params", [])
                patched.setattr(group, "callback", None)
            patched.setattr(verb, "params", [])
            patched.setattr(verb, "callback", careless)
            assert main(list(words)) in (1, 2), words
        endings.append(endings.pop(0))
        told = capsys.readouterr()
        for text in told:
            assert text.count("[2J") >= 2, words
            assert all(each.isprintable() or each == "\n" for each in text), (words, text)
    assert main(["status", "--local", STRANGE]) == 2 and main([STRANGE]) == 2
    assert all(each.isprintable() or each == "\n" for each in capsys.readouterr().err)


def test_bytes_have_no_way_past_what_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    with harmless(), pytest.raises(TypeError):
        click.echo(STRANGE.encode())
    assert capsys.readouterr().out == ""


# Verbs that colour what they print, or draw how far they are.
OWN_CONTROLS = {"disks.py", "import_.py", "preflight.py", "restore.py", "ship.py", "status.py"}


def test_who_has_controls_of_its_own_is_known() -> None:
    files = sorted(Path(commands.__path__[0]).rglob("*.py"))
    assert {path.name for path in files if "bare(" in path.read_text()} == OWN_CONTROLS


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
