"""Volumes refuse memory, so replicas of tests lie beside the program."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.drivers.host import service
from tests.drivers.conftest import disk_folder
from tests.roles.objects_site import brief_pauses
from tests.roles.replica_group import peer_ports
from tests.roles.wired_site import UNLIMITED, WiredSite, process_kept

__all__ = ["MakeSite", "disk_folder", "brief_pauses"]

MakeSite = Callable[..., WiredSite]


@pytest.fixture
def make_site(disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeSite]:
    """Makes a site of so many nodes."""
    with peer_ports(2) as ports, process_kept(monkeypatch):
        yield lambda nodes, **settings: WiredSite(
            disk_folder, nodes=nodes, ports=ports, **{**UNLIMITED, **settings}
        )


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles of this process do the work of each second several times a second: for tests that wait
    until it was done, and of which none is about how often."""
    monkeypatch.setattr(service, "HEARTBEAT_S", 0.3)
