"""What an operator's command asks of a shard's group: a session of the log of its own, opened with
the keys of a node, as an edge would open it. It lives as long as the command.

Beside it what commands and the console do alike: processes are stopped and started by whoever keeps
them, a primary steps down, members change, and what was done is written into shard 0. And volumes
are made (`volumes`), of nothing or of what is left of another cluster (`restoring`), whose volumes
and shipped files are read here.
"""
