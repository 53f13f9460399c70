"""The console of one node: what the operator looks at.

role.py: the process, its page and its port.
watch.py: asks the processes of this machine, also for `tigerchat status` and `tigerchat node`.
"""
