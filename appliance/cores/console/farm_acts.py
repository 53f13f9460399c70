"""Acts on the farm: who belongs to it, who stands in its directory and is to hold shards, who leads
it, how often its nodes post, and a directory signed anew."""

from collections.abc import Callable

from appliance.base.limits import FARM_PERIOD_MS_MAX, FARM_PERIOD_MS_MIN
from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import (
    FARM,
    SHARDS,
    SITE,
    Act,
    Asked,
    Words,
    Written,
    done,
    name_of,
    of_site,
    quoted,
    said,
)
from appliance.cores.console.model import SiteSnapshot

NO_MEMBER = "no member of the farm answers here: start the site first"
NOBODY_LEADS = (
    "nobody leads the farm: nothing could be committed; bring members back until a majority of "
    "them serves (`tigerchat farm status`)"
)


def _farm_id(snapshot: SiteSnapshot, node: int) -> int:
    return snapshot.site.nodes[node].farm_id


def _is_out(snapshot: SiteSnapshot, node: int) -> bool:
    return snapshot.farm is not None and _farm_id(snapshot, node) in snapshot.farm.excluded


def _cannot_commit(snapshot: SiteSnapshot) -> str:
    if snapshot.farm is None:
        return NO_MEMBER
    return NOBODY_LEADS if snapshot.farm.leader <= 0 else ""


def _exclude_refusal(snapshot: SiteSnapshot, about: About) -> str:
    out = _is_out(snapshot, about.node)
    return f"{name_of(snapshot, about.node)} is kept out of the directory already" if out else ""


def _lift_refusal(snapshot: SiteSnapshot, about: About) -> str:
    out = _is_out(snapshot, about.node)
    return "" if out else f"{name_of(snapshot, about.node)} is not kept out of the directory"


def _leads(snapshot: SiteSnapshot, node: int) -> bool:
    return snapshot.farm is not None and snapshot.farm.leader == _farm_id(snapshot, node)


def _yield_refusal(snapshot: SiteSnapshot, about: About) -> str:
    assert snapshot.farm is not None
    name = name_of(snapshot, about.node)
    if not _leads(snapshot, about.node):
        return f"{name} does not lead the farm"
    if about.node not in snapshot.here:
        return f"{name} is on another machine: there `tigerchat farm yield --node-folder F`"
    if len(snapshot.farm.members) == 1:
        return f"{name} is the only member of the farm: nobody else can lead"
    return ""


def _yield_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    return (
        snapshot.farm is not None and snapshot.farm.leader > 0 and not _leads(snapshot, about.node)
    )


def _publishes(snapshot: SiteSnapshot, node: int) -> bool:
    return snapshot.farm is not None and snapshot.farm.publisher == _farm_id(snapshot, node)


def _publish_refusal(snapshot: SiteSnapshot, about: About) -> str:
    name = name_of(snapshot, about.node)
    if not _publishes(snapshot, about.node):
        return f"{name} does not publish the directory"
    if about.node not in snapshot.here:
        return f"{name} is on another machine: there `tigerchat farm publish --node-folder F`"
    return ""


def _publish_seen(snapshot: SiteSnapshot, about: About, before: SiteSnapshot) -> bool:
    known = snapshot.farm is not None and before.farm is not None
    return known and snapshot.farm.directory > before.farm.directory  # type: ignore[union-attr]


# --- who belongs to it ----------------------------------------------------------------------------

COMMIT_S = 60.0  # for what the farm commits
MEMBER_S = 90.0  # for a Configuration to be committed, after a leader has yielded


def _belongs(snapshot: SiteSnapshot, node: int) -> bool:
    return snapshot.farm is not None and any(
        member.id == _farm_id(snapshot, node) for member in snapshot.farm.members
    )


def _remove_refusal(snapshot: SiteSnapshot, about: About) -> str:
    assert snapshot.farm is not None
    name = name_of(snapshot, about.node)
    if not _belongs(snapshot, about.node):
        return f"{name} is no member of the farm"
    if len(snapshot.farm.members) == 1:
        return f"{name} is the only member of the farm: nobody would sign its directory"
    return ""


def _admit_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    """Beside the site: who is no member stands in no row of the farm."""
    if snapshot.farm is None or row != About():
        return []
    nodes = range(len(snapshot.site.nodes))
    return [
        About(node) for node in nodes if _farm_id(snapshot, node) and not _belongs(snapshot, node)
    ]


def _admit_refusal(snapshot: SiteSnapshot, about: About) -> str:
    belongs = _belongs(snapshot, about.node)
    return f"{name_of(snapshot, about.node)} is a member of the farm already" if belongs else ""


# --- what it says of all --------------------------------------------------------------------------


_PERIOD_FAULT = f"ms must be {FARM_PERIOD_MS_MIN} to {FARM_PERIOD_MS_MAX}"


def _period_unfit(written: Written) -> str:
    text = written["ms"].strip()
    if not text.isdecimal() or len(text) > len(str(FARM_PERIOD_MS_MAX)):
        return _PERIOD_FAULT
    if FARM_PERIOD_MS_MIN <= int(text) <= FARM_PERIOD_MS_MAX:
        return ""
    return _PERIOD_FAULT


