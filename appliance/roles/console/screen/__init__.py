"""The console on a terminal of 80 columns and 24 lines: what the machine's own screen shows.

    site ──poll, each second──▶ core ──lines of cells──▶ content.py ──▶ app.py ──▶ terminal
         ◀──acts, by the functions of the verbs── app.py ◀── keys

app.py: views, keys, acts; content.py: the one way by which text comes to the screen. What a site is
for it stands in port.py; `tigerchat console` gives it one.

A library draws, and writes to the terminal by itself, past the way out of other verbs: so whatever
is shown passes `content.py`, in which markup is text, and no control character remains. No key
leads to a shell, and nothing that is shown is obeyed.
"""
