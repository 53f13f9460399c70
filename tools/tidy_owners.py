"""Which module stores which field of a member, the object that all modules of its protocol share.

Whoever reads a field may be anywhere; whoever asks why it has its value finds the answer in the
module that owns it. Another one that has to change it calls a function there, with a name for what
happens. A store is `member.field = ...`, `+=`, `del`, in a class or in a function that takes a
member; what is put into a dictionary, list or set that a field holds is none. What the class sets
while it is being made needs no owner: a field that nobody stores later stands under "".
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

from tools.tidy_source import Source, name_of

OWNED = ("appliance/cores/vsr/member.py", "Member")  # file, class
HEIRS = ("Member", "Replica")  # as functions name what they take

# Owners, by their modules in the folder of OWNED -> fields. More than one only from before there
# was a rule.
OWNERS: dict[str, str] = {
    "": (
        "chain clean_ops cluster completions counters diverged geometry introduced "
        "introductions manifests mending nonce pipeline placed_writes prepares prng repairs "
        "replica_id replies_reading replies_wanted request_queue rereading shard "
        "state_machine suspicions timeouts vouchers wal"
    ),
    "backfill": "backfill",
    "checkpoint": "checkpoint checkpoint_applied checkpoint_next checkpointing freeze_everything",
    "chunks": "reads_for_chunks",
    "commit": "checkpoint_due commit_min commit_reading published segments_writing",
    "epoch_end": "pull_tick",
    "epochs": "agreed agreed_known epoch_end members_old",
    "heartbeat": "commit_anchor heartbeat_ns",
    "lives": "incarnation lives",
    "member": (
        "_addressed _indexes clock commit_max configuration epoch halted index introduced_mask "
        "members op peers quorum_nack quorum_replication quorum_view_change refused "
        "replica_count standby_count status timestamp_last token_last"
    ),
    "repair": "faulty_before faulty_tick headers_tick reads_for_others",
    "replica": "monotonic_ns realtime_us tick",
    "skipped": "sync_log_seq sync_op_max sync_op_min",
    "start_view": "rsv_tick",
    "startup": "held journal origin reports superblock_repairs tour",
    "state_sync": "effects fetch sessions state_ready",
    "steps": "durable_seen",
    "superblock": "superblock superblock_writing",
    "tail": "reconfiguring",
    "timers": "commit_before",
    "view_change": "commit_told dvc_quorum sv_sent_view view_changes_failed",
    "views": "dvc_sent_view log_view view view_headers view_headers_kind",
    "votes": "svc_from",
    "wants": "acknowledge_tail repair_due sync_asked",
    "lives member": "told",
    "member superblock": "superblock_wanted",
    "member view_change": "dvcs",
    "normal view_change": "abdicating heartbeat_due",
}
# Fields with more than one owner: may only go down.
STILL_SHARED = 5


def owners() -> dict[str, set[str]]:
    """Modules by field."""
    return {field: set(modules.split()) for modules, row in OWNERS.items() for field in row.split()}


def check_owners(sources: list[Source]) -> None:
    """Each field has its row, and is stored where that says."""
    path, owned = OWNED
    folder = path.rpartition("/")[0]
    room = [source for source in sources if source.path.rpartition("/")[0] == folder]
    home = next((source for source in room if source.path == path), None)
    if home is None:
        return
    allowed, seen = owners(), defaultdict[str, set[str]](set)
    for source in room:
        stem = PurePath(source.path).stem
        for field, line, made in stores_of(source, owned):
            if field not in allowed:
                source.report(line, "owner", f"{owned}.{field} has no row in OWNERS")
                continue
            known = seen[field]
            if made:
                continue
            known.add(stem)
            if stem not in allowed[field]:
                names = " and ".join(sorted(allowed[field])) or "nobody, once it is made"
                source.report(line, "owner", f"{owned}.{field} is stored by {names}")
    for field, modules in allowed.items():
        if field not in seen:
            home.report(1, "owner", f"OWNERS names {field}, which {owned} has not")
        elif rest := modules - seen[field]:
            message = f"{' and '.join(sorted(rest))} does not store {field}: take it out of OWNERS"
            home.report(1, "owner", message)
    shared = sum(len(modules) > 1 for modules in owners().values())
    if shared != STILL_SHARED:
        message = f"{shared} fields with several owners, {STILL_SHARED} in STILL_SHARED"
        home.report(1, "owner", message + (": lower it" if shared < STILL_SHARED else ""))


def stores_of(source: Source, owned: str) -> Iterator[tuple[str, int, bool]]:
    """(field, line, whether that is while a member is made) of all stores of a module."""
    own, making = set[int](), set[int]()
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            if node.name == owned or owned in map(name_of, node.bases):
                own |= {id(inner) for inner in ast.walk(node)}
                making |= set(made_in(node))
    taken = names_of_members(source.nodes)
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            holder = name_of(node.value)
            if holder in taken or holder == "self" and id(node) in own:
                yield node.attr, node.lineno, id(node) in making


def made_in(node: ast.ClassDef) -> Iterator[int]:
    """Ids of what stands in `__init__` and in the methods that it calls, and they call."""
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    reached = ["__init__"]
    for name in reached:
        if name not in methods:
            continue
        for inner in ast.walk(methods[name]):
            yield id(inner)
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                called = inner.func
                if name_of(called.value) == "self" and called.attr not in reached:
                    reached.append(called.attr)


def names_of_members(nodes: list[ast.AST]) -> set[str]:
    """Names by which the functions of a module know a member: what they take, and other names for
    that.
    """
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.arg) and node.annotation is not None:
            if ast.unparse(node.annotation).strip("'\"") in HEIRS:
                names.add(node.arg)
    for node in nodes:
        if isinstance(node, ast.Assign) and name_of(node.value) in names:
            names |= {name for name in map(name_of, node.targets) if name and "." not in name}
    return names
