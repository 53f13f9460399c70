"""Acts on the farm: who belongs to it, who stands in its directory and is to hold shards, who leads
it, how often its nodes post, and a directory signed anew."""

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
from appliance.cores.console.model import Look

NO_MEMBER = "no member of the farm answers here: start the site first"
NOBODY_LEADS = (
    "nobody leads the farm: nothing could be committed; bring members back until a majority of "
    "them serves (`tigerchat farm status`)"
)


def _farm_id(look: Look, node: int) -> int:
    return look.site.nodes[node].farm_id


def _is_out(look: Look, node: int) -> bool:
    return look.farm is not None and _farm_id(look, node) in look.farm.excluded


def _cannot_commit(look: Look) -> str:
    if look.farm is None:
        return NO_MEMBER
    return NOBODY_LEADS if look.farm.leader <= 0 else ""


def _known(look: Look, row: About) -> bool:
    return row.node != NOBODY and look.farm is not None


def _exclude_refusal(look: Look, about: About) -> str:
    if why := _cannot_commit(look):
        return why
    out = _is_out(look, about.node)
    return f"{name_of(look, about.node)} is kept out of the directory already" if out else ""


def _lift_refusal(look: Look, about: About) -> str:
    if why := _cannot_commit(look):
        return why
    out = _is_out(look, about.node)
    return "" if out else f"{name_of(look, about.node)} is not kept out of the directory"


def _leads(look: Look, node: int) -> bool:
    return look.farm is not None and look.farm.leader == _farm_id(look, node)


def _yield_refusal(look: Look, about: About) -> str:
    if why := _cannot_commit(look):
        return why
    assert look.farm is not None
    name = name_of(look, about.node)
    if not _leads(look, about.node):
        return f"{name} does not lead the farm"
    if about.node not in look.here:
        return f"{name} is on another machine: there `tigerchat farm yield --node-folder F`"
    if len(look.farm.members) == 1:
        return f"{name} is the only member of the farm: nobody else can lead"
    return ""


def _yield_seen(look: Look, about: About, before: Look) -> bool:
    return look.farm is not None and look.farm.leader > 0 and not _leads(look, about.node)


def _publishes(look: Look, node: int) -> bool:
    return look.farm is not None and look.farm.publisher == _farm_id(look, node)


def _publish_refusal(look: Look, about: About) -> str:
    if why := _cannot_commit(look):
        return why
    name = name_of(look, about.node)
    if not _publishes(look, about.node):
        return f"{name} does not publish the directory"
    if about.node not in look.here:
        return f"{name} is on another machine: there `tigerchat farm publish --node-folder F`"
    return ""


def _publish_seen(look: Look, about: About, before: Look) -> bool:
    known = look.farm is not None and before.farm is not None
    return known and look.farm.directory > before.farm.directory  # type: ignore[union-attr]


# --- who belongs to it ----------------------------------------------------------------------------

MEMBER_S = 90.0  # for a Configuration to be committed, after a leader has yielded


def _belongs(look: Look, node: int) -> bool:
    return look.farm is not None and any(
        member.id == _farm_id(look, node) for member in look.farm.members
    )


def _remove_refusal(look: Look, about: About) -> str:
    if why := _cannot_commit(look):
        return why
    assert look.farm is not None
    name = name_of(look, about.node)
    if not _belongs(look, about.node):
        return f"{name} is no member of the farm"
    if len(look.farm.members) == 1:
        return f"{name} is the only member of the farm: nobody would sign its directory"
    return ""


def _admit_shown(look: Look, row: About) -> list[About]:
    """Beside the site: who is no member stands in no row of the farm."""
    if look.farm is None or row != About():
        return []
    nodes = range(len(look.site.nodes))
    return [About(node) for node in nodes if _farm_id(look, node) and not _belongs(look, node)]


def _admit_refusal(look: Look, about: About) -> str:
    if why := _cannot_commit(look):
        return why
    belongs = _belongs(look, about.node)
    return f"{name_of(look, about.node)} is a member of the farm already" if belongs else ""


# --- what it says of all --------------------------------------------------------------------------


_PERIOD_FAULT = f"ms must be {FARM_PERIOD_MS_MIN} to {FARM_PERIOD_MS_MAX}"


def _period_unfit(written: Written) -> str:
    text = written["ms"].strip()
    if not text.isdecimal() or len(text) > len(str(FARM_PERIOD_MS_MAX)):
        return _PERIOD_FAULT
    if FARM_PERIOD_MS_MIN <= int(text) <= FARM_PERIOD_MS_MAX:
        return ""
    return _PERIOD_FAULT


def _period_shown(look: Look, row: About) -> list[About]:
    return of_site(look, row) if look.farm is not None else []


