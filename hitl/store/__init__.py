"""Store pulled data, results of runs, and changes still to be pushed in a database."""

from __future__ import annotations

from hitl.store.lease import Lease
from hitl.store.results import CycleRecord, CycleSummary
from hitl.store.store import Store

__all__ = ["CycleRecord", "CycleSummary", "Lease", "Store"]
