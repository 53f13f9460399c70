"""What QUIC shows to clients, as time goes on: the core says which certificate when, they are made
here. One that an authority has signed is shown as it is."""

from collections.abc import Callable

from appliance.cores.edge.short_certificates import Drop, Make, ShortCertificates, Show
from appliance.drivers.network.quic.certificate import Shown, make_short

_SECOND_US = 1_000_000


class QuicCertificates:
    """Made of `given`, the certificate that TCP shows; `show` has another one shown from then
    on."""

    def __init__(self, given: Shown, show: Callable[[Shown], None]) -> None:
        self._given, self._show = given, show
        self._short = ShortCertificates() if given.may_be_short else None
        self._made: dict[int, Shown] = {}  # by their numbers

    def on_time(self, now_us: int) -> None:
        """It is so late, by the clock of the role."""
        if self._short is None:
            return
        for effect in self._short.on_time(now_us // _SECOND_US):
            match effect:
                case Make(number, span):
                    made = make_short(self._given, begin_s=span.begin_s, end_s=span.end_s)
                    self._made[number] = made
                case Show(number):
                    self._show(self._made[number])
                case Drop(number):
                    del self._made[number]

    @property
    def digests(self) -> list[bytes]:
        """Of those that are shown now, were before, and come next, by time; empty for one that
        needs none."""
        return [self._made[number].digest for number in sorted(self._made)]
