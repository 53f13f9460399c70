"""A site is upgraded node by node from the program of an earlier commit, under load: no send fails,
nothing acknowledged is lost, and before the last node there is a way back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.drivers.host.node_folder import FORMATTED_FILE
from tests.ports import FreePorts
from tests.system.earlier_site import EarlierSite, earlier_program
from tests.system.ledger import read
from tests.system.local_site import ports_in_a_row, run
from tests.system.trial import Trial


def upgrade(site: EarlierSite, *words: str, code: int = 0, machine: int | None = None) -> str:
    """`tigerchat upgrade` of the site, or of one node as on a machine of its own; what it told."""
    which = ("--local", str(site.folder))
    if machine is not None:
        which = ("--node-folder", str(site.alone(machine)))
        words += ("--restart", site.restart_words(machine))
    done = run("upgrade", *which, *words)
    print(done.stdout + done.stderr)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


@contextmanager
def hidden(path: Path) -> Iterator[None]:
    """A start refuses a node that has no such file; one that runs does not look at it."""
    elsewhere = path.with_name(f"{path.name}.hidden")
    path.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(path)


def no_send_failed(trial: Trial) -> None:
    """All that was asked is acknowledged: no send failed, none is unknown."""
    trial.check()
    sends = [event for event in read(trial.path) if event.f == "send"]
    assert {event.type for event in sends} == {"invoke", "ok"}


def test_one_node_is_upgraded_under_load_from_an_earlier_commit(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    program = earlier_program(tmp_path, or_twin=True)
    site = EarlierSite(tmp_path / "site", ports_in_a_row(free_ports), program)
    with site, Trial(site, tmp_path, seed) as trial:
        told = upgrade(site, "node-0")
        assert "node-0: serves and is level" in told and "1 of 3 nodes run" in told
        assert site.all_kept_by() == ["now", "earlier", "earlier"]
        trial.flows("one node is upgraded")
        trial.finish()
    no_send_failed(trial)


@pytest.mark.soak
def test_three_nodes_are_upgraded_and_go_back_before_the_last_under_load(
    tmp_path: Path, free_ports: FreePorts, seed: int
) -> None:
    program = earlier_program(tmp_path)
    site = EarlierSite(tmp_path / "site", ports_in_a_row(free_ports), program)
    with site, Trial(site, tmp_path, seed) as trial:
        trial.flows("all nodes are of the earlier commit")
        upgrade(site, "node-1", "node-2")
        assert site.all_kept_by() == ["earlier", "now", "now"]
        trial.flows("two nodes are upgraded")
        told = upgrade(site, "--back")
        assert "2 nodes went back" in told
        assert site.all_kept_by() == ["earlier"] * 3
        trial.flows("all went back")
        trial.settle()  # what is waited for next is that node alone
        with hidden(site.place(1) / FORMATTED_FILE):
            told = upgrade(site, "node-1", "--patience", "60", code=1)
            assert "node-1 does not come back" in told and "begin again when it serves" in told
            trial.flows("a node does not come back")
        assert "node-1: serves and is level" in upgrade(site, "node-1")
        assert site.all_kept_by() == ["earlier", "now", "earlier"]
        assert "now the next machine" in upgrade(site, machine=0)
        told = upgrade(site)
        assert "node-0: runs" in told and "3 of 3 nodes run" in told
        assert site.all_kept_by() == ["now"] * 3
        trial.flows("all nodes are upgraded")
        assert "there is no way back any more" in upgrade(site, "--back", code=1)
        assert site.all_kept_by() == ["now"] * 3
        trial.finish()
    no_send_failed(trial)
