"""What the roles share that work beside the replicas of their node, a task for each shard.

    log_session  reads the log beside a replica, appends to it
    shard_tasks  runs the shards of such a role: links, tasks, ticks, watchdog
    directory_file  the farm's directory in the node's folder, as far as it fits

The shipper and the federation stand on it, and edges go by its directory. It is no role itself.
"""
