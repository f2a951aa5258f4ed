"""Open items that need skills which no annotator of the crew has: a setting to fix, not a reason to end the project.

    lacking    an open item n such that no k of the crew has   needs[n] is part of skills[k]

Other items end by themselves when every annotator who may answer them has (`outstanding`). These would too, although
the cause may be a missing word in hitl.toml, a colleague who has yet to join, or a typo in the item's data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hitl.annotations import Name
from hitl.crew import Crew

SHOWN = 5
"""Maximum number of skills named in a message."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """Number of open items that need these skills: nobody has any of them, or nobody has all `together`."""

    skills: tuple[str, ...]
    items: int
    together: bool = False


def lacking(items: Iterable[Name], crew: Crew) -> tuple[Lacking, ...]:
    """List the skills that these items need and nobody in the crew has, most items first."""
    if not (crew.needs and crew.names):
        return ()
    people = [crew.skills.get(name, frozenset()) for name in crew.names]
    had = frozenset().union(*people)
    needed = Counter(need for item in items if (need := crew.needs.get(item)))
    items_by_skills: Counter[tuple[tuple[str, ...], bool]] = Counter()
    for need, count in needed.items():
        if not any(need <= skills for skills in people):
            missing = need - had
            items_by_skills[tuple(sorted(missing or need)), not missing] += count
    ranked = sorted(items_by_skills.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(Lacking(skills, count, together) for (skills, together), count in ranked)


def in_words(lacks: Sequence[Lacking], crew: Crew) -> str:
    """Describe which skills are missing, who outside the crew has them, and which the crew has."""
    total = sum(each.items for each in lacks)
    named = ", ".join(_named(each, crew) for each in lacks[:SHOWN])
    more = f", and {len(lacks) - SHOWN} more" if len(lacks) > SHOWN else ""
    had = sorted(frozenset().union(*(crew.skills.get(name, frozenset()) for name in crew.names)))
    has = f"the crew has {', '.join(map(repr, had[:SHOWN]))}{', ...' if len(had) > SHOWN else ''}"
    sentence = f"no annotator of the crew has what {total:,} item{' needs' if total == 1 else 's need'}: {named}{more}"
    return f"{sentence} ({has if had else 'the crew has no skills'}; crew.skills)"


def _named(each: Lacking, crew: Crew) -> str:
    skills = " and ".join(map(repr, each.skills)) + (" together" if each.together else "")
    others = sorted(
        str(name) for name, has in crew.skills.items() if name not in crew.names and set(each.skills) <= set(has)
    )
    unknown = f"; {', '.join(others[:SHOWN])}, not in crew.annotators, has it" if others else ""
    return f"{skills} ({each.items:,}{unknown})"
