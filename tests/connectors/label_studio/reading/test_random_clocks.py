"""A sample of the runs of `tests.bench.trust.clocks`."""

from __future__ import annotations

import pytest

from hitl.connectors.label_studio.server import LocalServer, Person
from tests.bench.trust.clocks import trial
from tests.of_the_day import DAY

pytestmark = [pytest.mark.server, pytest.mark.journey]


def test_no_answer_is_lost(server: LocalServer, people: list[Person]) -> None:
    (outcome,) = trial(server, people, [DAY])
    assert outcome.pulls == 12
    assert outcome.differences == 0
