"""One seed of federated sites: faults, then peace, then the verdict."""

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

from appliance.base.limits import CHANNEL_TEXT_KEPT_MAX
from appliance.base.prng import Prng
from appliance.cores.federation import effects as told
from appliance.simulation.failure import Violation
from appliance.simulation.federation.checkers import Checkers
from appliance.simulation.federation.network import SiteNetwork
from appliance.simulation.federation.options import MINUTE_MS, Options
from appliance.simulation.federation.site import Site
from appliance.simulation.federation.store import MemoryStore
from appliance.simulation.schedule import Schedule

START_MS = 1_700_000_000_000  # true time when the world begins
PEACE_MS = 12 * 60 * MINUTE_MS  # after the faults, all must be equal within this
POLL_MS = 30_000  # so often it is looked whether they are
LINES_KEPT = 40
TICK_MS_MIN = 1


@dataclass(slots=True)
class Outcome:
    """What came of a seed."""

    options: Options
    digest: str
    rule: str = ""
    failure: str = ""
    quiet_ms: int = 0  # from the end of the faults until all were equal
    counts: dict[str, int] = field(default_factory=dict)
    last: list[str] = field(default_factory=list)


class FederationWorld:
    """Sites, network and faults of one seed."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.schedule = Schedule()
        self.prng = Prng(options.seed ^ 0x5D5)
        parameters = options.parameters()
        self.network = SiteNetwork(options, self.schedule, self.prng.fork())
        self.sites = [
            Site(number, parameters, self.prng.fork(), options.skew_ms)
            for number in range(options.sites)
        ]
        self.checkers = Checkers(self.sites)
        self.counts: Counter[str] = Counter()
        self._timers = [0] * options.sites  # number of the timer that counts
        self._chain = blake2b(digest_size=16)
        self._last: list[str] = []

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """The verdict; a rule that broke is in it, not raised."""
        outcome = Outcome(self.options, "")
        try:
            for site in self.sites:
                self._start(site)
            self._plan()
            end_us = self.options.span_ms * 1000 + self.options.quorum_lost_ms * 1000
            self.schedule.run_until(end_us)
            self._make_peace()
            outcome.quiet_ms = self._wait_for_quiet()
            self.checkers.final()
        except Violation as error:
            outcome.rule, outcome.failure = error.checker, str(error)
        except AssertionError as error:
            outcome.rule, outcome.failure = "invariant", f"invariant: {error!r}"
        outcome.digest = self._chain.hexdigest()
        outcome.counts = dict(self.counts | Counter(self.network.counts))
        outcome.last = self._last[-LINES_KEPT:]
        return outcome

    def _wait_for_quiet(self) -> int:
        start_us = self.schedule.now_us
        while True:
            different = self.checkers.unequal()
            quiet_ms = (self.schedule.now_us - start_us) // 1000
            if not different:
                return quiet_ms
            if quiet_ms > PEACE_MS:
                raise Violation("convergence", f"after {quiet_ms // MINUTE_MS} min {different}")
            self.schedule.run_until(self.schedule.now_us + POLL_MS * 1000)

    def true_ms(self) -> int:
        return START_MS + self.schedule.now_us // 1000

    def trace(self, site: Site, what: str) -> None:
        line = f"{self.schedule.now_us // 1000} {site.name} {what}"
        self._chain.update(line.encode())
        self._last.append(line)
        if len(self._last) > 4 * LINES_KEPT:
            del self._last[: 2 * LINES_KEPT]

    # --- the plan of a seed -----------------------------------------------------------------------

    def _plan(self) -> None:
        options, prng = self.options, self.prng
        span_us = options.span_ms * 1000
        for number in range(options.messages):
            site = prng.below(options.sites)
            self.schedule.at(prng.below(span_us), self._post, site, number)
        for count, event in (
            (options.crashes, self._crash),
            (options.takeovers, self._take_over),
            (options.disks_lost, self._lose_disk),
        ):
            for _ in range(count):
                self.schedule.at(prng.below(span_us), event, prng.below(options.sites))
        for _ in range(options.cuts):
            begin = prng.below(span_us)
            self.schedule.at(begin, self._cut)
            self.schedule.at(begin + options.cut_ms * 1000, self._heal)
        if options.quorum_lost_ms:
            site = prng.below(options.sites)
            begin = prng.below(span_us)
            self.schedule.at(begin, self._lose_quorum, site)
            self.schedule.at(begin + options.quorum_lost_ms * 1000, self._regain_quorum, site)

    def _post(self, number: int, message: int) -> None:
        site = self.sites[number]
        text = f"{site.name} says {message}"
        if message % 2:  # too long to be kept beside the log of a site that has it too
            text = text.ljust(CHANNEL_TEXT_KEPT_MAX + 1)
        site.posts.append(text.encode())
        self.trace(site, f"post {message}")
        self._commit(number)

    def _cut(self) -> None:
        self.network.side = [self.prng.below(2) for _ in self.sites]
        self.network.one_way = self.prng.chance(1, 2)
        self.counts["cuts"] += 1

    def _heal(self) -> None:
        self.network.side = [0] * len(self.sites)
        for site in self.sites:
            if site.channel is not None:
                self._carry_out(site, site.channel.on_link_up(site.now_ms(self.true_ms())))

    def _lose_quorum(self, number: int) -> None:
        self.sites[number].quorum = False
        self.counts["quorums_lost"] += 1

    def _regain_quorum(self, number: int) -> None:
        self.sites[number].quorum = True
        self._commit(number)

    def _crash(self, number: int) -> None:
        """At the next input: before its writes are kept, or after, before anything else is done."""
        site = self.sites[number]
        if site.channel is not None:
            site.crash_at = self.prng.choice(("before", "after"))

    def _crashed(self, site: Site) -> None:
        self.trace(site, "crash")
        self.counts["crashes"] += 1
        site.stop()
        delay_us = self.prng.between(1, 60_000) * 1000
        self.schedule.after(delay_us, self._restart, site.number)

    def _restart(self, number: int) -> None:
        site = self.sites[number]
        if site.channel is None:
            self._start(site)

    def _take_over(self, number: int) -> None:
        """Another node carries the channel; its store is empty, or old."""
        site = self.sites[number]
        site.stop()
        site.carrier = (site.carrier + 1) % len(site.nodes)
        self.trace(site, f"takeover by {site.carrier}")
        self.counts["takeovers"] += 1
        self._start(site)

    def _lose_disk(self, number: int) -> None:
        site = self.sites[number]
        site.stop()
        site.node.store = MemoryStore(site.log)
        self.trace(site, "disk lost")
        self.counts["disks_lost"] += 1
        self._start(site)

    def _make_peace(self) -> None:
        self._heal()
        self.network.spoil_filters = False
        for site in self.sites:
            site.quorum = True
            site.crash_at = ""
            if site.channel is None:
                self._start(site)
            self._commit(site.number)

    # --- a site's loop ----------------------------------------------------------------------------

    def _start(self, site: Site) -> None:
        self.trace(site, "start")
        effects = site.start(self.true_ms())
        self._check_own(site)
        self._act(site, effects)
        self._commit(site.number)
        self._arm(site)

    def _carry_out(self, site: Site, effects: list[told.Effect]) -> None:
        """Writes, whole; then the rest, unless the node dies between."""
        assert site.channel is not None
        if site.crash_at == "before":
            self._crashed(site)
            return
        site.write(effects)
        if site.crash_at == "after":
            self._crashed(site)
            return
        self._act(site, effects)
        self._arm(site)

    def _act(self, site: Site, effects: list[told.Effect]) -> None:
        channel = site.channel
        assert channel is not None
        self.checkers.on_effects(site, channel, effects, site.now_ms(self.true_ms()))
        appended = False
        for effect in effects:
            if isinstance(effect, told.Broadcast):
                self.counts[effect.kind] += 1
                self.trace(site, f"send {effect.kind} {len(effect.data)}")
                for other in self.network.neighbours(site.number):
                    self.network.send(site.number, other, effect.data, self._receive)
            elif isinstance(effect, told.Append):
                if channel.is_due(effect.message_id):
                    site.appends.append(effect)
                    appended = True
            elif isinstance(effect, told.Retrieve):
                self._retrieve(site, effect)
            elif not isinstance(effect, told.Write):
                name = type(effect).__name__
                self.counts[name] += 1
                self.trace(site, f"{name} {getattr(effect, 'message_id', '')}")
        if appended:
            self.schedule.after(2_000, self._commit, site.number)

    def _retrieve(self, site: Site, effect: told.Retrieve) -> None:
        """Every neighbour's store is asked, and answers by itself."""
        self.counts["retrieve"] += 1
        for other in self.network.neighbours(site.number):
            asked = self.sites[other]
            if asked.channel is None:
                continue
            held, _ = asked.channel.on_want(effect.entries)
            for data in held:
                self.network.send(other, site.number, data, self._receive)

    def _commit(self, number: int) -> None:
        """The log takes what is offered; the carrying node takes what the log has, in its order."""
        site = self.sites[number]
        site.commit(self.true_ms())
        while site.channel is not None and site.taken < len(site.log):
            record = site.log[site.taken]
            index = site.taken
            site.taken += 1
            now_ms = site.now_ms(self.true_ms())
            if record.sender:
                effects = site.channel.on_committed(record, now_ms)
            else:
                effects = site.channel.on_local(
                    record.content, now_ms, timestamp_ms=record.timestamp_ms
                )
                for effect in effects:
                    if isinstance(effect, told.Sent):
                        self.checkers.on_own(site, effect.message_id, index, effect.lamport)
            self._carry_out(site, effects)

    def _check_own(self, site: Site) -> None:
        """After a start the ids of local messages are those that they had before."""
        assert site.channel is not None
        own = [
            (lamport, message_id)
            for lamport, message_id in site.channel.order()
            if (row := site.channel.state.row_of(message_id)) and row.sender == site.name
        ]
        indexes = [index for index, record in enumerate(site.log) if not record.sender]
        if len(own) != len(indexes):
            raise Violation("own messages after a start", f"{site.name}: {len(own)}")
        for (lamport, message_id), index in zip(own, indexes, strict=True):
            self.checkers.on_own(site, message_id, index, lamport)

    def _receive(self, number: int, source: int, data: bytes) -> None:
        site = self.sites[number]
        if site.channel is None:
            return
        self.trace(site, f"receive {source} {len(data)}")
        self.checkers.on_input(site, data)
        self._carry_out(site, site.channel.on_message(data, site.now_ms(self.true_ms())))

    def _arm(self, site: Site) -> None:
        """One timer for each site: the newest counts."""
        if site.channel is None:
            return
        self._timers[site.number] += 1
        wait_ms = site.channel.deadline() - site.now_ms(self.true_ms())
        delay_us = max(TICK_MS_MIN, wait_ms) * 1000
        self.schedule.after(delay_us, self._tick, site.number, self._timers[site.number])

    def _tick(self, number: int, timer: int) -> None:
        site = self.sites[number]
        if site.channel is None or timer != self._timers[number]:
            return
        self._carry_out(site, site.channel.on_tick(site.now_ms(self.true_ms())))
