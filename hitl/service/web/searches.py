"""Describe a search for items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import StringConstraints

Same = Literal["", "yes", "no"]
Which = Literal["all", "contested", "changed", "open", "done", "known", "unlabeled"]
Sort = Literal["confidence", "surest", "change", "item", "labels"]
Part = Annotated[str, StringConstraints(max_length=200)]
Name = Annotated[str, StringConstraints(max_length=500)]


@dataclass(frozen=True)
class Search:
    """A search for items; the fields are the query parameters of the URL."""

    question: Name | None = None
    q: Part = ""
    show: Which = "all"
    label: Name = ""
    annotator: Name = ""
    said: Name = ""
    model: Name = ""
    same: Same = ""
    sort: Sort = "confidence"
    page: int = 1
    size: int = 50
