"""Version vectors: the newest progress seen of each source.

    a run of V records, one zipped id each, ascending by source

An entry with progress 0 differs from no entry. Two vectors are joined entry by entry, the larger
one wins; gaps are not noticed.
"""

from appliance.base.errors import PacketRefused
from appliance.base.limits import VECTOR_ENTRIES_MAX
from appliance.formats.toytlv.ids import Id, unzip_id, zip_id
from appliance.formats.toytlv.records import record, take_as

_V = ord("V")

Vector = dict[int, int]  # source -> progress


def encode_vector(vector: Vector) -> bytes:
    return b"".join([record("V", zip_id(Id(source, vector[source]))) for source in sorted(vector)])


def decode_vector(data: bytes, at: int = 0, end: int = -1) -> Vector:
    """The vector in `data[at:end]`. Any order and repeated sources are tolerated.

    Raises PacketRefused, also for more than VECTOR_ENTRIES_MAX entries.
    """
    end = len(data) if end < 0 else end
    vector: Vector = {}
    while at < end:
        start, at = take_as(data, at, end, _V)
        source, progress = unzip_id(data[start:at])
        if progress > vector.get(source, -1):
            vector[source] = progress
            if len(vector) > VECTOR_ENTRIES_MAX:
                raise PacketRefused("vector_too_large", f"more than {VECTOR_ENTRIES_MAX} sources")
    return vector


def join(vector: Vector, other: Vector) -> None:
    """Raise each entry of `vector` to that of `other`."""
    for source, progress in other.items():
        if progress > vector.get(source, -1):
            vector[source] = progress


def vector_text(vector: Vector) -> str:
    return ",".join(str(Id(source, vector[source])) for source in sorted(vector))
