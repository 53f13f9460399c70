"""A shard, a target in memory and several shippers, one step at a time, with a seed."""

from dataclasses import replace

from appliance.base.prng import Prng
from appliance.base.signature import SigningKey
from appliance.cores.shipping import shipper as core
from appliance.cores.shipping.render import Reading, render
from appliance.cores.shipping.role import Role
from appliance.cores.shipping.seams import SeekSeams
from appliance.cores.shipping.shipper import (
    Append,
    CheckTarget,
    Compare,
    Put,
    PutHead,
    PutManifest,
    Shipper,
)
from appliance.cores.shipping.source import LogTime, Source
from appliance.formats import manifest as mf
from appliance.formats.envelope import OPERATION_APPEND_CLOCK
from appliance.formats.event import Correction, Shipped, encode_correction, encode_shipped
from appliance.formats.geometry import SMALL
from appliance.formats.record import KIND_CLOCK, KIND_SHIPPED
from appliance.formats.segment import SegmentView
from appliance.formats.session import OK, RESULT_STRUCT
from tests.cores.rooms.shard import CLUSTER, SHARD, START_US, Shard, create, make, shard_record

NODES = 3
# each process has a device of its own, more than the small geometry remembers
GEOMETRY = replace(SMALL, windows_max=1024, checkpoint_zone_size=8 * SMALL.checkpoint_zone_size)
PERIOD_US = 2_000_000
PATIENCE_US = 3_000_000
KEYS = [SigningKey(bytes([n]) * 32) for n in range(NODES)]
TRUSTED = frozenset(key.public for key in KEYS)


