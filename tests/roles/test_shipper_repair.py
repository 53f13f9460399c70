"""A new target is given what the log calls shipped, as far as the log can still make it."""

import logging
from pathlib import Path

import pytest

from appliance.base.prng import Prng
from appliance.cores.shipping.source import Source
from appliance.drivers.hdfs.folder import FolderTarget
from appliance.roles.shipper.repair import Repair, Repairs
from appliance.roles.shipper.shard_target import ShardTarget
from tests.cores.shipping.world import GEOMETRY, KEYS, PERIOD_US, TRUSTED, Extents, World

SEGMENTS = 8


class Kept(Extents):
    """Segments below `oldest` were dropped."""

    def view(self, number: int):
        return super().view(number) if number >= self.oldest else None


@pytest.fixture
def world() -> World:
    """Some segments of messages, in periods that were all shipped elsewhere."""
    world = World(7)
    world.prng = Prng(7)
    while world.shard.rooms.log_seq < SEGMENTS * GEOMETRY.segment_records:
        world.message(GEOMETRY.segment_records // 4)
        world.wall_us += PERIOD_US // 2
        world.run(60, calm=True)
    world.wall_us += 3 * PERIOD_US
    world.run(900, calm=True)
    assert world.shard.rooms.shipping.manifest_count > SEGMENTS
    return world


def repairs_of(world: World, folder: Path) -> Repairs:
    (actor,) = [actor for actor in world.actors if actor.core.ships]
    key = KEYS[actor.node]
    target = FolderTarget(folder)
    log = logging.getLogger()
    return Repairs(actor.core, ShardTarget(target, actor.core, key=key, trusted=TRUSTED, log=log))


def there(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_empty_target_gets_all_that_was_shipped_but_for_signatures(
    world: World, tmp_path: Path
) -> None:
    assert repairs_of(world, tmp_path).compare(world.source) == ""
    shipped = {path: data for path, data in world.files.items() if "/_incoming/" not in path}
    assert set(there(tmp_path)) == set(shipped)
    snapshots = [path for path in shipped if not path.endswith(".json")]
    unsigned = slice(0, -64)  # it may be another node that signs now
    for path in snapshots:
        assert there(tmp_path)[path][unsigned] == shipped[path][unsigned]
    assert snapshots
    assert repairs_of(world, tmp_path).compare(world.source) == ""


def test_what_the_log_has_dropped_is_named_and_all_that_can_be_made_is_put(
    world: World, tmp_path: Path
) -> None:
    whole = world.source.manifests()
    segments = Kept(world.shard)
    segments.oldest = 5
    world.source = Source(GEOMETRY, world.shard.ring, segments)
    world.shown()
    kept = world.source.manifests()
    assert 0 < kept[0].number < whole[-1].number  # the first ones are told no more
    lost = kept[0].number + 1  # the oldest that is told names one that is not: it cannot be made
    hole = repairs_of(world, tmp_path).compare(world.source)
    told = f"lacks {lost} periods, of which the log has no more"
    assert hole.endswith(told)
    manifests = [path for path in there(tmp_path) if "manifest" in path]
    assert len(manifests) == len(kept) - 1
    assert any(path.endswith("head.json") for path in there(tmp_path))
    # A process that begins later sees a head that names the newest, and knows of the hole again,
    assert repairs_of(world, tmp_path).compare(world.source).endswith(told)
    # until what was shipped elsewhere is copied here.
    for path, data in world.files.items():
        if "/_incoming/" not in path and not (tmp_path / path).exists():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)
    assert repairs_of(world, tmp_path).compare(world.source) == ""


def test_a_period_that_lost_some_records_keeps_none_that_is_whole_from_the_target(
    world: World, tmp_path: Path
) -> None:
    """The oldest segment that is kept may tell of periods whose records lie in dropped ones."""
    segments = Kept(world.shard)
    for oldest in range(1, SEGMENTS):
        segments.oldest = oldest
        world.source = Source(GEOMETRY, world.shard.ring, segments)
        world.shown()
        kept = world.source.manifests()
        target = tmp_path / str(oldest)
        hole = repairs_of(world, target).compare(world.source)
        whole = [s for s in kept[1:] if s.first_log_seq > oldest * GEOMETRY.segment_records]
        manifests = [path for path in there(target) if "manifest" in path]
        assert len(manifests) >= len(whole) > 0
        lost = world.source.manifests()[-1].number + 1 - len(manifests)
        assert hole.endswith(f"lacks {lost} periods, of which the log has no more")


def test_a_range_at_the_operators_wish_counts_what_it_put(world: World, tmp_path: Path) -> None:
    repairs = repairs_of(world, tmp_path)
    wish = Repair(1, world.source.log_seq)
    repairs.put_range(wish, world.source)
    assert wish.done == wish.total > len(wish.mended) // 2 and wish.mended
    again = Repair(1, world.source.log_seq)
    repairs.put_range(again, world.source)
    assert again.done == again.total == wish.total and again.mended == []
