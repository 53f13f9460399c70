"""The shipper of one shard: from what the shard remembers, the one step to do next."""

from dataclasses import dataclass, replace

from appliance.base.prng import Prng
from appliance.cores.shipping.chosen import Chosen
from appliance.cores.shipping.plan import (
    SECOND_US,
    Part,
    parts,
    period_end,
    period_start,
    sealed_parts,
)
from appliance.cores.shipping.role import Role
from appliance.cores.shipping.seams import SeekSeams
from appliance.cores.shipping.source import NO_TIME, LogTime, Source
from appliance.formats.checkpoint import ShippingState
from appliance.formats.event import SHIP_ANNOUNCE, SHIP_CLAIM, SHIP_MANIFEST, Shipped
from appliance.formats.manifest import PeriodManifest, ShippedFile, ShippedHead, manifest_hash

PAUSE_US_MIN, PAUSE_US_MAX = 500_000, 30 * SECOND_US  # after a failure; doubled, with jitter
REFUSED_PAUSE_US = 200_000  # the log did not take a record: look at the state again; doubled too
CHECKS_PER_PATIENCE = 4  # at the target, while somebody else ships and is late


@dataclass(frozen=True, slots=True)
class Append:
    """Write a shipped record into the shard's log."""

    shipped: Shipped


@dataclass(frozen=True, slots=True)
class Put:
    """Have a file of these records in the folder of the period; report what it is."""

    part: Part
    period_start_us: int


@dataclass(frozen=True, slots=True)
class PutManifest:
    """Have this manifest in the folder of its period, and nothing else of its range there."""

    manifest: PeriodManifest


