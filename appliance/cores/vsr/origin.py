"""Whether the volume that is opened is the one that this replica worked on last.

What lies in a file that was copied is what its replica knew at that moment: whatever it has
acknowledged and promised since, the copy denies. By its bytes nobody can tell, and the other
replicas (`lives`) can only while they remember more than it holds. The file itself can: see
`formats/volume_file`.
"""

from dataclasses import dataclass

from appliance.formats.superblock import Superblock
from appliance.formats.volume_file import NOT_KNOWN, VolumeFile


@dataclass(slots=True)
class Origin:
    """What is kept of the volume itself: how it was made, and which file it is."""

    flags: int = 0  # lives.FLAG_UNVOUCHED, lives.FLAG_REMADE
    file: VolumeFile = NOT_KNOWN


def foreign(
    block: Superblock, whose: tuple[bytes, int, bytes], file: VolumeFile, *, moved: bool
) -> tuple[str, str] | None:
    """Why a replica must not work on this volume: code and reason of the halt; None if it may.

    `whose`: cluster, shard and id of the replica. `moved`: the operator has said of this very file
    that it is the volume as it was left, and no older one. A volume that does not know yet which
    file it was takes any.
    """
    assert len(whose[0]) == len(block.cluster)
    if (block.cluster, block.shard, block.replica_id) != whose:
        return "CLUSTER_MISMATCH", "the volume belongs to another cluster, shard or replica"
    if file.is_other(than=block.file) and not moved:
        reason = (
            f"the volume was open last as another file ({block.file}) than the one that is here "
            f"({file}): it was copied, restored from a backup or moved to another disk"
        )
        return "VOLUME_COPIED", reason
    return None
