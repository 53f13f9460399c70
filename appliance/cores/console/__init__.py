"""The operator's view of a site: what its processes say of themselves, as rows, alarms and curves.

Once a second a role (or `tigerchat status`) asks every process of the nodes on its machine for its
status and hands the answers to `Console.on_poll`. What comes out is one `Model`; page and terminal
both show it, and neither decides anything.

    answers of processes ──figures──▶ facts ──alarms──▶ what is wrong, since when
                                        │
                                        ├──screen──▶ tables of cells (text, tone)
                                        └──history─▶ records a second, latencies, 5 minutes

    answers of processes ──curve_figures──▶ values and counts ──curves──▶ an hour and a day of rows

What an operator may do stands in one table, `acts`: why it is refused, what will happen, what
proves it done (`stakes`: what it would cost).

A replica on another machine does not answer here: it is shown as its fellow members of the shard
see it. An alarm has a name that stays (documents and scripts refer to it), a subject, and a time
since which it holds without a break.

Pure: time comes in as `now_ms`; nothing is asked, read or drawn here.
"""
