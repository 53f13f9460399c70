"""Which core each process of a node gets, on machines as the kernel describes them."""

from pathlib import Path

import pytest

from appliance.drivers.host import topology
from appliance.drivers.host.topology import Core
from appliance.node.child import Child
from appliance.node.placement import placed

CHILDREN = [
    Child("replica-0", [], 2, has_own_core=True),
    Child("edge-0", [], 0, has_own_core=True),
    Child("console", [], 1),
]


def machine(*physical: int, isolated: tuple[int, ...] = ()) -> list[Core]:
    """Logical cores by the physical one that each is a part of."""
    return [Core(n, (0, core), n in isolated) for n, core in enumerate(physical)]


def cores_of(available: list[Core]) -> dict[str, set[int]]:
    children, _ = placed(CHILDREN, available)
    assert [child.name for child in children] == [child.name for child in CHILDREN]
    return {child.name: set(child.cores) for child in children if child.cores is not None}


@pytest.mark.parametrize(
    ("available", "replica", "edge", "rest"),
    [
        (machine(0, 1, 2), 1, 2, {0}),
        (machine(0, 1, 2, 3), 2, 3, {0, 1}),
        # Two threads a core, numbered as servers do, then as laptops do.
        (machine(0, 1, 2, 3, 0, 1, 2, 3), 2, 3, {0, 1, 4, 5}),
        (machine(0, 0, 1, 1, 2, 2), 2, 4, {0, 1}),
        # Not enough physical cores: threads of one are better than none.
        (machine(0, 1, 0, 1), 2, 3, {0, 1}),
        # The kernel keeps two free; a third isolated one is nobody's, nor is it for the house.
        (machine(0, 1, 2, 3, isolated=(2, 3)), 2, 3, {0, 1}),
        (machine(0, 1, 2, 3, isolated=(1, 2, 3)), 1, 2, {0}),
    ],
)
def test_replica_and_edge_share_no_physical_core_while_there_are_enough(
    available: list[Core], replica: int, edge: int, rest: set[int]
) -> None:
    assert cores_of(available) == {"replica-0": {replica}, "edge-0": {edge}, "console": rest}


@pytest.mark.parametrize("available", [machine(0), machine(0, 1), machine(0, 1, isolated=(1,))])
def test_all_float_where_there_are_too_few(available: list[Core]) -> None:
    assert cores_of(available) == {}
    assert "too few cores for 2 replicas and edges" in placed(CHILDREN, available)[1]


def described(
    folder: Path, online: str, isolated: str, physical: dict[int, tuple[int, int]]
) -> Path:
    (folder / "online").write_text(online + "\n")
    (folder / "isolated").write_text(isolated + "\n")
    for number, (package, core) in physical.items():
        place = folder / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{package}\n")
        (place / "core_id").write_text(f"{core}\n")
    return folder


def test_cores_are_read_as_the_kernel_tells_them(tmp_path: Path) -> None:
    system = described(tmp_path, "0-3", "2-3", {0: (0, 0), 1: (0, 4), 2: (1, 0), 3: (1, 4)})
    isolated = [Core(2, (1, 0), True), Core(3, (1, 4), True)]
    free = [Core(0, (0, 0)), Core(1, (0, 4))]
    assert topology.read(system, {0, 1}) == [*free, *isolated]
    assert topology.read(system, {0}) == free[:1], "who is confined stays so"
    assert topology.read(system, {3}) == isolated[1:], "also to an isolated one"
    assert topology.read(tmp_path / "nothing", {5}) == [Core(5, (-1, 5))]


def test_this_machine_has_the_cores_that_this_process_may_use() -> None:
    assert {core.number for core in topology.read()} >= set(topology.of_process(0))
    assert topology.parse_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert topology.parse_list("\n") == set()
