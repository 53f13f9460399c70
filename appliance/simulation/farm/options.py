"""What a seed of the farm draws."""

from dataclasses import dataclass, fields

from appliance.base.prng import Prng
from appliance.cores.raft.settings import Settings

OWN, LEGACY = "own", "legacy"


@dataclass(slots=True, frozen=True)
class FarmOptions:
    """Rates are chances in 10,000 each tick, unless they say otherwise."""

    seed: int
    mode: str
    members: int  # from the start, legacy ones among them
    legacy: int  # of these
    posters: int
    ticks: int  # of faults, before everything heals
    delay_us_min: int
    delay_us_max: int
    disk_us_max: int
    crash: int
    power: int  # all members at once
    partition: int
    partition_ticks: int
    break_in: int  # one delivery in so many breaks its connection; 0: none
    slow_in: int  # one connection in so many is slow; 0: none
    change: int
    yields: int
    late_ticks: int  # a listed member of ours first starts then, empty; 0: with the others
    posts_pause: int  # ticks at most between two posts of a poster
    settings: Settings

    def describe(self) -> str:
        """Every option but the settings of the core, in one line."""
        names = [f.name for f in fields(self) if f.name != "settings"]
        return " ".join(f"{name}={getattr(self, name)}" for name in names)


def draw(seed: int, mode: str) -> FarmOptions:
    """The options of a seed; the same for ever as long as this function stays as it is."""
    prng = Prng(seed * 2 + (mode == LEGACY))
    legacy = 0 if mode == OWN else prng.between(1, 2)
    members = prng.choice((3, 3, 5)) if mode == OWN else prng.choice((3, 3, 4))
    compacts = prng.chance(2, 3)
    lag = prng.between(0, 8)
    quiet = prng.chance(1, 5)
    return FarmOptions(
        seed=seed,
        mode=mode,
        members=members,
        legacy=legacy,
        posters=prng.between(1, 3),
        ticks=prng.between(400, 900),
        delay_us_min=prng.between(100, 2_000),
        delay_us_max=prng.between(2_000, 40_000),
        disk_us_max=prng.choice((0, 2_000, 20_000, 60_000)),
        crash=0 if quiet else prng.choice((0, 30, 100)),
        power=prng.choice((0, 0, 15)) if mode == OWN else 0,
        partition=0 if quiet else prng.choice((0, 50, 150)),
        partition_ticks=prng.between(10, 120),
        break_in=prng.choice((0, 300, 60)),
        slow_in=prng.choice((0, 5)),
        change=prng.choice((0, 60, 150)),
        yields=prng.choice((0, 20)) if mode == OWN else 0,
        late_ticks=0 if mode == OWN else prng.choice((0, 150, 300)),
        posts_pause=prng.choice((1, 5, 20)),
        settings=Settings(
            election_ticks_min=10,
            election_ticks_max=20,
            heartbeat_ticks=3,
            client_ticks=60,
            join_ticks=80,
            append_entries_max=prng.choice((1, 3, 50)),
            append_size_max=prng.choice((40, 4000)),
            sync_entries_max=prng.choice((2, 10)),
            sync_size_max=prng.choice((60, 8000)),
            stop_gap=prng.choice((1, 4)),
            snapshot_distance=lag + prng.between(5, 40) if compacts else 1 << 40,
            snapshot_lag=lag,
            snapshot_block_size=prng.choice((7, 64)),
            pending_max=prng.choice((2, 64)),
        ),
    )