def _period_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    return of_site(snapshot, row) if snapshot.farm is not None else []


def _placement_shown(snapshot: SiteSnapshot, row: About) -> list[About]:
    known = row.shard in range(len(snapshot.shards)) and row.node == NOBODY
    return [About(shard=row.shard)] if known and snapshot.farm is not None else []


# --- the rows -------------------------------------------------------------------------------------


def _verb(words: str, end: str = "") -> Words:
    return lambda snapshot, about: f"tigerchat farm {words} {quoted(snapshot, about.node)}{end}"


def _named(words: str) -> Words:
    """These words, with the node's name in place of {}."""
    return lambda snapshot, about: words.format(name_of(snapshot, about.node))


def _if_led(refusal: Words) -> Words:
    """Why it cannot be, where the farm could commit it."""
    return lambda snapshot, about: _cannot_commit(snapshot) or refusal(snapshot, about)


def _of_member(
    name: str,
    label: Words,
    shown: Callable[[SiteSnapshot, int], bool],
    sentence: Words,
    refusal: Words,
    waits: Words,
    seen: Callable[[SiteSnapshot, About, SiteSnapshot], bool],
    verb: Words,
    *,
    is_typed: bool = False,
    patience_s: float = COMMIT_S,
) -> Act:
    """An act on the node of a row of the farm; `shown` tells of which nodes."""

    def about(snapshot: SiteSnapshot, row: About) -> list[About]:
        known = row.node != NOBODY and snapshot.farm is not None
        return [About(row.node)] if known and shown(snapshot, row.node) else []

    return Act(
        name,
        ("node",),
        (FARM,),
        label,
        about,
        sentence,
        _if_led(refusal),
        waits,
        seen,
        verb,
        typed=_named("{}") if is_typed else said(""),
        patience_s=patience_s,
    )


FARM_ACTS: tuple[Act, ...] = (
    _of_member(
        "farm-exclude",
        _named("Keep {} out of the directory…"),
        lambda snapshot, node: not _is_out(snapshot, node),
        _named(
            "The directory names {} no more, and clients that go by it do not come there; its "
            "replicas go on."
        ),
        _exclude_refusal,
        _named("the farm to keep {} out"),
        lambda snapshot, about, before: _is_out(snapshot, about.node),
        _verb("exclude"),
        is_typed=True,
    ),
    _of_member(
        "farm-lift",
        _named("Let {} into the directory again…"),
        _is_out,
        _named("The directory may name {} again."),
        _lift_refusal,
        _named("the farm to let {} in"),
        lambda snapshot, about, before: (
            snapshot.farm is not None and not _is_out(snapshot, about.node)
        ),
        _verb("exclude", " --lift"),
    ),
    _of_member(
        "farm-yield",
        said("Let another member lead the farm…"),
        _leads,
        _named("{} lets another member lead the farm; chat goes on."),
        _yield_refusal,
        said("another member to lead the farm"),
        _yield_seen,
        said("tigerchat farm yield"),
    ),
    _of_member(
        "farm-publish",
        said("Sign the directory anew…"),
        _publishes,
        _named("{} signs the directory anew, now."),
        _publish_refusal,
        said("a newer directory"),
        _publish_seen,
        said("tigerchat farm publish"),
    ),
    _of_member(
        "farm-remove",
        _named("Take {} out of the farm…"),
        _belongs,
        _named(
            "{} is a member of the farm no more: it does not count for its majority, and the "
            "directory names it no more; its replicas go on."
        ),
        _remove_refusal,
        _named("the farm to go on without {}"),
        lambda snapshot, about, before: (
            snapshot.farm is not None and not _belongs(snapshot, about.node)
        ),
        _verb("remove"),
        is_typed=True,
        patience_s=MEMBER_S,
    ),
    Act(
        "farm-admit",
        ("node",),
        (SITE,),
        _named("Let {} be a member of the farm again…"),
        _admit_shown,
        _named("{} is a member of the farm again, with an empty log that its leader fills."),
        _if_led(_admit_refusal),
        _named("{} to be a member"),
        lambda snapshot, about, before: _belongs(snapshot, about.node),
        _verb("admit"),
        patience_s=MEMBER_S,
    ),
    Act(
        "farm-place",
        ("shard",),
        (SHARDS,),
        lambda snapshot, about: f"Say which nodes are to hold shard {about.shard}…",
        _placement_shown,
        lambda snapshot, about: (
            f"The replicas of shard {about.shard} move to these nodes, one after the other, while "
            "clients write; whoever is not named leaves it."
        ),
        _if_led(said("")),
        said("the farm to say so"),
        done,
        lambda snapshot, about: f"tigerchat farm place {about.shard} NAMES",
        asks=(Asked("names", "Names of nodes, with spaces between"),),
    ),
    Act(
        "farm-period",
        (),
        (SITE,),
        said("Set how often nodes post to the farm…"),
        _period_shown,
        said(
            "Each node posts its status so often: one counts for 3 of these periods, a directory "
            "for 10."
        ),
        _if_led(said("")),
        said("the farm to say so"),
        done,
        said("tigerchat farm period MILLISECONDS"),
        asks=(Asked("ms", "Milliseconds between two posts", "60000"),),
        unfit=_period_unfit,
    ),
)
