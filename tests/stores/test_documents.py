"""Documents and further jobs stored in the same commit as an item."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from erelong.errors import DocumentChanged
from erelong.model.document import Document
from erelong.model.job import Job
from erelong.model.outcome import End, Outcome
from erelong.model.submission import IdempotencyRecord
from erelong.stores.base import Ending, Store
from tests.support.builders import ALL, NOW, make_job, make_new_job, put_one

pytestmark = pytest.mark.real_loop

FIRST = Document("schedule", "report", 1, NOW, b'{"cron":"@daily"}')
SECOND = FIRST._replace(version=2, changed_at=NOW + 1, text=b"{}")

Call = Callable[..., Awaitable[tuple[bool, list[Job]]]]
"""Write one item; return whether it was written, and the jobs added with it."""


async def _add(store: Store, *, is_refused: bool, **others: object) -> tuple[bool, list[Job]]:
    await put_one(store, key="held")
    receipt = await store.add([make_new_job(key="held" if is_refused else None)], now=NOW, **others)  # type: ignore[arg-type]
    return not is_refused, [*receipt.also]


async def _save(store: Store, *, is_refused: bool, **others: object) -> tuple[bool, list[Job]]:
    job = await put_one(store, delay=60)
    changed = job.run_now(NOW)._replace(version=9 if is_refused else 2)
    (verdict,) = await store.save([changed], **others)  # type: ignore[arg-type]
    return verdict.is_saved, [*verdict.also]


async def _finish(store: Store, *, is_refused: bool, **others: object) -> tuple[bool, list[Job]]:
    job = await put_one(store)
    (running,) = (await store.claim([job.seq], now=NOW)).jobs
    if is_refused:
        await store.save([running.cancel(NOW)])
    (verdict,) = await store.finish([Ending(running, Outcome(End.SUCCEEDED), NOW)], **others)  # type: ignore[arg-type]
    return verdict.is_saved, [*verdict.also]


async def _delete(store: Store, *, is_refused: bool, **others: object) -> tuple[bool, list[Job]]:
    job = await put_one(store)
    saved = await store.delete(job._replace(version=9) if is_refused else job, **others)  # type: ignore[arg-type]
    return saved.is_saved, [*saved.also]


@pytest.fixture(params=[_add, _save, _finish, _delete], ids=["add", "save", "finish", "delete"])
def call(request: pytest.FixtureRequest) -> Call:
    """Return each method that stores more in its commit."""
    method: Call = request.param
    return method


async def test_document_is_stored_changed_and_deleted(store: Store) -> None:
    await store.add([], now=NOW, beside=[FIRST])
    stored = await store.document("schedule", "report")
    await store.add([], now=NOW, beside=[SECOND])
    changed = await store.document("schedule", "report")
    await store.add([], now=NOW, beside=[SECOND._replace(version=3, text=None)])

    assert (stored, changed, await store.document("schedule", "report")) == (FIRST, SECOND, None)


async def test_deleted_document_may_be_made_again(store: Store) -> None:
    await store.add([], now=NOW, beside=[FIRST])
    await store.add([], now=NOW, beside=[SECOND._replace(text=None)])
    await store.add([], now=NOW, beside=[FIRST])

    assert await store.document("schedule", "report") == FIRST


async def test_documents_are_listed_by_name_a_page_at_a_time(store: Store) -> None:
    names = ["b", "a", "d", "c"]
    await store.add([], now=NOW, beside=[FIRST._replace(name=name) for name in names])
    await store.add([], now=NOW, beside=[FIRST._replace(sort="operation", name="a")])

    first = await store.documents("schedule", limit=3)
    second = await store.documents("schedule", after="c", limit=3)

    assert [document.name for document in first + second] == ["a", "b", "c", "d"]


async def test_documents_are_read_by_their_names(store: Store) -> None:
    await store.add([], now=NOW, beside=[FIRST._replace(name=name) for name in ("a", "b", "c")])
    await store.add([], now=NOW, beside=[FIRST._replace(sort="operation", name="d")])

    found = await store.named("schedule", ["c", "a", "d", "none"])

    assert sorted(document.name for document in found) == ["a", "c"]
    assert {document.sort for document in found} == {"schedule"}
    assert await store.named("schedule", []) == []


async def test_many_documents_are_stored_with_many_jobs(store: Store) -> None:
    documents = [FIRST._replace(name=f"{number:03}") for number in range(500)]

    receipt = await store.add([make_new_job() for _ in documents], now=NOW, beside=documents)

    assert len(receipt.entries) == 500
    assert await store.documents("schedule", limit=1_000) == documents
    with pytest.raises(DocumentChanged):
        await store.add([], now=NOW, beside=[documents[0]._replace(version=2), documents[1]])
    assert await store.documents("schedule", limit=1_000) == documents


async def test_documents_and_jobs_are_stored_with_an_item(store: Store, call: Call) -> None:
    others = [make_job(queue="one"), make_job(queue="other", labels={"a": "b"})]

    is_written, added = await call(store, is_refused=False, beside=[FIRST], also=[(0, job) for job in others])

    assert is_written
    assert [job._replace(seq=0) for job in added] == others
    assert await store.get([job.seq for job in added]) == {job.seq: job for job in added}
    assert await store.document("schedule", "report") == FIRST


async def test_refused_item_stores_neither_its_documents_nor_its_jobs(store: Store, call: Call) -> None:
    is_written, added = await call(store, is_refused=True, beside=[FIRST], also=[(0, make_job(queue="other"))])

    assert (is_written, added) == (False, [])
    assert await store.document("schedule", "report") is None
    assert store.waiting("other") == 0


@pytest.mark.parametrize("version", [0, 2, 3])
async def test_document_that_does_not_follow_on_the_stored_one_stores_nothing(
    store: Store, call: Call, version: int
) -> None:
    with pytest.raises(DocumentChanged):
        await call(store, is_refused=False, beside=[FIRST._replace(version=version)], also=[(0, make_job(queue="new"))])

    (job,) = await store.list(ALL)
    assert (job.version, store.waiting("new")) in {(1, 0), (2, 0)}  # as it was put, or claimed
    assert await store.document("schedule", "report") is None


async def test_second_version_in_one_call_follows_on_the_first(store: Store) -> None:
    with pytest.raises(DocumentChanged):
        await store.add([], now=NOW, beside=[FIRST, FIRST._replace(text=b"[]")])
    await store.add([], now=NOW, beside=[FIRST, SECOND])

    assert await store.document("schedule", "report") == SECOND


async def test_document_is_stored_if_one_of_several_items_is(store: Store) -> None:
    job = await put_one(store, delay=60)
    changed = job.run_now(NOW)

    verdicts = await store.save(
        [changed._replace(version=9), changed], beside=[FIRST], also=[(0, make_job()), (1, make_job(queue="b"))]
    )

    assert [(verdict.is_saved, [job.queue for job in verdict.also]) for verdict in verdicts] == [
        (False, []),
        (True, ["b"]),
    ]
    assert await store.document("schedule", "report") == FIRST


async def test_conflict_in_a_whole_batch_stores_nothing_beside_it(store: Store) -> None:
    await put_one(store, key="held")
    new_jobs = [make_new_job(), make_new_job(key="held")]

    receipt = await store.add(new_jobs, now=NOW, is_whole=True, beside=[FIRST], also=[(0, make_job())])

    assert (receipt.also, len(await store.list(ALL))) == ((), 1)
    assert await store.document("schedule", "report") is None


async def test_replayed_add_stores_nothing_beside_it(store: Store) -> None:
    record = IdempotencyRecord("caller", "key", b"")
    await store.add([make_new_job()], now=NOW, record=record)

    receipt = await store.add([make_new_job()], now=NOW, record=record, beside=[FIRST], also=[(0, make_job())])

    assert (receipt.replayed, receipt.also, len(await store.list(ALL))) == (True, (), 1)
    assert await store.document("schedule", "report") is None
