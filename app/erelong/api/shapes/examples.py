"""An example body for each call that takes one, shown in the documentation."""

from __future__ import annotations

from typing import Any, Final

EXAMPLES: Final[dict[str, Any]] = {
    "JobIn": {
        "kind": "echo",
        "params": {"hello": "world"},
        "delay": "5s",
        "key": "order-7-reminder",
        "on_conflict": "reschedule",
        "labels": {"tenant": "t1"},
        "retry": {"max_attempts": 3},
    },
    "BatchIn": {"jobs": [{"kind": "echo", "delay": "1h"}, {"kind": "echo", "execute_at": "2027-12-01T09:00:00Z"}]},
    "PatchIn": {"delay": "1h", "priority": 5},
    "RetryIn": {"params": {"hello": "again"}, "retry": {"max_attempts": 2}},
    "WaitIn": {"jobs": ["0000000001920f2d51733efdbe"], "until": "first_failure", "wait": 30},
    "CancelIn": {"reason": "order 7 was paid"},
    "QueueSettings": {"concurrency": 10, "rate": {"per_second": 50}, "max_backlog": 100_000},
    "PauseQueueIn": {"reason": "the provider is down"},
    "ScheduleIn": {
        "cron": "0 9 * * MON-FRI",
        "zone": "Europe/Berlin",
        "job": {"kind": "echo", "params": {"hello": "world"}},
    },
    "SchedulePatchIn": {"cron": "30 9 * * MON-FRI", "job": {"params": {"hello": "all"}}},
    "PauseScheduleIn": {"reason": "stocktaking"},
    "BackfillIn": {"from": "2026-11-17T00:00:00Z", "to": "2026-11-18T00:00:00Z"},
    "TriggerIn": {"overlap": "allow"},
    "OperationIn": {
        "action": "retry",
        "filter": {"state": ["failed"], "queue": ["mail"], "finished_after": "2026-11-18T09:00:00Z"},
        "at_most": 5_000,
        "spread": "10m",
    },
    "KindIn": {
        "params_schema": {
            "type": "object",
            "properties": {"image": {"type": "string"}},
            "required": ["image"],
            "additionalProperties": False,
        },
        "timeout": "2m",
        "retry": {"max_attempts": 3},
    },
    "LeaseIn": {"kinds": ["thumbnail"], "wait": 30, "lease": 60, "worker": "host-1/4711"},
    "ExtendIn": {"lease": 60},
    "FinishIn": {"result": {"width": 320, "height": 200}},
    "ClockIn": {"advance": "30d"},
    "FailIn": {"error": {"type": "exception", "message": "the image is broken"}, "delay": "1m"},
}
LINES: Final = '{"kind": "echo", "delay": "1h"}\n{"kind": "echo", "params": {"line": 2}}\n'
