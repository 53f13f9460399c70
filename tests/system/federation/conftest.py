"""Two sites that know each other for all tests of this folder; rooms and people are each test's
own."""

from collections.abc import Iterator

import pytest

from tests.ports import FreePorts
from tests.system.federated_site import Door, running
from tests.system.local_site import ports_in_a_row, wait_until
from tests.web.conftest import browser, chromium

__all__ = ["browser", "chromium"]


@pytest.fixture(scope="package")
def pair(
    tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts
) -> Iterator[tuple[Door, Door]]:
    """Paris and Oslo, each of one node; how they know each other is the next fixture's."""
    folder = tmp_path_factory.mktemp("sites")
    paris, oslo = (
        Door(folder / name[0], ports_in_a_row(free_ports), name, nodes=1, objects=True)
        for name in ("paris", "oslo")
    )
    with running(paris, oslo):
        yield paris, oslo


@pytest.fixture
def sites(pair: tuple[Door, Door]) -> tuple[Door, Door]:
    """The same, whatever a test before did with their links."""
    paris, oslo = pair
    wait_until(lambda: all(told for site in pair for told in site.told()), 60, "it runs")
    for site, other, words in ((paris, oslo, ()), (oslo, paris, ("--carrier", "datagram"))):
        (told,) = site.told()
        assert told is not None
        if other.name not in told.sites:
            site.know(other, *words)
    return pair
