"""A farm whose majority is lost for good goes on from one of its members, which an operator names.

    the log as it lies there │ Configuration: this member alone, in a new term │ committed

Nothing can be known of what the lost ones had committed and this one never got: it is gone. Nobody
else of the old farm may run again on its old log: two farms would be the end.
"""

from dataclasses import dataclass
from pathlib import Path

from appliance.base.errors import ConfigurationError
from appliance.cores.raft.effects import MEMBER, AppendLog, HardState, Saved, SaveState
from appliance.formats.raft_legacy.configuration import (
    Configuration,
    Server,
    decode_configuration,
    encode_configuration,
)
from appliance.formats.raft_legacy.frame import CONFIGURATION, Entry
from appliance.roles.farm.storage import FarmStorage


@dataclass(slots=True, frozen=True)
class Recovered:
    """`lost`: the members that belong to the farm no more; `uncommitted`: entries of which nobody
    knows whether a majority had them, and which count from now on."""

    term: int
    index: int
    lost: tuple[Server, ...]
    uncommitted: int


def go_on_alone(folder: Path, own_id: int) -> Recovered:
    """Write that member `own_id`, whose stopped store lies in `folder`, is the whole farm.

    ConfigurationError: its log does not know of it.
    """
    storage = FarmStorage(folder)
    try:
        saved = storage.load(HardState())
        newest, servers = _servers(saved)
        own = next((server for server in servers if server.id == own_id), None)
        if own is None:
            raise ConfigurationError(
                f"{folder}: member {own_id} is not in the newest Configuration of its log "
                f"({', '.join(str(server.id) for server in servers) or 'none'}); recover on one "
                "that is"
            )
        last = saved.before + len(saved.entries)
        term, index = saved.state.term + 1, last + 1
        value = encode_configuration(Configuration(index, newest, (own,)))
        storage.perform(
            [
                AppendLog(index, (Entry(term, CONFIGURATION, value),)),
                SaveState(HardState(term, own_id, index, MEMBER)),
            ]
        )
    finally:
        storage.close()
    lost = tuple(server for server in servers if server.id != own_id)
    return Recovered(term, index, lost, last - min(last, saved.state.commit))


def _servers(saved: Saved) -> tuple[int, tuple[Server, ...]]:
    """Index and servers of the newest Configuration, committed or not."""
    for offset, entry in reversed(list(enumerate(saved.entries))):
        if entry.type == CONFIGURATION:
            index = saved.before + 1 + offset
            return index, decode_configuration(entry.value).servers
    if saved.snapshot is not None:
        return saved.snapshot.configuration.index, saved.snapshot.configuration.servers
    return 0, ()
