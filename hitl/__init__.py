"""hitl: turn what people and models say about items into labels, and decide what to ask next, and whom.

Evidence -> Consensus -> Plan. Public names load on first use, so that `import hitl` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitl.annotations import Annotations as Annotations
    from hitl.consensus import AnnotatorReport as AnnotatorReport
    from hitl.consensus import Consensus as Consensus
    from hitl.crew import Budget as Budget
    from hitl.crew import Crew as Crew
    from hitl.design_effect import DesignEffect as DesignEffect
    from hitl.errors import HitlError as HitlError
    from hitl.evidence import Evidence as Evidence
    from hitl.plan import Plan as Plan

__version__ = "0.1.0"

_PUBLIC = {
    "Annotations": "hitl.annotations",
    "AnnotatorReport": "hitl.consensus",
    "Budget": "hitl.crew",
    "Consensus": "hitl.consensus",
    "Crew": "hitl.crew",
    "DesignEffect": "hitl.design_effect",
    "Evidence": "hitl.evidence",
    "HitlError": "hitl.errors",
    "Plan": "hitl.plan",
}
__all__ = ["Annotations", "AnnotatorReport", "Budget", "Consensus", "Crew", "DesignEffect", "Evidence", "HitlError", "Plan"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'hitl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
