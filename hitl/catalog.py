"""Every name that a command or hitl.toml takes for a method or a policy."""

from __future__ import annotations

from hitl.active.registry import POLICIES as POLICIES
from hitl.active.registry import policy as policy
from hitl.models.registry import COMBINERS as COMBINERS
from hitl.models.registry import combiner as combiner
from hitl.models.registry import combiner_of as combiner_of