def _placement_shown(look: Look, row: About) -> list[About]:
    known = row.shard in range(len(look.shards)) and row.node == NOBODY
    return [About(shard=row.shard)] if known and look.farm is not None else []


def _verb(words: str, end: str = "") -> Words:
    return lambda look, about: f"tigerchat farm {words} {quoted(look, about.node)}{end}"


FARM_ACTS: tuple[Act, ...] = (
    Act(
        "farm-exclude",
        ("node",),
        (FARM,),
        lambda look, about: f"Keep {name_of(look, about.node)} out of the directory…",
        lambda look, row: (
            [About(row.node)] if _known(look, row) and not _is_out(look, row.node) else []
        ),
        lambda look, about: (
            f"The directory names {name_of(look, about.node)} no more, and clients that go by it "
            "do not come there; its replicas go on."
        ),
        _exclude_refusal,
        lambda look, about: f"the farm to keep {name_of(look, about.node)} out",
        lambda look, about, before: _is_out(look, about.node),
        _verb("exclude"),
        typed=lambda look, about: name_of(look, about.node),
    ),
    Act(
        "farm-lift",
        ("node",),
        (FARM,),
        lambda look, about: f"Let {name_of(look, about.node)} into the directory again…",
        lambda look, row: (
            [About(row.node)] if _known(look, row) and _is_out(look, row.node) else []
        ),
        lambda look, about: f"The directory may name {name_of(look, about.node)} again.",
        _lift_refusal,
        lambda look, about: f"the farm to let {name_of(look, about.node)} in",
        lambda look, about, before: look.farm is not None and not _is_out(look, about.node),
        _verb("exclude", " --lift"),
    ),
    Act(
        "farm-yield",
        ("node",),
        (FARM,),
        lambda look, about: "Let another member lead the farm…",
        lambda look, row: [About(row.node)] if _known(look, row) and _leads(look, row.node) else [],
        lambda look, about: (
            f"{name_of(look, about.node)} lets another member lead the farm; chat goes on."
        ),
        _yield_refusal,
        lambda look, about: "another member to lead the farm",
        _yield_seen,
        lambda look, about: "tigerchat farm yield",
    ),
    Act(
        "farm-publish",
        ("node",),
        (FARM,),
        lambda look, about: "Sign the directory anew…",
        lambda look, row: (
            [About(row.node)] if _known(look, row) and _publishes(look, row.node) else []
        ),
        lambda look, about: f"{name_of(look, about.node)} signs the directory anew, now.",
        _publish_refusal,
        lambda look, about: "a newer directory",
        _publish_seen,
        lambda look, about: "tigerchat farm publish",
    ),
    Act(
        "farm-remove",
        ("node",),
        (FARM,),
        lambda look, about: f"Take {name_of(look, about.node)} out of the farm…",
        lambda look, row: (
            [About(row.node)] if _known(look, row) and _belongs(look, row.node) else []
        ),
        lambda look, about: (
            f"{name_of(look, about.node)} is a member of the farm no more: it does not count for "
            "its majority, and the directory names it no more; its replicas go on."
        ),
        _remove_refusal,
        lambda look, about: f"the farm to go on without {name_of(look, about.node)}",
        lambda look, about, before: look.farm is not None and not _belongs(look, about.node),
        _verb("remove"),
        typed=lambda look, about: name_of(look, about.node),
        patience_s=MEMBER_S,
    ),
    Act(
        "farm-admit",
        ("node",),
        (SITE,),
        lambda look, about: f"Let {name_of(look, about.node)} be a member of the farm again…",
        _admit_shown,
        lambda look, about: (
            f"{name_of(look, about.node)} is a member of the farm again, with an empty log that "
            "its leader fills."
        ),
        _admit_refusal,
        lambda look, about: f"{name_of(look, about.node)} to be a member",
        lambda look, about, before: _belongs(look, about.node),
        _verb("admit"),
        patience_s=MEMBER_S,
    ),
    Act(
        "farm-place",
        ("shard",),
        (SHARDS,),
        lambda look, about: f"Say which nodes are to hold shard {about.shard}…",
        _placement_shown,
        lambda look, about: (
            f"The directory tells which nodes are to hold the replicas of shard {about.shard}; no "
            "replica moves by that alone."
        ),
        lambda look, about: _cannot_commit(look),
        said("the farm to say so"),
        done,
        lambda look, about: f"tigerchat farm place {about.shard} NAMES",
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
        lambda look, about: _cannot_commit(look),
        said("the farm to say so"),
        done,
        said("tigerchat farm period MILLISECONDS"),
        asks=(Asked("ms", "Milliseconds between two posts", "60000"),),
        unfit=_period_unfit,
    ),
)
