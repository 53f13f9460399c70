"""Shipping: what a shard committed becomes signed files at a target, each record exactly once.

Purpose. Reports and archives read files, not replicas. Every period of the log's own time, an hour
by default, becomes snapshot files and one signed manifest that lists them.

Idea. The shard itself remembers who ships and how far (`rooms/shipping`): a claim, the range that
is announced, the hash of its manifest. Names and contents follow from the range alone, so whoever
takes over puts the same files again, finds those that lie there already, and goes on. `Shipper`
looks at that state and says the one step to do next; the role does it and reports.

    claim ─▶ sweep ─▶ head ─▶ announce ─▶ put files ─▶ put manifest ─▶ tell the log ─▶ sweep …
               │
               └─ meanwhile sealed segments of the running period are put early, unlisted

Every file goes to `_incoming` under the claim's generation, is read back, and is renamed; only then
the next step begins. A step that fails is repeated after a pause that grows, for as long as it
takes: the records stay in the log, because retention stops at the cursor.

Who ships. Nobody yet: the members of the shard in turn, the first at once. A restarted process of
the claiming node claims again, which fences a twin that may still live. Another node claims when
the next period is late and nothing has moved at the target for a while, if it can reach it itself.

Promises. No step outside the own claim; one announced period at a time; a manifest is told to the
log only after every file of it was read back. `docs/shipping.md` is for operators.
"""
