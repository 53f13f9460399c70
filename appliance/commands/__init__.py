"""Floor 4: what an operator or user types, one module per verb.

A module is named after its verb and has one `click` command of the name `command`; `__main__` knows
the verbs and imports the module of the one that was typed, so that `tigerchat version` pays for
nothing else. A command raises errors of `base/errors`, one sentence each; `__main__` prints it and
chooses the exit code:

    0  done        1  the machine or the site refused        2  a mistake of the operator's
"""
