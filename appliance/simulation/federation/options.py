"""What a seed draws for a world of federated sites."""

from dataclasses import dataclass, fields

from appliance.base.prng import Prng
from appliance.cores.federation.parameters import Parameters

STREAM, DATAGRAM, REPAIR = "stream", "datagram", "repair"  # REPAIR: no store answers
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Options:
    """Times in ms, chances in thousandths."""

    seed: int
    sites: int
    profile: str
    line: bool  # a site reaches its two neighbours only
    messages: int  # of all sites together
    span_ms: int  # within which they are written
    loss: int
    copies: int
    delay_ms: int  # usual; one in 20 takes up to 30 times as long
    skew_ms: int  # of a node's clock, either way
    crashes: int  # of carrying nodes, over the span
    takeovers: int
    disks_lost: int
    cuts: int
    cut_ms: int
    quorum_lost_ms: int  # at one site; 0: never
    filter_faults: int
    filter_capacity: int
    window: int  # entries of the log in memory
    outgoing: int
    waiting: int
    wanted: int

    def describe(self) -> str:
        """One line for people."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))

    def parameters(self) -> Parameters:
        """Of every channel in this world."""
        stream = self.profile == STREAM
        datagram = self.profile == DATAGRAM
        return Parameters(
            causal_entries=2 if datagram else 10,
            head_entries=8 if datagram else 50,
            filter=not datagram,
            store=stream or datagram,
            sync_interval_ms=2 * MINUTE_MS if not datagram else 30_000,
            sync_reply_ms=1_000 if datagram else 0,
            resend_attempts_max=0,
            repair_ms_min=5_000 if datagram else 30_000,
            repair_ms_max=20_000 if datagram else 120_000,
            verify_ids=True,
            filter_capacity=self.filter_capacity,
            log_window=self.window,
            outgoing_max=self.outgoing,
            waiting_max=self.waiting,
            wanted_max=self.wanted,
        )


def draw(seed: int) -> Options:
    """The options of a seed."""
    prng = Prng(seed)
    profile = prng.choice((STREAM, STREAM, DATAGRAM, REPAIR))
    sites = prng.choice((2, 2, 3, 3, 3, 4, 5, 8))
    span = prng.between(2, 30) * MINUTE_MS
    return Options(
        seed=seed,
        sites=sites,
        profile=profile,
        line=prng.chance(1, 4),
        messages=prng.between(4, 40),
        span_ms=span,
        loss=prng.choice((0, 50, 200, 300, 500)),
        copies=prng.choice((0, 50, 200)),
        delay_ms=prng.choice((5, 50, 500)),
        skew_ms=prng.choice((0, 1_000, 3 * MINUTE_MS)),
        crashes=prng.choice((0, 1, 3)),
        takeovers=prng.choice((0, 0, 1, 3)),
        disks_lost=prng.choice((0, 0, 1)),
        cuts=prng.choice((0, 1, 2)),
        cut_ms=prng.choice((MINUTE_MS, 20 * MINUTE_MS)),
        quorum_lost_ms=prng.choice((0, 0, 60 * MINUTE_MS)),
        filter_faults=prng.choice((0, 0, 400)),
        filter_capacity=prng.choice((10, 10_000)),
        window=prng.choice((4, 20, 50_000)),
        outgoing=prng.choice((3, 10_000)),
        waiting=prng.choice((8, 10_000, 10_000)),
        wanted=prng.choice((12, 10_000, 10_000)),
    )
