"""What `[crew]` says of nobody: it has no effect, and whoever wrote it meant somebody."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hitl.settings import CrewSettings


def without_effect(settings: CrewSettings, former: Collection[str], needless: bool) -> Iterator[str]:
    """A line for each thing: what is wrong, and after the first sentence what to do.

    `former`: who has answered, and may have left. `needless`: there are items, and none has the field of `needs`.
    """
    if settings.needs is not None and needless:
        yield (
            f"crew.needs: no item has the field {settings.needs!r}, so that anybody is asked about anything. Name the "
            "field of the items' data that says which skills an item takes"
        )
    if not settings.annotators:
        said = [key for key in ("capacity", "capacities", "skills", "needs") if key in settings.model_fields_set]
        if said:
            yield (
                f"crew.{', crew.'.join(said)} without crew.annotators: nobody is asked by name, and it has no effect. "
                "Name those who can be asked, or take it out"
            )
        return
    known = {*settings.annotators, *former}
    for key in ("capacities", "costs", "skills"):
        for name in getattr(settings, key):
            if name not in known:
                near = get_close_matches(name, list(known), 1)
                meant = f" (did you mean {near[0]!r}?)" if near else ""
                yield f"crew.{key}: {name!r} is not in crew.annotators, and it has no effect. Mend the name{meant}"
