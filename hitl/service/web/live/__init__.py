"""What happens while people label: hints of the platform, live beliefs, events to browsers.

beliefs     what is believed of a project's items, label by label
hints       what the platform has told of, made durable before it is answered
puller      a thread a project: looks at the platform, keeps beliefs and snapshot up to date
broadcast   server-sent events
routes      POST /webhook/{project} and GET /projects/{project}/events
live        all of it
"""

from __future__ import annotations

from hitl.service.web.live.live import Live
from hitl.service.web.live.metrics import LiveFigures
from hitl.service.web.live.puller import Lead

__all__ = ["Lead", "Live", "LiveFigures"]
