"""The console of one node: what the operator looks at, and acts from.

role.py: the process, its page and its port; sign_ins.py: whose request it is.
watch.py: asks the processes of this machine, also for `tigerchat status` and `tigerchat node`.
curve_file.py, curve_requests.py: curves of the past, kept in a file and given to the page.
act_requests.py, doer.py, performing.py: acts over HTTP, one at a time, by the functions of the
verbs, and told as done when they are seen.
"""
