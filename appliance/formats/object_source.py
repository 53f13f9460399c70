"""The source number of a node in the objects plane: who makes a packet.

    20 bits: site number 8, life of the store 6, index of the node 6

A store that was lost took with it how many packet numbers were used, so the node goes on under
another life. The file `objects.source` beside the store holds the present life, in decimal.
"""

from appliance.base.errors import ConfigurationError
from appliance.formats.site import NODES_MAX, SITE_NUMBER_MAX

LIFE_FILE = "objects.source"
LIVES_MAX = 64
assert (SITE_NUMBER_MAX + 1) * LIVES_MAX * NODES_MAX == 1 << 20


def source_of(site_number: int, life: int, index: int) -> int:
    assert 1 <= site_number <= SITE_NUMBER_MAX and 0 <= index < NODES_MAX
    if not 0 <= life < LIVES_MAX:
        raise ConfigurationError(
            f"node {index} has lost its objects {LIVES_MAX} times, and no source is left for it: "
            f"add a new node instead"
        )
    return (site_number * LIVES_MAX + life) * NODES_MAX + index


def site_of(source: int) -> int:
    """The number of the site that a source belongs to."""
    return source // (LIVES_MAX * NODES_MAX)


def is_of_node(source: int, site_number: int, index: int) -> bool:
    """Whether this is a source of that node, in any of its lives."""
    return source % NODES_MAX == index and site_of(source) == site_number


def is_of_site(source: int, site_number: int, node_count: int) -> bool:
    return source % NODES_MAX < node_count and site_of(source) == site_number
