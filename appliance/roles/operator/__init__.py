"""What an operator's command asks of a shard's group: a session of the log of its own, opened with
the keys of a node, as an edge would open it. It lives as long as the command."""
