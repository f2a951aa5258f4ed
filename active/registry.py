"""Names of policies, and a function that builds a policy from a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hitl.registry import Registry

if TYPE_CHECKING:
    from hitl.active.policy import Policy

POLICIES = Registry(
    "hitl.policies",
    "policy.name",
    {
        "expected-gain": "hitl.active.policy:ExpectedGain",
        "even": "hitl.active.replay.baselines:Evenly",
        "random": "hitl.active.replay.baselines:Randomly",
        "uncertainty": "hitl.active.replay.baselines:Uncertain",
    },
)
"""Policy name -> location of its class."""


def policy(name: str, **settings: Any) -> Policy:
    """Build a policy with settings. Raise BadSettings for an unknown name or setting."""
    made: Policy = POLICIES.make(name, settings)
    return made
