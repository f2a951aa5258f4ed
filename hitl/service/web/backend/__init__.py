"""Serve Label Studio's model backend: what hitl suggests to annotators before they answer.

suggestions    suggestions per item, looked up in a snapshot
routes         the five routes that Label Studio calls
"""

from __future__ import annotations

from hitl.service.web.backend.routes import Allowed, router
from hitl.service.web.backend.suggestions import prepare

__all__ = ["Allowed", "prepare", "router"]
