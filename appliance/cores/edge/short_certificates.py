"""Which of a node's short certificates is shown at which time.

A page accepts a certificate that no authority has signed by its digest, if it is good for 14 days
at most. They are numbered; by the clock alone, so that all processes of a node agree:

    number    |<----------- life, 14 days ----------->|
       n      [ good   |   shown, 7 days   |    good  ]
     n + 1                        [ good   |   shown, 7 days   |    good  ]

Each is shown in the middle half of its life: the clock of who looks at it may be off by 3.5 days,
either way. Three are known at a time, the one before and the one that comes among them: a page
that was told of them a week ago still knows the one that is shown, and one that was told by a
process whose clock is a little behind, or ahead, does too.
"""

from dataclasses import dataclass

from appliance.base.limits import QUIC_CERTIFICATE_LIFE_S

_SHOWN_S = QUIC_CERTIFICATE_LIFE_S // 2
_BEFORE_S = QUIC_CERTIFICATE_LIFE_S // 4


@dataclass(slots=True, frozen=True)
class Span:
    """When a certificate is good, in seconds since the epoch; both ends included."""

    begin_s: int
    end_s: int


@dataclass(slots=True, frozen=True)
class Make:
    """Make this one, and tell pages its digest."""

    number: int
    span: Span


@dataclass(slots=True, frozen=True)
class Show:
    """From now on to whoever begins a connection; it was made before."""

    number: int


@dataclass(slots=True, frozen=True)
class Drop:
    """Tell pages of it no more."""

    number: int


Effect = Make | Show | Drop


def span_of(number: int) -> Span:
    """When this one is good. Its last second counts, so that its life is no longer than allowed."""
    begin_s = number * _SHOWN_S - _BEFORE_S
    return Span(begin_s, begin_s + QUIC_CERTIFICATE_LIFE_S - 1)


class ShortCertificates:
    """Of one process.

    Invariant: `known` are those that were made and not dropped; once there is any, `shown` is one
    of them.
    """

    def __init__(self) -> None:
        self.known: set[int] = set()
        self.shown: int | None = None

    def on_time(self, now_s: int) -> list[Effect]:
        """What is to be done at this time, which may also lie before the last one; in order."""
        current = now_s // _SHOWN_S
        if current == self.shown:
            return []
        wanted = range(current - 1, current + 2)
        effects: list[Effect] = [
            Make(number, span_of(number)) for number in wanted if number not in self.known
        ]
        effects.append(Show(current))
        effects += [Drop(number) for number in sorted(self.known - set(wanted))]
        self.known, self.shown = set(wanted), current
        return effects
