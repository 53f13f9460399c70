"""Where the messages of a shared room stand in the order of all its sites, and who has ours."""

from collections.abc import Iterator

from appliance.base.limits import POSITIONS_FRESH_MAX
from appliance.cores.federation.effects import Delivered, Write
from appliance.formats.causal import rows
from appliance.formats.causal.rows import PositionRow
from appliance.formats.live import Position
from appliance.formats.sharing import Federated
from appliance.roles.federation.store import LmdbChannelStore

_FOLLOWED_MAX = 10_000  # messages whose acknowledgements are looked for; older ones keep theirs


class Positions:
    """Of one room, by number of the record. Rows become durable with those of the channel.

    `fresh`: numbers of those that changed since they were last taken, oldest first.
    """

    def __init__(self, store: LmdbChannelStore, me: str, others: list[str]) -> None:
        self._store, self._me, self._others = store, me, others
        self.fresh: dict[int, None] = {}
        self._op_of: dict[str, int] = {}  # ours that not all others have, new foreign ones
        self._holders: dict[str, set[str]] = {}  # of the parts of ours: who has which
        newest = store.items_backwards(rows.POSITION, rows.end_of(rows.POSITION))
        for (key, value), _ in zip(newest, range(_FOLLOWED_MAX), strict=False):
            row = rows.decode_position(value)
            if row.site == me and len(row.held) < len(others):
                op = int.from_bytes(key[1:], "big")
                self._op_of |= {found.hex(): op for found in row.ids}

    def follow(self, others: list[str]) -> None:
        """The sites whose acknowledgements are waited for, from now on."""
        self._others = others

    def _put(self, op: int, row: PositionRow) -> None:
        self._store.apply([Write(rows.position_key(op), rows.encode_position(row))])
        self.fresh.pop(op, None)
        self.fresh[op] = None
        if len(self.fresh) > POSITIONS_FRESH_MAX:
            del self.fresh[next(iter(self.fresh))]

    def _row(self, op: int) -> PositionRow | None:
        raw = self._store.get(rows.position_key(op))
        return None if raw is None else rows.decode_position(raw)

    def _follow(self, message_id: str, op: int) -> None:
        self._op_of[message_id] = op
        if len(self._op_of) > _FOLLOWED_MAX:
            oldest = next(iter(self._op_of))
            del self._op_of[oldest]
            self._holders.pop(oldest, None)

    # --- what the log has

    def note_own(self, op: int, time_us: int, positions: list[tuple[int, str]]) -> None:
        """A message of this site; `positions` are (lamport, id) of its parts."""
        ids = [bytes.fromhex(message_id) for _, message_id in positions]
        self._put(op, PositionRow(self._me, positions[0][0], ids, time_us))
        for _, message_id in positions:
            self._follow(message_id, op)

    def note_foreign(self, op: int, site: str, prefix: Federated) -> None:
        """A message of another site."""
        row = PositionRow(
            site, prefix.lamport, [prefix.message_id], prefix.time_us, prefix.part, prefix.parts
        )
        self._put(op, row)
        self._follow(prefix.message_id.hex(), op)

    # --- what the channel tells

    def on_delivered(self, told: Delivered) -> None:
        """A message of another site entered the channel's log."""
        op = self._op_of.pop(told.message_id, None)
        row = None if op is None or not (told.gap or told.late) else self._row(op)
        if op is not None and row is not None:
            row.gap, row.late = bool(told.gap), told.late
            self._put(op, row)

    def on_holds(self, site: str, message_ids: tuple[str, ...]) -> None:
        """The log of `site` has these of ours."""
        for message_id in message_ids:
            op = self._op_of.get(message_id)
            holders = self._holders.setdefault(message_id, set()) if op is not None else {site}
            if op is None or site in holders:
                continue
            holders.add(site)
            self._tick(op, site)

    def _tick(self, op: int, site: str) -> None:
        """`site` has one more part: if it has all, that is told."""
        row = self._row(op)
        if row is None or site in row.held:
            return
        parts = [found.hex() for found in row.ids]
        if all(site in self._holders.get(part, ()) for part in parts):
            row.held = sorted([*row.held, site])
            self._put(op, row)
        if set(row.held) >= set(self._others):
            for part in parts:
                self._op_of.pop(part, None)
                self._holders.pop(part, None)

    # --- told

    def take_fresh(self, most: int) -> list[Position]:
        """The oldest of what changed."""
        ops = list(self.fresh)[:most]
        for op in ops:
            del self.fresh[op]
        return list(self._of(ops))

    def between(self, first: int, last: int) -> list[Position]:
        """Those of the records from `first` to `last` that have one."""
        return list(self._of(range(first, last + 1)))

    def _of(self, ops: "list[int] | range") -> Iterator[Position]:
        for op in ops:
            row = self._row(op)
            if row is not None:
                first = row.ids[0].hex()
                yield Position(
                    op,
                    row.site,
                    row.lamport,
                    first,
                    row.time_us,
                    row.part,
                    row.parts,
                    row.gap,
                    row.late,
                    row.held,
                )
