"""The farm of a site, asked and told at the sockets of the members on this machine."""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import UNSET

from appliance.base.errors import ConfigurationError, StorageError
from appliance.base.printable import counted
from appliance.cores.console.farm import words_of
from appliance.cores.console.farm_acts import NO_MEMBER
from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.network.ask import ask_for, status_of
from appliance.drivers.terminal.waiting import Waiting
from appliance.formats.settings import SETTINGS_FILE, load_settings
from appliance.formats.site import SITE_FILE, Node, Site, load_site
from appliance.formats.status.farm import FarmStatus, FarmView

PATIENCE_S = 30.0  # for an act to be committed
POLL_S = 0.1
LOCAL_DEFAULT = "run"


NOT_COMMITTED = "not committed in time: look whether a majority serves"

T = TypeVar("T")


class Asker:
    """Members of the farm on this machine."""

    def __init__(self, local: Path | None, node_folder: Path | None) -> None:
        if local is not None and node_folder is not None:
            raise ConfigurationError("say --local DIR or --node-folder F, not both")
        if node_folder is not None:
            self.site = load_site(node_folder / SITE_FILE)
            index = load_settings(node_folder / SETTINGS_FILE).index
            self.folders = {index: node_folder.absolute()}
        else:
            folder = (local or Path(LOCAL_DEFAULT)).absolute()
            self.site = load_site(folder / SITE_FILE)
            self.folders = {node.index: folder / node.name for node in self.site.nodes}
        if not self.site.farm_key:
            raise ConfigurationError(
                f"{SITE_FILE}: farm_key is missing, this site has no farm; allowed: a site that "
                "was formatted with one"
            )

    def ask(self, index: int) -> FarmStatus | None:
        """How the farm of a node is; None: it does not answer."""
        folder = self.folders[index] / SOCKETS_FOLDER
        return status_of(FarmStatus, folder, cluster=self.site.cluster)

    def request(self, index: int, request: dict[str, Any]) -> dict[str, Any] | None:
        """What the farm of a node says to a control request; None: it does not answer."""
        folder = self.folders[index] / SOCKETS_FOLDER
        return ask_for(FarmStatus, folder, request, cluster=self.site.cluster)

    def statuses(self) -> dict[int, FarmStatus]:
        """What each member here says; StorageError when none does."""
        said = {index: self.ask(index) for index in self.folders}
        found = {index: answer for index, answer in said.items() if answer is not None}
        if not found:
            raise StorageError(NO_MEMBER)
        return found

    def do(self, index: int, wish: dict[str, Any]) -> None:
        """Have it done by a node; StorageError: why it was not."""
        answer = self.request(index, wish)
        if answer is None:
            raise StorageError(f"the farm of {self.site.nodes[index].name} does not answer")
        if "refused" in answer:
            raise StorageError(f"{self.site.nodes[index].name} refuses: {answer['refused']}")
        number = answer["begun"]
        if not number:
            return
        why = self._until(index, lambda said: _outcome(said, number), NOT_COMMITTED)
        if why:
            raise StorageError(why)

    def shown(self, index: int, wish: dict[str, Any]) -> str:
        """What is so now that the act was done, as the node's directory has it."""
        status = self.ask(index)
        if status is None or status.view is UNSET:
            return "done, and the node does not answer any more"
        return line_of(self.site, status.view, wish)

    def publish(self, index: int) -> None:
        """Until the node has signed a newer directory, and a majority has it."""
        status = self.ask(index)
        before = status.directory.version if status is not None else 0
        self.do(index, {"do": "publish"})
        self._until(
            index,
            lambda said: said.directory.version > before or None,
            NOT_COMMITTED,
        )

    def hand_over(self, index: int) -> None:
        """Until another member than that of the node, which leads, leads the farm."""
        name, own_id = self.site.nodes[index].name, self.site.nodes[index].farm_id
        self.do(index, {"do": "yield"})
        self._until(
            index,
            lambda said: said.leader > 0 and said.leader != own_id or None,
            f"{name} gave up the lead, and no other member has taken it: look whether a majority "
            "serves",
        )

    def _until(self, index: int, told: Callable[[FarmStatus], T | None], why: str) -> T:
        """What `told` makes of a node's status, once it makes anything of it; StorageError(why)."""
        deadline = time.monotonic() + PATIENCE_S
        with Waiting("farm") as waiting:
            waiting.on(why)
            while time.monotonic() < deadline:
                status = self.ask(index)
                if status is not None and (found := told(status)) is not None:
                    return found
                time.sleep(POLL_S)
        raise StorageError(why)

    def any(self) -> int:
        """A node that may post: one that is a member. Where none is, one that says why."""
        return _postable(self.statuses())


