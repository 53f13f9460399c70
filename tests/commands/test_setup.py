"""A machine that was started from its image: what it asks at a terminal, and what is then done on
it, by hands that write below a folder and run nothing."""

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from appliance.base.errors import ConfigurationError, StorageError
from appliance.commands.setup import Lines, converse
from appliance.cores.setup.machine import Begun, Disk, Machine
from appliance.cores.setup.steps import (
    ADDRESS,
    DONE_FILE,
    NODE_FOLDER,
    PART_FILE,
    AwaitAddress,
    Bring,
    Run,
    ShowSecret,
    Write,
)
from appliance.cores.setup.wizard import Wizard
from appliance.node import first_start
from appliance.node.first_start import (
    IMAGE_FILE,
    Hands,
    carry_out,
    how_far,
    refuse_other_machines,
)
from tests.commands.conftest import Sentence, Tigerchat

DISK = Disk("/dev/nvme0n1", "/dev/disk/by-id/nvme-M_1", 'ENV{ID_SERIAL}=="M_1"', 1 << 37, 5000)
MACHINE = Machine((DISK,), ("eno1",))


@dataclass
class Scripted:
    """Hands that note what they are told to do; the command that is named fails."""

    root: Path
    fails: str = ""
    addresses: Iterator[list[str]] = field(default_factory=lambda: itertools.repeat(["10.0.0.7"]))
    said: list[str] = field(default_factory=list)
    ran: list[list[str]] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)

    def hands(self) -> Hands:
        return Hands(
            tell=self.said.append,
            pause=lambda: self.said.append("waits"),
            root=self.root,
            run=self.run,
            addresses=lambda: next(self.addresses),
        )

    def run(self, words: list[str], typed: str) -> None:
        self.ran.append(words)
        self.typed.append(typed)
        if self.fails and self.fails in words:
            raise StorageError(f"{self.fails} failed")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[tuple[Lines, int, Path]]:
    """(lines of it, where a test types, the file that says another terminal was answered)."""
    reads, types = os.pipe()
    try:
        yield Lines(tmp_path / "done", reads), types, tmp_path / "done"
    finally:
        os.close(reads)
        os.close(types)


def test_questions_are_shown_with_what_an_empty_line_means_and_asked_again_when_it_cannot_be(
    terminal: tuple[Lines, int, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lines, types, _ = terminal
    wizard = Wizard(MACHINE)
    os.write(types, b"Not A Name\ntiger-1\n\n\n\n1\nyes\n")
    assert converse(wizard, lines)
    shown = capsys.readouterr().out
    assert "Name of this machine [tigerchat]: " in shown
    assert shown.count("Name of this machine") == 2 and "a name has 1 to 63" in shown
    assert "/dev/nvme0n1  128.0 GiB  nvme-M_1" in shown
    assert "begins a site of 1" in shown
    assert Write("/etc/hostname", "tiger-1\n") in wizard.steps


def test_a_terminal_that_nobody_uses_ends_when_another_one_was_answered(
    terminal: tuple[Lines, int, Path],
) -> None:
    lines, types, done = terminal
    os.write(types, b"half a li")
    done.touch()
    assert converse(Wizard(MACHINE), lines) is False


def test_a_terminal_that_has_gone_is_no_answer(tmp_path: Path) -> None:
    reads, types = os.pipe()
    os.write(types, b"tiger-1\nhalf")
    os.close(types)
    with pytest.raises(StorageError, match="nobody is at this terminal"):
        converse(Wizard(MACHINE), Lines(tmp_path / "done", reads))
    os.close(reads)


def test_steps_are_carried_out_in_order_and_with_the_address_that_the_machine_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_start, "_POLL_S", 0.0)
    come = iter([[], [], ["10.0.0.9", "10.0.0.7"]])
    scripted = Scripted(tmp_path, addresses=come)
    found = Run(("/usr/bin/tigerchat", "found", "--host", ADDRESS), as_node=True)
    steps = [
        Write("/etc/x/hostname", "a\n"),
        AwaitAddress("10.0.0.7"),
        found,
        Run(("reload", "it")),
    ]
    carry_out(steps, scripted.hands())
    assert (tmp_path / "etc/x/hostname").read_text() == "a\n"
    as_node, as_root = scripted.ran
    assert as_node[:4] == ["setpriv", "--reuid=tigerchat", "--regid=tigerchat", "--init-groups"]
    assert as_node[-2:] == ["--host", "10.0.0.7"] and as_root == ["reload", "it"]


def test_a_network_that_gives_no_address_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_start, "ADDRESS_S", 0.0)
    with pytest.raises(StorageError, match="is a cable plugged in"):
        carry_out([AwaitAddress("")], Scripted(tmp_path, addresses=iter([[]])).hands())


