"""Copies a whole store to another database: all of it, verified, or nothing.

`copy` reads every table of a source row by row, in the order of its key, writes it to a target, reads the target again
and compares. A service cannot use the source meanwhile, and cannot find the target before it is complete: PostgreSQL
gets everything in one transaction, and SQLite a file that gets its name at the end. An interrupted copy leaves nothing.

Rows are copied as they are stored, so a job keeps its id, version and history. Both databases name their tables and
columns alike (`tables`). What is stored differently is passed on as values: the claims of running jobs, the last job
number, and whether the clock is virtual.
"""
