"""What no story of a group may break, whatever its test plays itself.

    every message    what it promises lies on the disk of its sender: view, log_view, the prepare
    every commit     all replicas apply the same prepares, each the successor of the one before
    every reply      is for an op that is committed, and one request is prepared once

The simulator's own checkers know all that was ever asked and prepared. Here a test speaks for
clients and replicas that do not run, so this one goes by what it sees of those that do.
"""

from typing import Any

from appliance.base.limits import MEMBERS_MAX
from appliance.cores.vsr.replica import Replica
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.envelope import Header
from appliance.simulation.checkers.superblocks import Superblocks
from appliance.simulation.machine import Machine


class Eyes:
    """Told what the simulator's checkers are told."""

    def __init__(self) -> None:
        self.committed: dict[int, bytes] = {}  # op -> digest, whoever applied it
        self.prepared_for: dict[bytes, int] = {}  # digest of a request -> newest op
        self.committed_for: dict[bytes, int] = {}  # and the one op that is committed
        self.checkpoints: dict[int, bytes] = {}  # op -> id, whoever took it
        self._superblocks = Superblocks(MEMBERS_MAX)

    def on_start(self, machine: Machine) -> None:
        machine.commit_seen = _core(machine).commit_min
        self._superblocks.durable[machine.index] = machine.disk.superblock()
        self._superblocks.on_start(machine.index)

    def on_step(self, machine: Machine) -> None:
        core = _core(machine)
        core.check()
        core.journal.check()
        self.watch_commits(machine)

    def watch_commits(self, machine: Machine) -> None:
        core = _core(machine)
        assert core.commit_min >= machine.commit_seen or core.syncing
        for op in range(machine.commit_seen + 1, core.commit_min + 1):
            header = core.journal.at(op)
            if header is None:
                continue  # skipped by a state sync
            assert self.committed.setdefault(op, header.digest) == header.digest, f"op {op} forked"
            if op - 1 in self.committed and op > 1:
                assert header.parent == self.committed[op - 1]
            known = core.prepares.get(op)
            if known is not None and known.header.digest == header.digest:
                request = bytes(ses.request_digest_of(known.body))
                assert self.committed_for.setdefault(request, op) == op, "a request applied twice"
        machine.commit_seen = core.commit_min
        state = core.checkpoint
        if state is not None:
            known = self.checkpoints.setdefault(state.header.op, state.checkpoint_id)
            assert known == state.checkpoint_id, f"checkpoint {state.header.op} differs"

    def on_send(self, machine: Machine, members: Any, header: Header, body: bytes) -> None:
        """Before anything leaves: is what it promises on the disk?"""
        command, core, disk = header.command, _core(machine), machine.disk
        # where a test sets the status alone, the log is of the view that is to begin
        forced = command == env.DO_VIEW_CHANGE and header.aux == header.view
        assert forced or cmd.invalid(header) is None, f"{header} {cmd.invalid(header)}"
        prepare = command == env.PREPARE and header.viewstamp == core.viewstamp
        if not forced:
            self._says(machine, header, body, own_prepare=prepare and core.is_primary)
        if command == env.PREPARE_OK:
            digest = cmd.PrepareOk.digest(header.area)
            assert disk.holds(header.op, digest), f"{header} is not durable"
        if prepare and body:
            self.prepared_for[ses.request_digest_of(body)] = header.op

    def on_send_client(self, machine: Machine, header: Header, body: bytes) -> None:
        self._says(machine, header, body, own_prepare=False)
        if header.command == env.REPLY:
            assert header.op in self.committed, "an op is answered before it is committed"

    def _says(self, machine: Machine, header: Header, body: bytes, *, own_prepare: bool) -> None:
        assert env.body_valid(header, body)
        index = machine.index
        self._superblocks.durable[index] = machine.disk.superblock()
        self._superblocks.on_say(
            index, _core(machine).incarnation, header, body, own_prepare=own_prepare
        )

    def ignore(self, *told: Any) -> None:
        """What the disks, clocks and readers of these groups do is no matter of theirs."""

    on_format = on_deliver = on_clock = on_written = on_publish = ignore


def _core(machine: Machine) -> Replica:
    assert machine.replica is not None
    return machine.replica