def test_the_secret_is_another_one_each_time_is_shown_and_must_be_changed(tmp_path: Path) -> None:
    secrets = set()
    for _ in range(2):
        scripted = Scripted(tmp_path)
        carry_out([ShowSecret()], scripted.hands())
        (told,) = re.findall(r"One-time secret: (\S+)", scripted.said[0])
        assert re.fullmatch(r"([a-z2-9]{5}-){3}[a-z2-9]{5}", told)
        assert scripted.ran == [["chpasswd"], ["passwd", "--quiet", "--expire", "root"]]
        assert scripted.typed[0] == f"root:{told}\n", "a command line is seen by others"
        assert scripted.said[-1] == "waits"
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
        secrets.add(told)
    assert len(secrets) == 2


def test_a_setup_that_fails_does_not_count_as_done(tmp_path: Path) -> None:
    wizard = Wizard(MACHINE)
    for line in ("", "", "", "new", "1", "yes"):
        wizard.answer(line)
    scripted = Scripted(tmp_path, fails="found")
    with pytest.raises(StorageError, match="found failed"):
        carry_out(wizard.steps, scripted.hands())
    assert not (tmp_path / DONE_FILE.lstrip("/")).exists() and ["chpasswd"] not in scripted.ran
    again = Scripted(tmp_path)
    carry_out(wizard.steps, again.hands())
    assert (tmp_path / DONE_FILE.lstrip("/")).exists()
    assert again.ran[-1] == ["systemctl", "start", "tigerchat.service"]


def test_a_lost_machine_gets_its_files_back_the_site_file_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_start, "_own", lambda folder: None)
    backup, root = tmp_path / "backup", tmp_path / "root"
    (backup / "keys").mkdir(parents=True)
    for name in ("node.toml", "jwks.json", "keys/tls.key", "site.toml"):
        (backup / name).write_text(f"what {name} holds")
    folder = root / NODE_FOLDER.lstrip("/")
    steps = [Write(PART_FILE, "replace\n"), Bring(str(backup))]
    (backup / "site.toml").rename(backup / "site")
    with pytest.raises(ConfigurationError, match=r"lacks site\.toml of the lost machine"):
        carry_out(steps, Scripted(root).hands())
    assert not folder.exists() and how_far(root) is Begun.NOTHING
    (backup / "site").rename(backup / "site.toml")
    carry_out(steps, Scripted(root).hands())
    assert (folder / "keys/tls.key").read_text() == "what keys/tls.key holds"
    assert (folder / "keys/tls.key").stat().st_mode & 0o077 == 0
    assert how_far(root) is Begun.REPLACING
    with pytest.raises(ConfigurationError, match="is not there: plug it in"):
        carry_out([Bring(str(tmp_path / "stick"))], Scripted(root).hands())


def test_what_was_begun_is_seen_in_the_node_s_folder(tmp_path: Path) -> None:
    folder = tmp_path / NODE_FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    assert how_far(tmp_path) is Begun.NOTHING
    (folder / "site.toml").touch()
    assert how_far(tmp_path) is Begun.SITE
    (folder / "joining").touch()
    assert how_far(tmp_path) is Begun.JOINING
    (folder / "formatted").touch()
    assert how_far(tmp_path) is Begun.CATCHING_UP
    (folder / "joining").unlink()
    assert how_far(tmp_path) is Begun.VOLUMES


def test_only_a_machine_from_an_image_that_is_not_set_up_yet_is_asked(
    tmp_path: Path, tigerchat: Tigerchat, sentence: Sentence
) -> None:
    assert "not started from an image of ours" in sentence(tigerchat("setup", cwd=tmp_path), 2)
    (tmp_path / "etc").mkdir()
    (tmp_path / IMAGE_FILE.lstrip("/")).touch()
    refuse_other_machines(tmp_path)
    done = tmp_path / DONE_FILE.lstrip("/")
    done.parent.mkdir(parents=True)
    done.touch()
    with pytest.raises(ConfigurationError, match="this machine is set up"):
        refuse_other_machines(tmp_path)


def test_facts_of_this_machine_can_be_asked_for() -> None:
    machine = first_start.find_machine()
    assert all(disk.size > 0 for disk in machine.disks)
    assert first_start.run(["true"], "") is None
    with pytest.raises(StorageError, match="ended with code 1"):
        first_start.run(["false"], "")
    with pytest.raises(StorageError, match="No such file"):
        first_start.run(["tigerchat-of-nobody"], "")
    assert not any(address.startswith(("127.", "fe80")) for address in first_start.own_addresses())
    click.echo(machine)
