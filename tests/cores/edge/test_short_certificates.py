"""Short certificates by the clock: which one is shown, and which ones pages know."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.base.limits import QUIC_CERTIFICATE_LIFE_S
from appliance.cores.edge.short_certificates import Drop, Make, ShortCertificates, Show, span_of

HALF_S = QUIC_CERTIFICATE_LIFE_S // 2
QUARTER_S = QUIC_CERTIFICATE_LIFE_S // 4
TIMES = st.integers(0, 2**33)  # seconds: for some centuries


class Followed:
    """A core whose effects are followed as the role does."""

    def __init__(self) -> None:
        self.core = ShortCertificates()
        self.made: set[int] = set()
        self.shown: int | None = None

    def on_time(self, now_s: int) -> int:
        """How many effects there were."""
        effects = self.core.on_time(now_s)
        for effect in effects:
            match effect:
                case Make(number, span):
                    assert number not in self.made and span == span_of(number)
                    self.made.add(number)
                case Show(number):
                    assert number in self.made
                    self.shown = number
                case Drop(number):
                    assert number != self.shown
                    self.made.remove(number)
        return len(effects)


@given(TIMES)
def test_no_life_is_longer_than_browsers_take_and_the_shown_is_in_its_middle(now_s: int) -> None:
    followed = Followed()
    followed.on_time(now_s)
    assert followed.shown is not None
    span = span_of(followed.shown)
    assert span.end_s - span.begin_s < QUIC_CERTIFICATE_LIFE_S <= 14 * 86_400
    assert span.begin_s + QUARTER_S <= now_s <= span.end_s - QUARTER_S


@given(st.lists(TIMES, min_size=1, max_size=20))
def test_all_processes_agree_whatever_they_lived_through(times: list[int]) -> None:
    old, fresh = Followed(), Followed()
    for now_s in times:
        old.on_time(now_s)
    fresh.on_time(times[-1])
    assert (old.shown, old.made) == (fresh.shown, fresh.made)
    assert len(old.made) == 3


@given(TIMES, st.integers(-HALF_S, HALF_S))
def test_who_was_told_a_week_ago_knows_what_is_shown(told_s: int, later_s: int) -> None:
    """Also by a process whose clock is ahead, or behind."""
    teller, shower = Followed(), Followed()
    teller.on_time(told_s)
    shower.on_time(told_s + later_s)
    assert shower.shown in teller.made


def test_it_changes_at_half_of_a_life_and_at_no_other_time() -> None:
    followed, begin_s = Followed(), 2954 * HALF_S
    assert followed.on_time(begin_s) == 4
    first = followed.shown
    for now_s in range(begin_s, begin_s + HALF_S, 3600):
        assert followed.on_time(now_s) == 0
    assert followed.on_time(begin_s + HALF_S - 1) == 0
    assert followed.on_time(begin_s + HALF_S) == 3  # one made, another shown, one dropped
    assert first is not None and followed.shown == first + 1 and first in followed.made
