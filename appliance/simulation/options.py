"""What one seed draws before its world begins: sizes, load, and the rate of each class of fault.

Two modes. *lite*: three replicas, a good network, crashes and torn writes only; thousands of seeds
are cheap. *swarm*: each seed draws its own ranges, and some classes of fault are switched off
entirely, since a world in which everything always fails explores less than many worlds that each
have a character.

Times are in microseconds of virtual time or in ticks of 10 ms; rates are per million.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from appliance.base.limits import MEMBERS_MAX, REPLICAS_MAX
from appliance.base.prng import Prng
from appliance.formats import envelope
from appliance.simulation.schedule import TICK_US

LITE, SWARM = "lite", "swarm"
MODES = (LITE, SWARM)
# Seeds below are the worlds in which bugs were found before there were narrow links, newcomers,
# retention, moved volumes and unrest among members: they stay what they were.
UNKIND_FROM = 1_000_000
# And of the lite worlds; fresh ones of before have up to 33 bits.
UNKIND_LITE_FROM = 1 << 33
PARTITIONS = ("none", "isolate_one", "uniform_size", "uniform_assignment")
# Prepares most often: a log of which headers are known and bodies are not is the hardest to judge.
COMMANDS_DROPPED = (
    0,
    *[envelope.PREPARE] * 4,
    envelope.PREPARE_OK,
    envelope.COMMIT,
    envelope.START_VIEW_CHANGE,
    envelope.DO_VIEW_CHANGE,
    envelope.START_VIEW,
    envelope.HEADERS,
    envelope.REQUEST_PREPARE,
    envelope.REPLY,
    envelope.PING,
)


@dataclass(frozen=True, slots=True)
class Options:
    """Everything a world is made from. `describe` prints it in full."""

    seed: int
    mode: str
    safety_ticks: int = 20_000
    liveness_ticks: int = 3_000  # how long the healed core may take to converge
    replica_count: int = 3
    standby_count: int = 0
    view_first: int = 0  # view in the superblock that format writes
    segments_max: int = 64

    # Load.
    chat: bool = False  # through the edges' session core, or straight to the shard
    edge_crash_ticks_mean: int = 0  # between two ends of one edge's process; 0 = none
    edge_count: int = 2
    sessions_per_edge: int = 1
    room_count: int = 2
    devices_per_room: int = 2
    records_per_device: int = 400  # a device is done when these are acknowledged
    batch_max: int = 4  # records in one request, at most
    think_us: int = 100_000  # mean pause of a session between two requests
    device_retry: int = 0  # per million of asks: ask again what was answered long ago
    session_kill: int = 0  # per million of requests: lose the session, go on by another
    session_patience_ticks: int = 600  # silence after which an edge takes another session
    newcomers: int = 0  # devices that take the place of those that are done: more than have windows
    keep_segments: int = 0  # sealed ones that the operator keeps; 0 = all

    # Network.
    tick_us: int = TICK_US  # of replicas and of their sessions: longer where the site is wide
    delay_us_min: int = 100
    delay_us_mean: int = 400
    loss: int = 0
    duplicate: int = 0
    read_gap_us: int = 0  # until a replica reads a connection: frames come by the batch; 0 = each
    capacity: int = 1_000  # messages in flight on one link; more are dropped
    link_bytes_per_ms: int = 0  # a link carries one frame after the other, so fast; 0 = at once
    clog: int = 0
    clog_us_mean: int = 0
    partition: str = "none"
    partition_one_way: bool = False
    partition_ticks_mean: int = 0  # how long one lasts
    partition_pause_ticks_mean: int = 0  # how long until the next
    drop_command: int = 0  # one command, which some nodes lose again and again
    replay: int = 0  # per million of starts: old messages come once more
    wire_damage: int = 0  # bits flip on the wire: whoever receives it must notice

    # Processes.
    crash_ticks_mean: int = 0  # between two crashes of one replica; 0 = none
    crash_in_write: int = 0  # per million of writes: crash while it is in flight
    crash_after_disk_fault: int = 0  # per million of them: the machine is started anew by it
    restart_ticks_mean: int = 100
    stable_ticks: int = 0  # no crash this soon after a start
    power_cuts: int = 0
    pause_ticks_mean: int = 0  # between two pauses of one replica; 0 = none
    paused_ticks_mean: int = 0
    reformat: int = 0  # per million of restarts of one replica: its disk is lost
    reformat_in_turn: bool = False  # of any replica, once the one before is whole again
    old_copy: int = 0  # per million of restarts: an older copy is put in the volume's place
    silent_format: int = 0  # per million of restarts: an empty volume, nobody was asked
    moved_ticks_mean: int = 0  # until a volume is moved away under its process; 0 = never
    member_changes: int = 0  # standbys come and go, replicas are numbered anew

    # Disks.
    read_us_min: int = 50
    read_us_mean: int = 100
    write_us_min: int = 100
    write_us_mean: int = 200
    slow_replica: int = -1  # this one's disk is ten times slower
    torn_percent: int = 90  # of writes in flight at a crash
    read_corruption: int = 0
    write_corruption: int = 0
    write_loss: int = 0
    write_misdirection: int = 0
    read_error: int = 0  # a sector cannot be read until it is written again
    write_error: int = 0  # the process ends, as if somebody had pulled the plug
    flush_error: int = 0  # per million of flushes: it may take what the other lane has written
    disk_full_ticks_mean: int = 0  # between two times when one disk takes no new extent
    slot_faults_spread: bool = False  # each slot of the ring has its own replicas that may lose it
    overload: bool = False  # everybody may lose everything: no wrong answer, if any

    # Clocks.
    clock_offset_us_max: int = 0
    clock_drift_ppm_max: int = 0
    clock_step_ticks_mean: int = 0  # 0 = no steps
    clock_liar: int = -1  # this one's wall clock is wrong by an hour

    @property
    def member_count(self) -> int:
        """Replicas and standbys."""
        return self.replica_count + self.standby_count

    @property
    def voters_max(self) -> int:
        """Members that vote, or may come to."""
        return self.member_count if self.member_changes else self.replica_count

    def describe(self) -> str:
        """One `name = value` a line, in the order above."""
        return "\n".join(f"{f.name} = {getattr(self, f.name)}" for f in fields(self))


def draw(seed: int, mode: str) -> Options:
    """The options of `seed`; the same on every machine."""
    assert mode in MODES
    prng = Prng(seed * len(MODES) + MODES.index(mode))
    if mode == SWARM:
        return _draw_swarm(prng, seed)
    return _draw_lite(prng, seed) if seed < UNKIND_LITE_FROM else _draw_unkind_lite(prng, seed)


def parse(options: Options, settings: Iterable[str]) -> Options:
    """`options` with some changed, each as `name=value`; ValueError for what is no option."""
    changed: dict[str, Any] = {}
    known = {field.name: field for field in fields(Options)}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in known or not value:
            raise ValueError(f"{setting!r}: NAME=VALUE with one of the names that a run prints")
        kind = type(getattr(options, name))
        changed[name] = value == "True" if kind is bool else kind(value)
    options = replace(options, **changed)
    mistakes = options.old_copy or options.silent_format or options.moved_ticks_mean
    if options.member_changes and mistakes:
        raise ValueError(
            "member_changes needs old_copy=0, silent_format=0, moved_ticks_mean=0: one of the two"
        )
    return options


def _draw_lite(prng: Prng, seed: int) -> Options:
    return Options(
        seed=seed,
        mode=LITE,
        safety_ticks=2_500,
        liveness_ticks=2_000,
        replica_count=3,
        view_first=prng.below(3),
        chat=prng.chance(1, 3),
        edge_count=2,
        batch_max=2,
        devices_per_room=prng.between(1, 2),
        records_per_device=200,
        think_us=prng.between(100_000, 400_000),
        delay_us_mean=prng.between(100, 2_000),
        crash_ticks_mean=prng.between(300, 2_000),
        crash_in_write=prng.choice((0, 2_000, 10_000)),
        restart_ticks_mean=prng.between(10, 300),
        power_cuts=1 if prng.chance(1, 5) else 0,
        torn_percent=prng.between(80, 100),
    )


def _draw_unkind_lite(prng: Prng, seed: int) -> Options:
    """A lite world with one of the youngest classes of faults, and often frames by the batch."""
    options = _draw_lite(prng.fork(), seed)
    kind = prng.choice((_flushes, _mistakes, _widths, _newcomers, _retention, _moves, _unrest))
    if kind == _unrest:
        options = replace(options, standby_count=prng.below(3), member_changes=prng.between(1, 5))
    if kind == _mistakes and prng.chance(1, 3):
        options = replace(options, reformat=300_000)
    drawn = options
    while drawn == options:  # the swarm has most of its worlds without
        drawn = kind(prng.fork(), options)
    while prng.chance(1, 2):
        drawn = _reads(prng.fork(), drawn)
    # Shorter, since they are many; what happens once in a while has to happen sooner.
    return replace(drawn, safety_ticks=1_500, moved_ticks_mean=drawn.moved_ticks_mean // 4)


def _draw_swarm(prng: Prng, seed: int) -> Options:
    """Each class of options has a generator of its own: one draw more moves no other class."""
    count = prng.choice((1, 2, 3, 3, 3, 3, 3, 4, 5, REPLICAS_MAX))
    options = Options(seed=seed, mode=SWARM, replica_count=count, view_first=prng.below(count))
    for draw_class in (
        _load,
        _network,
        _partitions,
        _processes,
        _disks,
        _clocks,
        _members,
        _rare,
        _overload,
        _changes,
        _haste,
        _replays,
        _flushes,
        _reads,
        _mistakes,
    ):
        options = draw_class(prng.fork(), options)
    if seed >= UNKIND_FROM:
        for draw_class in (_widths, _newcomers, _retention, _moves, _unrest):
            options = draw_class(prng.fork(), options)
    return options


def _load(prng: Prng, options: Options) -> Options:
    rooms = prng.between(1, 2)
    return replace(
        options,
        chat=prng.chance(1, 3),
        edge_crash_ticks_mean=prng.choice((0, 2_000, 10_000)),
        edge_count=prng.between(1, 3),
        sessions_per_edge=prng.choice((1, 1, 1, 2, 3)),
        room_count=rooms,
        devices_per_room=prng.between(1, 6 // rooms - 1),
        records_per_device=prng.between(100, 400),
        batch_max=prng.between(1, 7),
        think_us=prng.between(50_000, 400_000),
        device_retry=prng.choice((0, 20_000, 100_000)),
        session_kill=prng.choice((0, 0, 5_000, 50_000)),
        session_patience_ticks=prng.between(200, 1_000),
    )


def _network(prng: Prng, options: Options) -> Options:
    """Most networks are those of a machine room, the others of a bad day far away."""
    if prng.chance(2, 3):
        delay_min, delay_mean = prng.between(20, 500), prng.between(100, 3_000)
    else:
        delay_min, delay_mean = prng.between(0, 30_000), prng.between(2_000, 40_000)
    return replace(
        options,
        delay_us_min=delay_min,
        delay_us_mean=delay_mean,
        loss=prng.choice((0, 0, 1_000, 20_000, 100_000, 300_000)),
        duplicate=prng.choice((0, 0, 10_000, 100_000, 500_000)),
        capacity=prng.choice((1_000, 1_000, prng.between(8, 64))),
        clog=prng.choice((0, 0, 0, 500, 5_000)),
        clog_us_mean=prng.between(100_000, 3_000_000),
        drop_command=prng.choice(COMMANDS_DROPPED[1:]) if prng.chance(1, 10) else 0,
    )


def _partitions(prng: Prng, options: Options) -> Options:
    if options.replica_count == 1 or prng.chance(1, 3):
        return options
    return replace(
        options,
        partition=prng.choice(PARTITIONS[1:]),
        partition_one_way=prng.chance(1, 3),
        partition_ticks_mean=prng.between(50, 1_000),
        partition_pause_ticks_mean=prng.between(100, 2_000),
    )


def _processes(prng: Prng, options: Options) -> Options:
    if prng.chance(1, 5):
        return options
    return replace(
        options,
        crash_ticks_mean=prng.between(500, 10_000),
        restart_ticks_mean=prng.between(10, 1_000),
        crash_in_write=prng.choice((0, 1_000, 5_000)),
        stable_ticks=prng.choice((0, 0, 100, 1_000)),
        power_cuts=prng.between(1, 3) if prng.chance(1, 5) else 0,
        pause_ticks_mean=prng.choice((0, 0, prng.between(1_000, 12_000))),
        paused_ticks_mean=prng.between(5, 500),
    )


def _disks(prng: Prng, options: Options) -> Options:
    options = replace(
        options,
        read_us_min=prng.between(20, 1_000),
        read_us_mean=prng.between(50, 5_000),
        write_us_min=prng.between(50, 2_000),
        write_us_mean=prng.between(100, 10_000),
        torn_percent=prng.between(80, 100),
        slow_replica=prng.below(options.replica_count) if prng.chance(1, 10) else -1,
    )
    if options.replica_count == 1 or prng.chance(1, 2):
        return options
    spread = prng.chance(1, 4)
    return replace(
        options,
        slot_faults_spread=spread,
        read_corruption=prng.choice((0, 100, 1_000) if spread else (0, 1_000, 10_000, 100_000)),
        write_corruption=prng.choice((0, 1_000, 10_000, 50_000)),
        write_loss=prng.choice((0, 1_000, 10_000, 50_000)),
        write_misdirection=prng.choice((0, 0, 1_000, 10_000)),
        crash_after_disk_fault=prng.choice((0, 100_000, 500_000)),
        read_error=prng.choice((0, 0, 100, 1_000) if spread else (0, 0, 1_000, 10_000)),
    )


def _clocks(prng: Prng, options: Options) -> Options:
    if prng.chance(1, 2):
        return options
    return replace(
        options,
        clock_offset_us_max=prng.choice((1_000, 100_000, 2_000_000)),
        clock_drift_ppm_max=prng.choice((0, 50, 500)),
        clock_step_ticks_mean=prng.choice((0, 0, 3_000)),
    )


def _members(prng: Prng, options: Options) -> Options:
    """Standbys follow the log and have no say in it."""
    count = prng.choice((0, 0, 0, 1, 1, 2)) if options.replica_count > 1 else 0
    return replace(options, standby_count=min(count, MEMBERS_MAX - options.replica_count))


def _rare(prng: Prng, options: Options) -> Options:
    """What few worlds have, since it outweighs the rest."""
    count = options.replica_count
    if prng.chance(1, 10):
        options = replace(options, wire_damage=prng.choice((1_000, 5_000, 20_000)))
    if prng.chance(1, 10) and count >= 2:
        options = replace(options, write_error=prng.choice((100, 1_000)))
    if prng.chance(1, 10) and count >= 2:
        options = replace(options, disk_full_ticks_mean=prng.between(500, 5_000))
    if prng.chance(1, 10) and count >= 3:
        options = replace(options, clock_liar=prng.below(count))
    if prng.chance(1, 10) and count >= 3 and options.crash_ticks_mean:
        # A lost disk is the only thing that its world's disks do wrong.
        options = replace(
            options,
            reformat=300_000,
            read_corruption=0,
            write_corruption=0,
            write_loss=0,
            write_misdirection=0,
            read_error=0,
        )
    return options


def _overload(prng: Prng, options: Options) -> Options:
    """More damage than replication can mend, all of it such as a disk or a digest tells.

    A lost write is not: both copies of an acknowledged prepare lost on a quorum look as if it had
    never been.
    """
    if not prng.chance(1, 12) or options.replica_count == 1 or options.reformat:
        return options
    return replace(
        options,
        overload=True,
        slot_faults_spread=True,
        write_loss=0,
        write_misdirection=0,
        read_corruption=prng.choice((1_000, 10_000)),
        read_error=prng.choice((0, 1_000)),
        write_corruption=prng.choice((1_000, 10_000)),
    )


def _changes(prng: Prng, options: Options) -> Options:
    """The group itself changes, where the operator has no disks to replace."""
    if not prng.chance(1, 4) or options.replica_count == 1 or options.reformat or options.overload:
        return options
    return replace(options, member_changes=prng.between(1, 5))


def _haste(prng: Prng, options: Options) -> Options:
    """Devices that hardly think: pipelines are full, and a power cut meets many writes."""
    if not prng.chance(1, 6) or options.overload:
        return options
    return replace(
        options,
        safety_ticks=3_000,
        think_us=prng.between(1_000, 20_000),
        batch_max=prng.between(3, 7),
        records_per_device=600,
        devices_per_room=3,
        sessions_per_edge=max(options.sessions_per_edge, 3),
        power_cuts=max(options.power_cuts, prng.between(0, 3)),
    )


def _replays(prng: Prng, options: Options) -> Options:
    """Somebody on the wire has kept what a replica heard, and plays it back when it starts."""
    if not prng.chance(1, 5) or options.replica_count == 1:
        return options
    return replace(options, replay=prng.choice((300_000, 1_000_000)))


def _flushes(prng: Prng, options: Options) -> Options:
    """Flushes fail, and nothing else is wrong with the disks."""
    if not prng.chance(1, 8) or options.replica_count == 1 or options.overload:
        return options
    return replace(
        options,
        flush_error=prng.choice((1_000, 5_000)),
        read_corruption=0,
        write_corruption=0,
        write_loss=0,
        write_misdirection=0,
        read_error=0,
        write_error=0,
        disk_full_ticks_mean=0,
    )


def _reads(prng: Prng, options: Options) -> Options:
    """A process that is busy finds several frames when it comes to a connection."""
    if options.replica_count == 1 or not prng.chance(2 if options.member_changes else 1, 3):
        return options
    return replace(options, read_gap_us=prng.choice((5_000, 20_000, 50_000)))


def _mistakes(prng: Prng, options: Options) -> Options:
    """An operator in a hurry, whose disks do nothing else wrong; or disks lost one by one."""
    apt = options.replica_count >= 3 and options.crash_ticks_mean and not options.member_changes
    if not apt or options.overload or options.write_error or not prng.chance(1, 6):
        return options
    kind = prng.below(3)
    if options.reformat:
        return replace(options, reformat_in_turn=True)
    return replace(
        options,
        crash_ticks_mean=min(options.crash_ticks_mean, 2_000),
        old_copy=500_000 if kind != 1 else 0,
        silent_format=500_000 if kind == 1 else 0,
        reformat=0,
        read_corruption=0,
        write_corruption=0,
        write_loss=0,
        write_misdirection=0,
        read_error=0,
    )


def _widths(prng: Prng, options: Options) -> Options:
    """Narrow links: a full prepare keeps a heartbeat behind it waiting."""
    if not prng.chance(1, 8) or options.replica_count == 1:
        return options
    return replace(options, link_bytes_per_ms=prng.choice((200, 1_000, 5_000)))


def _newcomers(prng: Prng, options: Options) -> Options:
    """Devices that say little and come no more, one after the other: far more than the table of
    windows has places. They know the time, as the group does.
    """
    if not prng.chance(1, 8) or options.overload:
        return options
    return replace(
        options,
        chat=False,
        newcomers=prng.between(30, 200),
        records_per_device=prng.between(2, 12),
        devices_per_room=3,
        device_retry=prng.choice((50_000, 200_000)),
        clock_offset_us_max=0,
        clock_drift_ppm_max=0,
        clock_step_ticks_mean=0,
        clock_liar=-1,
    )


def _retention(prng: Prng, options: Options) -> Options:
    """Few extents, which are used again once what lies in them was given up."""
    if not prng.chance(1, 8) or options.overload:
        return options
    if options.newcomers:
        options = replace(options, newcomers=2 * options.newcomers)
    return replace(
        options,
        chat=False,
        keep_segments=prng.between(1, 2),
        segments_max=prng.between(5, 7),
        think_us=prng.between(1_000, 50_000),
        batch_max=7,
        records_per_device=8 if options.newcomers else 1_200,
        devices_per_room=3 if options.newcomers else 2,  # and all have windows
    )


def _moves(prng: Prng, options: Options) -> Options:
    """Somebody moves a volume away while its process works on it, and wants another one; or sets
    one machine after the other up anew, and asks nobody.
    """
    apt = options.replica_count >= 3 and options.crash_ticks_mean and not options.member_changes
    if not apt or options.overload or options.write_error or not prng.chance(1, 4):
        return options
    if options.reformat or options.old_copy or options.silent_format:
        return options
    silent = prng.chance(1, 3)
    return replace(
        options,
        crash_ticks_mean=min(options.crash_ticks_mean, 2_000),
        moved_ticks_mean=0 if silent else prng.between(500, 3_000),
        silent_format=500_000 if silent else 0,
        read_corruption=0,
        write_corruption=0,
        write_loss=0,
        write_misdirection=0,
        read_error=0,
    )


def _unrest(prng: Prng, options: Options) -> Options:
    """Members that are numbered anew all the time; or lose their disks meanwhile, in turn."""
    if not options.member_changes or options.replica_count < 3 or not prng.chance(1, 3):
        return options
    if options.crash_ticks_mean and not options.write_error and prng.chance(1, 2):
        return replace(
            options,
            reformat=200_000,
            reformat_in_turn=True,
            read_corruption=0,
            write_corruption=0,
            write_loss=0,
            write_misdirection=0,
            read_error=0,
        )
    return replace(options, member_changes=40)
