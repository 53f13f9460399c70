"""What a seed decides before its world begins."""

from dataclasses import dataclass, fields

from appliance.base.prng import Prng


@dataclass(frozen=True)
class Options:
    """Times in milliseconds of virtual time, chances in thousandths."""

    seed: int
    replicas: int
    edits: int
    duration_ms: int
    latency_ms_max: int
    piece_size_max: int  # bytes of one delivery
    take_size: int  # bytes a session may say in one beat
    cuts: int  # connections that are lost
    crashes: int
    rehangs: int  # times that a link goes to another parent
    early: int  # chance that a session says live changes before the end of its diff
    doubled: int  # chance that a live packet is sent twice
    ring: bool  # one link too many
    unindexed: int  # chance that a replica has lost its index of changes
    late: int  # replicas whose first link comes late
    skew_ms_max: int
    packet_first: int  # number of the first packet: near the end of a block, or small

    def describe(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def draw(seed: int) -> Options:
    prng = Prng(seed ^ 0x0B1EC75)
    replicas = prng.between(2, 8)
    calm = prng.chance(1, 8)
    return Options(
        seed=seed,
        replicas=replicas,
        edits=prng.between(20, 120),
        duration_ms=prng.between(2_000, 40_000),
        latency_ms_max=prng.choice((1, 20, 300)),
        piece_size_max=prng.choice((7, 60, 1500)),
        take_size=prng.choice((1, 200, 100_000)),
        cuts=0 if calm else prng.between(0, 25),
        crashes=0 if calm else prng.between(0, 12),
        rehangs=0 if calm else prng.between(0, 6),
        early=prng.choice((0, 0, 300)),
        doubled=prng.choice((0, 0, 100)),
        ring=replicas > 2 and prng.chance(1, 6),
        unindexed=prng.choice((0, 0, 0, 300)),
        late=prng.below(replicas),
        skew_ms_max=prng.choice((0, 100, 5_000)),
        packet_first=prng.choice((1, 1, 0xFFF0)),
    )
