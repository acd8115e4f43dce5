"""The PostgreSQL store: one node writes while its term lasts, and every write is fenced by an epoch.

How a call runs
    `store` implements the protocol. A writer thread takes all calls that have arrived as a group, and two reader
    threads have a connection each. A group becomes one draft: `operations` names the rows that its calls need,
    `reading` reads them, and the calls are applied in memory (`draft`) in their order. `writing` then sends the changes
    as a few statements on arrays. Only this process writes, so what a group has read still holds when it is written,
    and all policy is Python: key conflicts, versions, replays.

Fence
    `terms` decides which node writes: a row that its node renews, judged by the clock of the database alone. What a
    node believes is never relied on: each write locks the row of `fences` and is refused unless the row has the epoch
    of its session. A take-over raises the epoch, for which it waits until the group that is being written has ended.
    A node that may have been stopped for longer than its term, or whose term session has ended, starts no job that it
    has claimed, and shows no cached one, before it has renewed the term.

Never in doubt
    An epoch is the life of one write session. When the connection fails while a group is written, `session` connects
    again and raises the epoch; from then on, nothing that the old connection sent can still take effect. Each group
    stores a receipt with its counts, so one look shows whether it is stored. If not, it is sent again. So callers wait
    for a short failure and see no error. After a longer one they get 503, and the group is settled before the next.
    A large group is written in parts. One that was too slow is given twice the time when it is sent again.
    Requests are never cancelled: a cancelled commit that waits for a standby seems to have succeeded. A warning that
    the standbys may lack a commit counts as a failed connection, and the next commit, of the epoch, waits for them.

Claims and counts
    As in the embedded store, a claim does not change the row of the job. It is a row in a log, so a job runs if its row
    waits and a claim has the next version. Readers look for claims in the same statement, so they need no memory of
    the writer. Changes of the counts are rows in another log, which are added up from time to time. Both logs have two
    halves (`logs`): only inserted into, then emptied at once, or later if somebody, such as a backup, reads the half.
    No row is updated with each commit, because an old snapshot would keep all its dead versions.

Plans
    Statements are planned without statistics, once for each connection. A statement that finds rows by number must
    offer the planner no other index, and listings are written such that one index gives their order.
"""
