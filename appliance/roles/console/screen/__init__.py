"""The console on a terminal of 80 columns and 24 lines: what the machine's own screen shows.

    site ──poll, each second──▶ core ──lines of cells──▶ content.py ──▶ app.py ──▶ terminal
         ◀──acts, done by the node's console as for the page── app.py ◀── keys

app.py: views, keys, acts; offered.py: what may be done, and which line is marked; chosen.py: what
an act asks for, line by line; asking.py: how the console is asked to do it; content.py: the one way
by which text comes to the screen. What a site is for it stands in port.py; `tigerchat console`
gives it one.

A library draws, and writes to the terminal by itself, past the way out of other verbs: so whatever
is shown passes `content.py`, in which markup is text, and no control character remains. No key
leads to a shell, and nothing that is shown is obeyed.
"""
