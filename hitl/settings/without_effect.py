"""Find settings of `[crew]` that have no effect: unknown names, limits without names, needs that no item has."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hitl.settings import CrewSettings

NEEDS_NAMES = ("capacity", "capacities", "skills", "skill_field")
"""Settings that have no effect unless annotators are named."""


def without_effect(settings: CrewSettings, named: Collection[str], needless: bool) -> Iterator[tuple[str, str]]:
    """Yield the problem and its fix for each setting without effect.

    `named`: everyone the platform has named; those who left still have a cost for their old answers. `needless`: there
    are items, and none has the field of `needs`.
    """
    if settings.skill_field is not None and needless:
        yield (
            f"crew.skill_field: no item has the field {settings.skill_field!r}, so that every annotator is asked about "
            "every item",
            "name the field of the items' data that says which skills an item takes",
        )
    if not settings.annotators:
        given = [key for key in NEEDS_NAMES if key in settings.model_fields_set]
        if given:
            what = f"crew.{', crew.'.join(given)} without crew.annotators: no annotator is asked by name"
            yield f"{what}, and it has no effect", "name in crew.annotators those who can be asked, or take it out"
        return
    for key in ("capacities", "costs", "skills"):
        known = {*settings.annotators, *(named if key == "costs" else ())}
        for name in getattr(settings, key):
            if name not in known:
                near = _nearest(name, known)
                meant = f" (did you mean {near!r}?)" if near else ""
                yield f"crew.{key}: {name!r} is not in crew.annotators, and it has no effect", f"mend the name{meant}"


def _nearest(name: str, known: Collection[str]) -> str | None:
    """Return the most similar known name, preferring one that differs only in case."""
    written = {each.casefold(): each for each in sorted(known, reverse=True)}
    near = get_close_matches(name.casefold(), list(written), 1)
    return written[near[0]] if near else None