def _postable(found: dict[int, FarmStatus]) -> int:
    return next((index for index, said in found.items() if not said.out), next(iter(found)))


def _outcome(said: FarmStatus, number: int) -> str | None:
    """Why the act was not done; empty: it was; None: it has not ended, or nobody knows any more.
    Who was taken out of the farm meanwhile, perhaps by this very act, ends none."""
    ended = next((why for ended, why in said.act.ended if ended == number), None)
    return ended if ended is not None else said.out or None


def member_named(site: Site, name: str) -> Node:
    """A node by its name, or by its member's number."""
    for node in site.nodes:
        if name in (node.name, str(node.farm_id)):
            return node
    names = ", ".join(node.name for node in site.nodes)
    raise ConfigurationError(f"{name} is no node of the site; allowed: {names}")


def check_shard(site: Site, number: int) -> None:
    """ConfigurationError: the site has none of that number."""
    if number not in [shard.number for shard in site.shards]:
        raise ConfigurationError(
            f"the site has no shard {number}; allowed: 0 to {len(site.shards) - 1}"
        )


def check_described(site: Site, number: int, nodes: Iterable[Node]) -> None:
    """ConfigurationError: the site file does not describe one of these as a member of a shard."""
    members = site.shards[number].members
    for node in nodes:
        if node.index not in members:
            names = ", ".join(site.nodes[index].name for index in members)
            raise ConfigurationError(
                f"the site file has no replica of shard {number} for {node.name}; allowed: {names}"
            )


def name_of(site: Site, member: int) -> str:
    return next((node.name for node in site.nodes if node.farm_id == member), "nobody")


def lines(site: Site, said: FarmStatus) -> list[str]:
    """What people read of a member's status: names and words, no numbers of the protocol."""
    view, directory = said.view, said.directory
    if view is UNSET:
        return [said.out]
    leader = name_of(site, said.leader)
    found = [f"farm {said.farm}  leader {leader}  term {said.term}  commit {said.commit}"]
    if said.publish:  # empty: an older process
        insists = "" if said.require_server_proof else "not "
        found.append(f"this node  farm_publish {said.publish}  server proof {insists}required")
    for member in said.members:
        found.append(f"  {name_of(site, member.id)}  {member.endpoint}  match {member.match}")
    why = words_of(view.scores.get(view.publisher)) or "no status of it counts"
    ahead = [
        f"{name_of(site, member)} is better for {counted(posts, 'post')} in a row"
        for member, posts in view.ahead.items()
    ]
    why = "; ".join([why, *ahead])
    found.append(f"publisher {name_of(site, view.publisher)}  {why}")
    for shard, holder in view.shippers.items():
        found.append(f"shipper of shard {shard}: {name_of(site, holder)}")
    for row in view.documents:
        age = f"{row.age_ms / 1000:.1f} s old" + ("" if row.recent else ", too old")
        shards = counted(row.endpoints, "shard")
        found.append(f"  {name_of(site, row.id)}  serves {shards}  {age}")
    late_ms = directory.expired_ms
    validity = f"expired for {late_ms // 1000} s" if late_ms else "valid"
    found.append(f"directory {directory.version}  {validity}")
    if view.excluded:
        found.append(_excluded(site, view))
    found += [_placed(site, view, shard) for shard in view.placement]
    found += [f"to move: {step}" for step in said.moves.steps]
    if said.moves.trouble:
        found.append(f"nothing moves: {said.moves.trouble}")
    return found


def _excluded(site: Site, view: FarmView) -> str:
    out = [name_of(site, int(n)) if n.isdecimal() and len(n) < 20 else n for n in view.excluded]
    return f"excluded: {', '.join(out) or 'nobody'}"