class Extents:
    """The sealed segments on the shard's disk."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.oldest = 0

    def view(self, number: int) -> SegmentView | None:
        if (
            number < self.oldest
            or (number + 1) * GEOMETRY.segment_records > self._shard.rooms.durable_log_seq()
        ):
            return None
        view = SegmentView(bytes(self._shard.extent(number)), GEOMETRY)
        return view if view.number == number else None


class Actor:
    """A shipper process of a node; `number` tells it from those before and beside it."""

    def __init__(self, world: "World", node: int, number: int) -> None:
        self.world, self.node, self.number = world, node, number
        self.core = Shipper(world.role(node), world.prng.fork())
        self.client_seq = 1
        self.lag = 0  # turns for which it is not told of the state
        self.halfway: tuple[str, str, bytes] | None = None  # put, not renamed yet


class World:
    """`disturb` makes steps fail, processes die and twins appear."""

    def __init__(self, seed: int, *, shared: bool = True) -> None:
        self.prng = Prng(seed)
        self.shared = shared
        self.shard = Shard(GEOMETRY, segments_max=64)
        self.wall_us = START_US
        self.behind_us = 0  # by which the wall's clock was set back
        self.log_us = 0  # the log's time, where that is ahead of the wall's clock
        self.files: dict[str, bytes] = {}
        self.source = Source(GEOMETRY, self.shard.ring, Extents(self.shard))
        self.folder = mf.shard_folder(CLUSTER, SHARD)
        self.down = False
        self.numbers = iter(range(1, 1 << 30))
        self.actors = [self.actor(node) for node in range(NODES)]
        self.sent = 0
        assert self.shard.one(create(0)).code == OK
        self.shown()

    def role(self, node: int) -> Role:
        return Role(
            cluster=CLUSTER,
            shard=SHARD,
            node=node,
            members=(1, 2, 0),
            segment_records=GEOMETRY.segment_records,
            period_us=PERIOD_US,
            patience_us=PATIENCE_US,
            may_claim=True,
            shared=self.shared,
        )

    def actor(self, node: int) -> Actor:
        return Actor(self, node, next(self.numbers))

    @property
    def now_us(self) -> int:
        return self.wall_us - START_US

    @property
    def clock_us(self) -> int:
        """What the wall's clock shows."""
        return self.wall_us - self.behind_us

    @property
    def log_time(self) -> LogTime:
        """As a replica tells it."""
        return LogTime(self.log_us, self.shard.rooms.ahead_us)

    def shown(self) -> None:
        self.source.log_seq = self.shard.rooms.log_seq

    def message(self, count: int) -> None:
        """As many accepted records."""
        for _ in range(count):
            self.sent += 1
            self.commit(make(0, 1, self.sent))
        self.shown()

    def commit(self, raw: bytes) -> tuple[int, int]:
        log_us = self.clock_us - 1000 + self.shard.rooms.ahead_us
        self.shard.timestamp = max(self.shard.timestamp, log_us)
        result = self.shard.one(raw)
        self.shown()
        return result.code, result.log_seq

    def correct(self, time_us: int) -> int:
        """The clock's time counts again, from the record of this number on."""
        self.shard.timestamp += 1
        raw = bytearray(
            shard_record(KIND_CLOCK, 1, encode_correction(Correction(time_us)), client=9_999)
        )
        self.shard.rooms.prepare(OPERATION_APPEND_CLOCK, self.shard.timestamp, raw)
        results = self.shard.rooms.commit(1, OPERATION_APPEND_CLOCK, self.shard.timestamp, raw)
        assert RESULT_STRUCT.unpack(results)[3] == OK
        self.shown()
        return self.source.log_seq

    def turn(self, actor: Actor) -> None:
        """Tell it the state, unless it is behind, and let it do one step."""
        rooms = self.shard.rooms
        if actor.lag == 0:
            actor.core.on_state(rooms.shipping, rooms.shipper_cursor, rooms.log_seq, self.now_us)
        actor.lag = max(0, actor.lag - 1)
        if actor.halfway is not None:
            incoming, path, data = actor.halfway
            actor.halfway = None
            if incoming in self.files and path not in self.files:  # a zombie wakes up
                self.files[path] = self.files.pop(incoming)
            return
        step = actor.core.step(self.source, self.now_us, self.clock_us)
        if step is not None:
            self.do(actor, step)

    def do(self, actor: Actor, step: core.Step) -> None:
        if isinstance(step, Append):
            self.append(actor, step)
        elif self.down or self.prng.chance(1, 12):
            actor.core.on_failed(step, "the target is away", self.now_us)
        elif isinstance(step, Put):
            self.put(actor, step)
        elif isinstance(step, CheckTarget):
            seen = tuple(sorted((name, len(raw)) for name, raw in self.files.items()))
            actor.core.on_checked(seen, self.now_us)
        elif isinstance(step, Compare):
            actor.core.on_compared("")
        elif isinstance(step, SeekSeams):
            self.source.seek_seams(step.ahead_us, step.log_seq)
            actor.core.on_done(step)
        elif isinstance(step, PutManifest):
            path = self.path(
                step.manifest.period_start_us, mf.manifest_name(step.manifest.period_start_us)
            )
            self.files[path] = mf.sign_manifest(step.manifest, KEYS[actor.node])
            actor.core.on_done(step)
        elif isinstance(step, PutHead):
            self.files[f"{self.folder}/head.json"] = mf.sign_head(step.head, KEYS[actor.node])
            actor.core.on_done(step)
        else:
            for path in [path for path in self.files if "/_incoming/" in path]:
                parsed = mf.parse_incoming_name(path.rpartition("/")[2])
                if parsed is not None and parsed[0] <= step.generation:
                    del self.files[path]
            actor.core.on_done(step)

    def append(self, actor: Actor, step: Append) -> None:
        raw = shard_record(
            KIND_SHIPPED,
            actor.client_seq,
            encode_shipped(step.shipped),
            client=10_000 + actor.number,
        )
        code, log_seq = self.commit(raw)
        actor.client_seq += code == OK
        actor.core.on_appended(step, code == OK, log_seq, self.now_us)

    def put(self, actor: Actor, step: Put) -> None:
        records = self.source.records(*step.part)
        rendered = render(step.part, records, KEYS[actor.node])
        path = self.path(step.period_start_us, rendered.file.name)
        there = self.files.get(path)
        if there is not None:
            reading = Reading()
            for at in range(0, len(there), 1000):
                reading.add(there[at : at + 1000])
            if reading.fits(rendered.file, TRUSTED):
                actor.core.on_put(step, rendered.file)
                return
        incoming = f"{self.folder}/_incoming/" + mf.incoming_name(
            actor.core.generation, rendered.file.name
        )
        self.files[incoming] = rendered.data
        if self.prng.chance(1, 15):
            actor.halfway = (incoming, path, rendered.data)  # it stalls before the rename
            return
        self.files[path] = self.files.pop(incoming)
        actor.core.on_put(step, rendered.file)

    def path(self, start_us: int, name: str) -> str:
        return f"{self.folder}/{mf.period_folder(start_us)}/{name}"

    def disturb(self) -> None:
        """Something goes wrong, or comes back."""
        prng = self.prng
        if prng.chance(1, 40):
            victim = prng.below(len(self.actors))
            self.actors[victim] = self.actor(self.actors[victim].node)  # kill -9, restarted
        if prng.chance(1, 150) and len(self.actors) < 2 * NODES:
            self.actors.append(self.actor(prng.below(NODES)))  # a twin by mistake
        if prng.chance(1, 60):
            prng.choice(self.actors).lag = prng.between(1, 60)  # its replica is behind
        if prng.chance(1, 200):
            self.down = True
        elif self.down and prng.chance(1, 60):
            self.down = False

    def run(self, turns: int, *, calm: bool = False) -> None:
        for _ in range(turns):
            if calm:
                self.down = False
            else:
                self.disturb()
            if not calm and self.prng.chance(1, 3):
                self.message(self.prng.between(1, 20))
            self.turn(self.prng.choice(self.actors))
            self.wall_us += self.prng.between(1_000, 60_000)

    # --- judging

    def manifests(self) -> list[mf.Signed[mf.PeriodManifest]]:
        found = [
            mf.parse_manifest(raw, TRUSTED)
            for path, raw in self.files.items()
            if mf.parse_manifest_name(path.rpartition("/")[2]) is not None
            and "/_incoming/" not in path
        ]
        return sorted(found, key=lambda signed: signed.value.number)

    def check(self) -> None:
        """Every record up to the cursor in exactly one file of one manifest, the log agrees."""
        rooms, found = self.shard.rooms, self.manifests()
        told = self.source.manifests()
        assert [signed.hash for signed in found[: len(told)]] == [s.manifest_hash for s in told]
        assert len(found) <= len(told) + 1  # one may lie there that is not told yet
        previous, end, following = mf.NO_MANIFEST, None, 1
        for number, signed in enumerate(found[: len(told)]):
            manifest = signed.value
            assert (manifest.number, manifest.previous) == (number, previous)
            assert end in (None, manifest.period_start_us)
            assert manifest.first_log_seq == following
            for file in manifest.files:
                raw = self.files[self.path(manifest.period_start_us, file.name)]
                reading = Reading()
                reading.add(raw)
                assert reading.fits(file, TRUSTED)
                assert raw[48:-64] == self.source.records(file.first_log_seq, file.last_log_seq)
            for log_seq in range(manifest.first_log_seq, manifest.last_log_seq + 1):
                time_us = self.source.log_time(log_seq, rooms.ahead_us)
                assert manifest.period_start_us <= time_us < manifest.period_end_us
                assert manifest.earliest_us <= self.source.timestamp(log_seq)
            previous, end = signed.hash, manifest.period_end_us
            following = manifest.last_log_seq + 1
        assert rooms.shipper_cursor == following - 1

    def leftovers(self) -> list[str]:
        return [path for path in self.files if "/_incoming/" in path]


def shipped_claim(node: int, generation: int) -> Shipped:
    return Shipped(1, node, generation)
