"""The embedded store: one SQLite database, and the small files beside it.

How a call runs
    `store` implements the protocol. `executor` runs three threads: one writes, one answers quick reads, one lists. The
    writer takes all calls that have arrived as a group and runs them in one transaction (group commit), so they share
    an fsync. `transactions` holds the writes, `listing` the lists and counts, `statements` the schema and most SQL
    texts. `cache` keeps the jobs written last as they are on disk, so that a client that polls a job needs no thread. A
    write that fails, or whose caller did not wait for it, empties the cache.

Listings
    A listing walks along one index, in its order, and reads the rows that it returns. `grouped` gives the newest jobs
    of each group, `due` the next due ones, `ended` the latest ends of each queue and state, which are merged. What no
    index serves, such as the type of an error, is checked in SQL on a bounded number of jobs, and a short page says
    where the search goes on. An index of types would make each submit slower, and one of ends alone each end of a job.

Claims
    A claim must outlive the process, but not a power cut. Therefore it does not change the row of the job, which is
    wide and in several indexes. `claims` keeps the job in memory, and `files/claim_log` appends its number and version
    to a file that is never synced. The row still says that the job waits, so a reader must check `claims` first and the
    row second: the job runs if it is claimed and its row has the version before the claim. As soon as anything else is
    written over the row, the versions differ and the claim is void. Void entries stay in the file until it is long and
    is rewritten. A start ignores claims that are torn, of another database, or from before the job was due: then
    commits were lost, and the number belongs to another job. Claiming an unreadable row fails the job as `unreadable`.

Rows
    Kind, queue and the other fields that many jobs share are one JSON text (`spec`), which is parsed once for all of
    them. Fields that few jobs have are JSON too (`progress`, `extras`), and their readers ignore unknown names, so most
    additions need no migration. Kind and queue also have columns, for the indexes. Labels are not in `spec`, because
    they often name a single job. Columns that may be large come last, because reading a column means reading all pages
    of the row before it. A job whose only attempt succeeded has no stored history, since its other fields imply
    it.

Counts
    `counters` keeps the number of jobs by queue, kind and state in memory, and in a table that changes in the same
    transaction. Listings use them to choose an index range. A group is found in its index by one number: the state and
    a hash of queue and kind. Groups with equal numbers cost a listing some rows that it skips.
    The number of commits is in the database and in the watermark. It distinguishes a log that lost its end from one cut
    by a power failure, and it shows after an I/O error whether the last commit took effect.

Files beside the database
    `files/lock` is an flock: one process owns the store. `files/watermark` records how many commits are on disk. It is
    never ahead of the disk: with durability `full` it moves after a synced commit and before the response, with
    `normal` after a checkpoint. A database behind its watermark has lost commits and is refused, and so is an empty
    or missing database that has a watermark. `files/disk_reserve` is space for the day the disk is full.

Checkpoints
    `checkpoint` runs between groups, so no caller waits for one. A short checkpoint copies what readers permit. If
    readers keep the log from restarting until it is long, the writer waits for them for some milliseconds. The log is
    truncated to its usual size when it restarts. Freed pages are reused; `auto_vacuum` would cost each write a page.

Failures
    A full disk refuses submits only. Other writes mostly replace existing data; they use the reserve, and when that is
    used up, outcomes wait in memory.
    After an I/O error, `executor` closes all connections, reopens the database and writes the whole log into the file:
    after a failed fsync, the page cache may claim that pages are on disk that are not, and reading them back proves
    nothing. A second error within a minute ends the service.
    Every page has a checksum of SQLite's own extension (`cksumvfs`), which also covers indexes and free pages. It does
    not show where a page belongs; `backup` verifies that. Bytes that change in the log before a checkpoint are not
    detected.
    A batch that meets a damaged page is halved until the damaged row is alone. A database whose first pages cannot be
    read at the start is refused.

Backups
    `backup` copies all pages in one step, from the snapshot of one reader. In several steps, the copy would restart at
    each commit. `VACUUM INTO` would write pages that do not fit into its cache without checksums.

Migrations
    `migrations` changes an older schema in one transaction, after the checks of `database` that the file is whole. A
    migration keeps `seq` and `version` of each job, because claims depend on them.
"""
