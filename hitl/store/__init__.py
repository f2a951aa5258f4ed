"""The database: what was pulled, what was concluded, what must still be pushed."""

from __future__ import annotations

from hitl.store.lease import Lease
from hitl.store.results import CycleRecord, CycleSummary
from hitl.store.store import Store

__all__ = ["CycleRecord", "CycleSummary", "Lease", "Store"]
