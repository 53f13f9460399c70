"""A node is refused whose site has more edges than a shard knows sessions of the log."""

import pytest

from appliance.base.errors import ConfigurationError
from appliance.formats.geometry import PRODUCTION
from appliance.node.start import OPERATOR_SESSIONS, check_sessions


@pytest.mark.parametrize("nodes", range(1, 65))
def test_as_many_edges_as_there_are_sessions_and_not_one_more(nodes, tmp_path):
    """An edge's and a shipper's of each node, and what operators need."""
    fitting = [
        edges
        for edges in range(1, PRODUCTION.clients_max + 1)
        if nodes * (edges + 1) + OPERATOR_SESSIONS <= PRODUCTION.clients_max
    ]
    for edges in fitting:
        check_sessions(tmp_path, nodes, edges)
    with pytest.raises(ConfigurationError, match=r"allowed: at most \d+ .*a shard knows 64"):
        check_sessions(tmp_path, nodes, len(fitting) + 1)
