"""Verbs that act look again while a group is about to choose who leads, and only then."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from appliance.base.errors import StorageError
from appliance.cores.console.about import About
from appliance.cores.console.console import Console
from appliance.cores.console.model import SiteSnapshot, Source
from appliance.cores.console.stakes import LEVEL_FIRST, loss
from appliance.formats.site_view import SiteView
from appliance.node import acting
from appliance.node.acting import ActSite
from tests.cores.console.worlds import WALL_MS, Raw, healthy, poll, replica, site

Seen = Callable[..., ActSite]


def of_replica(node: int, status: str) -> dict[str, Any]:
    leads = node == 0 and status == "normal"
    return replica(node, role="primary" if leads else "backup", status=status)


def snapshot(statuses: list[str], *stopped: int) -> SiteSnapshot:
    """Three replicas that are so, each kept by a supervisor; "" answers nothing."""
    answers: Raw = healthy()
    for node, status in enumerate(statuses):
        source = Source("replica", node, 0)
        answers[source] = of_replica(node, status) if status else None
        wanted = node not in stopped
        child = {"name": "replica-0", "pid": 7, "ready": True, "halt": "", "wanted": wanted}
        answers[Source("supervisor", node, 0)] = {"children": [child]}
    console = Console(SiteView(site()))
    poll(console, answers, now_ms=1000, wall_ms=WALL_MS)
    return console.seen()


CHOOSING = snapshot(["view_change", "view_change", "recovering"])
SERVING = snapshot(["normal"] * 3)


class Looked(ActSite):
    """A site that is seen so, one look after the other."""

    def __init__(self, looks: Iterable[SiteSnapshot]) -> None:
        self._looks, self._group = iter(looks), "node"

    def seen(self) -> SiteSnapshot:
        return next(self._looks)


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Such a site; no look waits for the next."""

    def made(*looks: SiteSnapshot, settles_s: float = 3600.0) -> ActSite:
        monkeypatch.setattr(acting, "AGAIN_S", 0.0)
        monkeypatch.setattr(acting, "SETTLES_S", settles_s)
        return Looked(looks)

    return made


def test_a_group_that_chooses_who_leads_is_looked_at_until_it_serves(acts: Seen) -> None:
    acts(CHOOSING, CHOOSING, SERVING).refuse("step-down", About(0, shard=0))
    acts(CHOOSING, snapshot(["normal", "", "normal"]), SERVING).refuse_for(lambda s: loss(s, 0))


def test_what_does_not_settle_is_refused_in_the_words_of_the_last_look(acts: Seen) -> None:
    last = snapshot(["normal", "normal", ""])
    with pytest.raises(StorageError, match="has 1 of 2 needed replicas.* by force"):
        acts(last, settles_s=0.0).refuse_for(lambda seen: loss(seen, 0), " by force")


@pytest.mark.parametrize("stopped", [(1,), (1, 2)])
def test_who_was_told_to_stop_is_not_waited_for(acts: Seen, stopped: tuple[int, ...]) -> None:
    """Nothing changes by itself then: the second look would find none here."""
    told = snapshot(["" if node in stopped else "normal" for node in range(3)], *stopped)
    with pytest.raises(StorageError, match="needed replicas"):
        acts(told).refuse_for(lambda seen: loss(seen, 0))


def test_a_refusal_that_nothing_changes_is_told_at_once(acts: Seen) -> None:
    with pytest.raises(StorageError, match="never"):
        acts(SERVING).refuse_for(lambda seen: "never")


def test_who_lags_is_waited_for_only_where_that_is_asked(acts: Seen) -> None:
    words = iter([LEVEL_FIRST, LEVEL_FIRST, ""])
    acts(SERVING, SERVING, SERVING).refuse_for(lambda seen: next(words), level_s=3600.0)
    with pytest.raises(StorageError, match="level"):
        acts(CHOOSING).refuse_for(lambda seen: LEVEL_FIRST)