def _placed(site: Site, view: FarmView, shard: int) -> str:
    names = ", ".join(name_of(site, member) for member in view.placement.get(shard, []))
    return f"placement of shard {shard}: {names or 'nobody said'}"


def line_of(site: Site, view: FarmView, wish: dict[str, Any]) -> str:
    """What an act was about, as the directory has it."""
    if wish["do"] == "exclude":
        return _excluded(site, view)
    if wish["do"] == "place":
        return _placed(site, view, wish["shard"])
    period_s = view.period_ms / 1000
    return f"nodes post every {period_s:g} s; a status is recent for {3 * period_s:g} s"


def take_out(asker: Asker, node: Node) -> None:
    """Until the Configuration without this node's member is committed. StorageError: it is not."""
    deadline = time.monotonic() + 2 * PATIENCE_S
    why, due, pause_s = "no member that leads has begun it", 0.0, 5 * POLL_S
    while True:
        found = asker.statuses()
        own = found.get(node.index)
        if (own is not None and own.out) or is_member(found.values(), node) is False:
            return
        if time.monotonic() > deadline:
            raise StorageError(
                f"{node.name} is still a member: its removal is not committed ({why}); a majority "
                "of those who stay must serve, then run it again"
            )
        if own is not None and own.role == "leader":
            asker.do(node.index, {"do": "yield"})
        elif time.monotonic() >= due:  # each time is an act, and told in the audit
            index = _postable(found)
            try:  # nobody leads, or a change is under way
                asker.do(index, {"do": "remove", "id": node.farm_id})
            except StorageError as error:
                why = str(error)
            due, pause_s = time.monotonic() + pause_s, min(2 * pause_s, 50 * POLL_S)
        time.sleep(5 * POLL_S)


def take_out_for_good(asker: Asker, node: Node) -> None:
    """As `take_out`, of a node that belongs to no shard any more: a member that was never taken in
    is not, either. StorageError: it may be a member yet, or become one."""
    take_out(asker, node)
    if _is_departed(asker, node):
        return
    why = "nobody has applied it yet"
    try:
        asker.do(asker.any(), {"do": "remove", "id": node.farm_id})
    except StorageError as error:
        why = str(error)  # there was no member to take out, and it is known that it stays out
    if not _is_departed(asker, node):
        raise StorageError(f"the farm may yet take {node.name} in: {why}")


def lift_departure(asker: Asker, node: Node) -> None:
    """Let a node's member in again, if it was taken out."""
    if _is_departed(asker, node):
        asker.do(asker.any(), {"do": "admit", "id": node.farm_id})


def _is_departed(asker: Asker, node: Node) -> bool:
    """Whether somebody here knows that an operator took a node's member out."""
    views = [said.view for said in asker.statuses().values() if said.view is not UNSET]
    return any(node.farm_id in view.departed for view in views)


def let_in(asker: Asker, node: Node) -> None:
    """Until the Configuration with this node's member is committed. StorageError: it is not."""
    found = asker.statuses()
    if any(not said.out for said in found.values()):
        asker.do(asker.any(), {"do": "admit", "id": node.farm_id})
    own = found.get(node.index)
    if own is not None and own.out:
        asker.do(node.index, {"do": "rejoin"})
    deadline = time.monotonic() + 2 * PATIENCE_S
    with Waiting("farm") as waiting:
        waiting.on(f"{node.name} to be a member")
        while time.monotonic() < deadline:
            with contextlib.suppress(StorageError):  # the only one asked starts again
                if is_member(asker.statuses().values(), node):
                    return
            time.sleep(5 * POLL_S)
    raise StorageError(
        f"{node.name} may be a member again, and is none yet: where it was taken out, run "
        "`tigerchat farm admit` with --node-folder of that node; look whether a majority serves"
    )


def is_member(statuses: Iterable[FarmStatus], node: Node) -> bool | None:
    """Whether the newest Configuration that anybody here knows lists a node's member; None: nobody
    here is a member, or it is not committed."""
    here = [said for said in statuses if not said.out]
    if not here:
        return None
    newest = max(here, key=lambda said: said.commit)
    listed = any(member.id == node.farm_id for member in newest.members)
    return listed if newest.members_committed else None
