"""Contract suites: what every combiner, policy and connector must do, including those of other packages.

    from hitl.testing import check_combiner

    def test_contract():
        check_combiner(Loudest())

`help(hitl.models.Combiner)` shows a combiner that passes.

The module of each suite maps facts, in words, to functions that check them (FACTS). Use it to write one test per fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy

if TYPE_CHECKING:
    from hitl.testing.combiners import check_combiner as check_combiner
    from hitl.testing.connectors import check_connector as check_connector
    from hitl.testing.crowds import crowd as crowd
    from hitl.testing.policies import check_policy as check_policy
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
