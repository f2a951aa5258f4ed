"""A sample of the runs of `tests.bench.trust.clocks`."""

from __future__ import annotations

import pytest

from hitl.connectors.label_studio.server import LocalServer, Person
from tests.bench.trust.clocks import trial

pytestmark = [pytest.mark.server, pytest.mark.journey]


@pytest.mark.parametrize("seed", range(1000, 1002))
def test_no_answer_is_lost(server: LocalServer, people: list[Person], seed: int) -> None:
    (outcome,) = trial(server, people, [seed])
    assert outcome.pulls == 12
    assert outcome.differences == 0
