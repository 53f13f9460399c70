"""Acts on the farm: who stands in its directory, who leads it, and a directory signed anew."""

from appliance.cores.console.about import NOBODY, About
from appliance.cores.console.act import FARM, Act, Words, name_of, quoted
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
)
