"""Times and sizes of a member, in ticks, entries and bytes."""

from dataclasses import dataclass

from appliance.base.limits import MIB

TICK_MS = 10  # unit of every time of a member


@dataclass(slots=True, frozen=True)
class Settings:
    """A heartbeat is at most a third of the smallest election timeout of all members."""

    election_ticks_min: int = 50
    election_ticks_max: int = 100  # drawn anew between the two, both included, at each start
    heartbeat_ticks: int = 10
    client_ticks: int = 500  # a request that nothing happens for: its connection is closed
    join_ticks: int = 1000  # without progress, then a joiner is dropped
    append_entries_max: int = 200
    append_size_max: int = 1 * MIB  # bytes of values in one append; one entry always fits
    sync_entries_max: int = 500  # entries in a SyncLog
    sync_size_max: int = 8 * MIB  # bytes of values in one, before they are packed
    stop_gap: int = 5  # entries: a joiner that is closer gets ordinary appends
    snapshot_distance: int = 20_000  # committed entries since the last snapshot
    snapshot_lag: int = 1000  # entries kept behind a snapshot for followers that are a little late
    snapshot_block_size: int = 1 * MIB
    pending_max: int = 4096  # requests of clients that wait for their commit

    def __post_init__(self) -> None:
        assert 0 < self.election_ticks_min <= self.election_ticks_max
        assert 0 < 3 * self.heartbeat_ticks <= self.election_ticks_min
        assert 0 <= self.snapshot_lag < self.snapshot_distance
        assert self.stop_gap > 0


OWN = Settings()  # members of ours alone, in one site
