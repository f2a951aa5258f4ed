"""Links to the pages of `hitl serve`."""

from __future__ import annotations

import re
from urllib.parse import quote

DOTS = re.compile(r"~*\.{1,2}")
"""Names that browsers take out of an address, and those that could be taken for them where they are escaped."""


def path(part: object) -> str:
    """A name as a part of an address; `named` of the pages reads it.

    Example:
        >>> path("a/b"), path("..")
        ('a%2Fb', '~..')
    """
    name = str(part)
    return f"~{name}" if DOTS.fullmatch(name) else quote(name, safe="")


def page_of(base: str | None, project: str, *parts: object) -> str | None:
    """The address of a page of a project; None where nobody has said where the pages are.

    Example:
        >>> page_of("https://hitl.example/", "pets", "items", "a/b")
        'https://hitl.example/projects/pets/items/a%2Fb'
    """
    return None if base is None else "/".join((base.rstrip("/"), "projects", *map(path, (project, *parts))))
