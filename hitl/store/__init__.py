"""The database: pulled data, results of runs, and changes that are still to be pushed."""

from __future__ import annotations

from hitl.store.lease import Lease
from hitl.store.results import CycleRecord, CycleSummary
from hitl.store.store import Store

__all__ = ["CycleRecord", "CycleSummary", "Lease", "Store"]
