"""`/v1/me` tells a caller what its key may do."""

from __future__ import annotations

from erelong.model.caller import Scope
from erelong.settings.queues import Rate
from tests.support.keyed import Keys, serve_keyed
from tests.support.served import Serve, Served

ALL = sorted(Scope)


async def test_key_reads_its_own_permissions(serve: Serve) -> None:
    keys = Keys().add("app", Scope.SUBMIT, Scope.CANCEL, queues=["sms", "mail"], rate=Rate(per_second=5, burst=20))
    keyed = await serve_keyed(serve, keys)

    with keyed.using("app") as service:
        me = (await service.get("/v1/me")).json

    assert me == {
        "name": "app",
        "scopes": ["cancel", "submit"],
        "queues": ["mail", "sms"],
        "rate": {"per_second": 5.0, "burst": 20.0},
        "anonymous": False,
    }


async def test_key_without_limits_may_use_all_queues(serve: Serve) -> None:
    keyed = await serve_keyed(serve, Keys().add("root"))

    with keyed.using("root") as service:
        me = (await service.get("/v1/me")).json

    assert me == {"name": "root", "scopes": ALL, "queues": None, "rate": None, "anonymous": False}


async def test_service_without_keys_admits_anonymous_callers(service: Served) -> None:
    me = (await service.get("/v1/me")).json

    assert me == {"name": None, "scopes": ALL, "queues": None, "rate": None, "anonymous": True}
