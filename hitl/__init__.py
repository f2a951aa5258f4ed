"""hitl: combine annotations and model predictions into labels, and decide what to ask next, and whom.

Evidence -> Consensus -> Plan. Public names are loaded on first use, so `import hitl` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy

__version__ = "0.2.0"

if TYPE_CHECKING:
    from hitl import models as models
    from hitl import score as score
    from hitl import sklearn as sklearn
    from hitl.annotations import Annotations as Annotations
    from hitl.consensus import AnnotatorReport as AnnotatorReport
    from hitl.consensus import Consensus as Consensus
    from hitl.crew import Budget as Budget
    from hitl.crew import Crew as Crew
    from hitl.design_effect import DesignEffect as DesignEffect
    from hitl.errors import HitlError as HitlError
    from hitl.evidence import Evidence as Evidence
    from hitl.models.aggregator import Aggregator as Aggregator
    from hitl.models.combine import combine as combine
    from hitl.plan import Plan as Plan
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
