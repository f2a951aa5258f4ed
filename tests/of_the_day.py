"""Samples of the longest tests, others each day; `make trust` takes all of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

DAY = datetime.now(UTC).toordinal()


def of_the_day(values: Iterable[Any], count: int) -> list[Any]:
    """Parameters of a test: `count` of these values are taken today, all others are marked `trust`."""
    all_values = list(values)
    today = random.Random(DAY).sample(range(len(all_values)), count)
    return [pytest.param(v, marks=() if n in today else pytest.mark.trust) for n, v in enumerate(all_values)]
