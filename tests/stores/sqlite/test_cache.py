"""The cache of the embedded store: it is bounded, and its jobs are those on disk."""

from __future__ import annotations

from erelong.stores.cache import MAX_AT_ONCE, MAX_BYTES, MAX_JOBS, JobCache
from tests.support.builders import NOW, make_job


def test_cached_job_is_found_in_its_last_version() -> None:
    cache, job = JobCache(), make_job()._replace(seq=7)

    cache.keep([job, job.start(NOW)], epoch=0)

    assert cache.find([7]) == {7: job.start(NOW)}


def test_jobs_are_found_only_if_all_are_cached() -> None:
    cache = JobCache()
    cache.keep([make_job()._replace(seq=7)], epoch=0)

    assert cache.find([7, 8]) is None


def test_job_that_grew_too_large_is_not_found_in_its_old_version() -> None:
    cache, job = JobCache(), make_job()._replace(seq=7)
    cache.keep([job], epoch=0)

    cache.keep([job._replace(params=b"x" * MAX_BYTES)], epoch=0)

    assert cache.find([7]) is None


def test_job_with_large_extras_is_not_cached() -> None:
    cache, job = JobCache(), make_job(extras={"submitted_by": "x" * MAX_BYTES})._replace(seq=7)

    cache.keep([job], epoch=0)

    assert cache.find([7]) is None


def test_jobs_of_a_large_write_are_not_found_in_any_version() -> None:
    cache, jobs = JobCache(), [make_job()._replace(seq=seq) for seq in range(MAX_AT_ONCE + 1)]
    cache.keep(jobs[:1], epoch=0)

    cache.keep([job.start(NOW) for job in jobs], epoch=0)

    assert [cache.find([job.seq]) for job in jobs] == [None] * len(jobs)


def test_dropped_job_is_not_found_in_either_half() -> None:
    cache, job = JobCache(), make_job()
    for seq in range(MAX_JOBS + 1):
        cache.keep([job._replace(seq=seq)], epoch=0)

    cache.drop([0, MAX_JOBS])

    assert [cache.find([seq]) is None for seq in (0, 1, MAX_JOBS)] == [True, False, True]


def test_cache_is_bounded_and_has_the_latest_writes() -> None:
    cache, job = JobCache(), make_job()

    for seq in range(5 * MAX_JOBS):
        cache.keep([job._replace(seq=seq)], epoch=0)

    kept = [seq for seq in range(5 * MAX_JOBS) if cache.find([seq]) is not None]
    assert MAX_JOBS <= len(kept) <= 2 * MAX_JOBS
    assert kept[-MAX_JOBS:] == list(range(4 * MAX_JOBS, 5 * MAX_JOBS))
