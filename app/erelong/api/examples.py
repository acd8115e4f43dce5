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
    "CancelIn": {"reason": "order 7 was paid"},
    "QueueSettings": {"concurrency": 10, "rate": {"per_second": 50}, "max_backlog": 100_000},
    "LeaseIn": {"kinds": ["thumbnail"], "wait": 30, "lease": 60},
    "ExtendIn": {"lease": 60},
    "FinishIn": {"result": {"width": 320, "height": 200}},
    "FailIn": {"error": {"type": "exception", "message": "the image is broken"}, "delay": "1m"},
}
LINES: Final = '{"kind": "echo", "delay": "1h"}\n{"kind": "echo", "params": {"line": 2}}\n'