@dataclass(frozen=True, slots=True)
class PutHead:
    """Have head.json name this manifest, if it does not name a newer one."""

    head: ShippedHead


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove from _incoming what shippers up to this generation have left there."""

    generation: int


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """Tell what lies under _incoming and in the running period: does another shipper move?"""

    period_start_us: int


@dataclass(frozen=True, slots=True)
class Compare:
    """See whether what the log calls shipped lies at this target: it may be a new one. What does
    not is put there, as far as the log still has it."""


Step = Append | Put | PutManifest | PutHead | Sweep | CheckTarget | Compare | SeekSeams


class Shipper:
    """Inputs: state of the shard, outcome of the last step, `now_us` of a clock that only goes
    forward. Output: `step`.

    Invariants: `files` describes only what was read back at the target in this claim; nothing is
    appended twice before the state shows the first.
    """

    def __init__(self, role: Role, prng: Prng) -> None:
        self.role = role
        self._prng = prng
        self.state = ShippingState()
        self.cursor = 0
        self._state_log_seq = -1  # records that the state has seen; -1: none was told yet
        self.generation = 0  # of our own claim; 0: we never claimed
        self.files: dict[Part, ShippedFile] = {}
        self._manifest_put = b""
        self._head_number = -1  # of the newest head known to be at the target
        self._swept = False
        self._compared = not role.shared  # a folder of this node alone never has all
        self.hole = ""  # what of the past the target lacks and the log cannot give, in words
        self._close_at_us = 0  # the operator wants a period to end then; 0: no wish is open
        self.log_time = LogTime()
        self._await_log_seq = 0
        self._retry_at_us = 0
        self.failures = self._refusals = 0  # in a row
        self.error = ""  # why the last step failed; empty while they succeed
        self._known_at_us: int | None = None  # when the state last changed
        self._quiet_since_us: int | None = None  # since when the target shows no other's moves
        self._check_at_us = 0
        self._seen: tuple[object, ...] = ()
        self._asked_to_claim = False
        self.chosen = Chosen()  # by the farm; whoever reads its directory tells

    # --- inputs

    def on_state(
        self, state: ShippingState, cursor: int, log_seq: int, now_us: int, log: LogTime = NO_TIME
    ) -> None:
        """What this node's replica has applied, as of record `log_seq`, and the log's time now."""
        if log_seq < self._state_log_seq:
            return
        self.log_time = log
        if (state, cursor) != (self.state, self.cursor) or self._known_at_us is None:
            self._known_at_us, self._quiet_since_us = now_us, None
        self.state, self.cursor, self._state_log_seq = state, cursor, log_seq
        if state.period_start_us >= self._close_at_us:
            self._close_at_us = 0
        for part in [part for part in self.files if part.last_log_seq <= cursor]:
            del self.files[part]

    def on_members(self, members: tuple[int, ...]) -> None:
        """The nodes that hold the shard are these now, in the order of turns."""
        self.role = replace(self.role, members=members)

    def on_appended(self, step: Append, accepted: bool, log_seq: int, now_us: int) -> None:
        """The log has answered; an accepted record has this place."""
        self._succeeded()
        if not accepted:
            pause_us = min(PAUSE_US_MAX, REFUSED_PAUSE_US << min(self._refusals, 16))
            self._refusals += 1
            self._retry_at_us = now_us + pause_us
            return
        self._refusals = 0
        self._await_log_seq = log_seq
        if step.shipped.action == SHIP_CLAIM:
            self.generation = step.shipped.generation
            self.files.clear()
            self._manifest_put, self._swept, self._head_number = b"", False, -1
            self._compared = not self.role.shared
            self._asked_to_claim = self.chosen.due = False
        elif step.shipped.action == SHIP_MANIFEST:
            self._manifest_put, self._swept = b"", False
            self._compared |= step.shipped.number == 0  # nothing was shipped before

    def on_put(self, step: Put, file: ShippedFile) -> None:
        """The file lies at the target and was read back."""
        self._succeeded()
        self.files[step.part] = file

    def on_done(self, step: PutManifest | PutHead | Sweep | SeekSeams) -> None:
        """The step is done."""
        self._succeeded()
        if isinstance(step, PutManifest):
            self._manifest_put = manifest_hash(step.manifest)
        elif isinstance(step, PutHead):
            self._head_number = step.head.number
        elif isinstance(step, Sweep):
            self._swept = True

    def on_compared(self, hole: str) -> None:
        """What the log calls shipped lies at the target, but for `hole`."""
        self._succeeded()
        self._compared, self.hole = True, hole

    def on_checked(self, seen: tuple[object, ...], now_us: int) -> None:
        """What lies at the target, in any form that differs when something moved."""
        self._succeeded()
        if seen != self._seen or self._quiet_since_us is None:
            self._seen, self._quiet_since_us = seen, now_us

    def on_failed(self, step: Step, reason: str, now_us: int) -> None:
        """The step was not done; it is asked for again after a pause that grows."""
        self.failures += 1
        self.error = reason
        most = min(PAUSE_US_MAX, PAUSE_US_MIN << min(self.failures, 16))
        self._retry_at_us = now_us + self._prng.between(most // 2, most)
        if isinstance(step, CheckTarget):
            self._quiet_since_us = None  # the target is gone for us too: no reason to claim

    def hurry(self, *, claim: bool, close_at_us: int = 0) -> None:
        """The operator asks: no pause; with `claim`, ship from here; with `close_at_us`, in whole
        seconds, end the period that holds that moment then."""
        assert close_at_us % SECOND_US == 0
        self._retry_at_us = self._refusals = 0
        self._asked_to_claim = claim
        self._close_at_us = max(self._close_at_us, close_at_us)

    def _succeeded(self) -> None:
        self.failures, self.error = 0, ""

    # --- looking

    @property
    def awaits(self) -> bool:
        """Whether the state does not show yet what we wrote."""
        return self._state_log_seq < self._await_log_seq

    @property
    def headed(self) -> int:
        """Manifests, from the first on, that the head at the target is known to follow."""
        return self._head_number + 1

    @property
    def settled(self) -> bool:
        """Whether nothing is under way: no period half closed, and the head names the newest."""
        return (
            self._state_log_seq >= 0
            and not self.awaits
            and not self.state.announced_end
            and self.state.manifest_count == self.headed
        )

    @property
    def closing(self) -> bool:
        """Whether a period that the operator wants to end is not told as shipped yet."""
        return self._close_at_us > 0

    @property
    def ships(self) -> bool:
        """Whether the newest claim is our own."""
        return self.generation > 0 and (self.state.generation, self.state.node) == (
            self.generation,
            self.role.node,
        )

    def late_us(self, source: Source, wall_us: int) -> int:
        """By how much the end of the next period to ship has passed; 0 while it has not."""
        if source.log_seq == 0:
            return 0
        start = self._start(source)
        length = self.state.period_us if self.state.announced_end else self.role.period_us
        return max(0, self.log_time.past_us(wall_us) - period_end(start, length))

    def past_us(self, source: Source, wall_us: int) -> int:
        """What ends up to then, by the log's own time, is over: by the wall's clock, or by the log,
        whose time goes on also while it is ahead of that. Raises NotHere."""
        newest_us = source.timestamp(source.log_seq) if source.log_seq else 0
        return self.log_time.past_us(max(wall_us, newest_us))

    def _start(self, source: Source) -> int:
        """Of the next period. The first one is that of the first record to ship: where some were
        dropped before anything was shipped, it is none of these."""
        if self.state.period_start_us:
            return self.state.period_start_us
        first = min(self.cursor + 1, source.log_seq)
        return period_start(source.log_time(first, self.log_time.ahead_us), self.role.period_us)

    # --- the decision

    def step(self, source: Source, now_us: int, wall_us: int) -> Step | None:
        """What to do now; None while there is nothing. Raises NotHere when records are missing."""
        if self.awaits or self._state_log_seq < 0:
            return None  # the replica has not shown yet what we wrote
        if source.log_seq == 0 or now_us < self._retry_at_us:
            return None
        if not source.knows_seams(self.log_time.ahead_us):
            here = source.log_seq >= self._state_log_seq  # what the state tells of
            return SeekSeams(self.log_time.ahead_us, self._state_log_seq) if here else None
        if not self.ships:
            return self._claim(source, now_us, wall_us)
        if not self._swept:
            return Sweep(self.generation)
        if not self._compared and self.state.manifest_count:
            return Compare()
        if self.state.announced_end:
            return self._close(source)
        if self.state.manifest_count > self._head_number + 1:
            return PutHead(self._head())
        return self._announce(source, wall_us) or self._early(source)

    def _claim(self, source: Source, now_us: int, wall_us: int) -> Step | None:
        """Claim, or look whether to; None: another one ships, or the operator said no."""
        role, state = self.role, self.state
        if role.node not in role.members:
            return None  # removed: it is nobody's turn here
        claim = Append(Shipped(SHIP_CLAIM, role.node, state.generation + 1))
        if self._asked_to_claim:
            return claim
        if not role.may_claim:
            return None
        assert self._known_at_us is not None
        if state.node == role.node and state.generation and self.generation == 0:
            return claim  # a process before us; should it live, it is fenced
        if self.chosen.silent:
            return None
        order = self.chosen.order(role.members)
        turn = order.index(role.node)
        if state.generation == 0:
            mine = now_us - self._known_at_us >= turn * role.patience_us
            return claim if mine else None
        if role.shared and self.chosen.due:
            return claim
        if not role.shared or self.late_us(source, wall_us) < role.patience_us:
            return None
        if state.node in order:
            turn = (turn - order.index(state.node)) % len(order) or len(order)
        if now_us >= self._check_at_us:
            self._check_at_us = now_us + role.patience_us // CHECKS_PER_PATIENCE
            return CheckTarget(self._start(source))
        since_us = self._quiet_since_us
        quiet = since_us is not None and now_us - since_us >= turn * role.patience_us
        return claim if quiet else None

    def _close(self, source: Source) -> Step:
        """Files, manifest, log: what is left of the announced period."""
        state, files = self.state, []
        records, seams = self.role.segment_records, source.seams(self.log_time.ahead_us)
        for part in parts(self.cursor + 1, state.announced_end - 1, records, seams):
            if part not in self.files:
                return Put(part, state.period_start_us)
            files.append(self.files[part])
        manifest = PeriodManifest(
            cluster=self.role.cluster,
            shard=self.role.shard,
            number=state.manifest_count,
            previous=state.manifest_hash,
            period_start_us=state.period_start_us,
            period_us=state.period_us,
            first_log_seq=self.cursor + 1,
            last_log_seq=state.announced_end - 1,
            files=tuple(files),
            ahead_us=source.ahead_at(state.announced_end - 1, self.log_time.ahead_us),
        )
        digest = manifest_hash(manifest)
        if self._manifest_put != digest:
            return PutManifest(manifest)
        return Append(
            Shipped(
                SHIP_MANIFEST,
                self.role.node,
                self.generation,
                number=manifest.number,
                period_start_us=manifest.period_start_us,
                period_us=manifest.period_us,
                first_log_seq=manifest.first_log_seq,
                last_log_seq=manifest.last_log_seq,
                manifest_hash=digest,
            )
        )

    def _head(self) -> ShippedHead:
        state = self.state
        return ShippedHead(
            cluster=self.role.cluster,
            shard=self.role.shard,
            number=state.manifest_count - 1,
            manifest=state.manifest_hash,
            period_start_us=state.period_start_us - state.period_us,
            period_us=state.period_us,
            last_log_seq=self.cursor,
        )

    def _announce(self, source: Source, wall_us: int) -> Step | None:
        """Close the next period, if it is over by the log or by the clock, or by the operator's
        word."""
        start = self._start(source)
        end = period_end(start, self.role.period_us)
        if start < self._close_at_us < end:
            end = self._close_at_us
        if self.past_us(source, wall_us) < end:
            return None
        if source.is_corrected_behind(self._state_log_seq, self.log_time.ahead_us):
            return None  # the replica has not told of it yet
        return Append(
            Shipped(
                SHIP_ANNOUNCE,
                self.role.node,
                self.generation,
                number=self.state.manifest_count,
                period_start_us=start,
                period_us=end - start,
                first_log_seq=self.cursor + 1,
                last_log_seq=source.last_before(self.cursor + 1, end, self.log_time.ahead_us),
                seen_log_seq=source.log_seq,
            )
        )

    def _early(self, source: Source) -> Step | None:
        """A sealed segment of the running period that is not there yet."""
        records, seams = self.role.segment_records, source.seams(self.log_time.ahead_us)
        known = min(source.log_seq, self._state_log_seq)  # behind it may be a seam yet untold
        for part in sealed_parts(self.cursor + 1, known, records, seams):
            if part not in self.files:
                return Put(part, self._start(source))
        return None
