"""Registries of classes by name, from this package and from plugins. A class is loaded when it is needed.

Another package adds a combiner, a policy or a connector by an entry point:

    [project.entry-points."hitl.combiners"]
    loudest = "their_package.loudest:Loudest"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hitl.errors import BadSettings
from hitl.formatting import did_you_mean


@dataclass(frozen=True)
class Registry(Mapping[str, str]):
    """Mapping from names to class locations ("module:Class").

    Attributes:
        group: entry point group by which other packages add names.
        noun: what a name stands for, in messages ("policy").
        own: name -> location of the classes in this package, which no other package can replace.
    """

    group: str
    noun: str
    own: Mapping[str, str]

    @cached_property
    def others(self) -> dict[str, EntryPoint]:
        """Name -> entry point of classes in other packages, in alphabetical order."""
        entries = sorted(entry_points(group=self.group), key=lambda entry: entry.name)
        return {entry.name: entry for entry in entries if entry.name not in self.own}

    def __getitem__(self, name: str) -> str:
        return self.own[name] if name in self.own else self.others[name].value

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *self.others))

    def __len__(self) -> int:
        return len(self.own) + len(self.others)

    def load(self, name: str) -> Any:
        """Load the class of this name. Raises BadSettings if the name is unknown or its package cannot be loaded."""
        if name in self.own:
            module, _, attribute = self.own[name].partition(":")
            return getattr(import_module(module), attribute)
        if name not in self.others:
            near = did_you_mean(name, self)
            expected = f"{near} Expected" if near else "; expected"
            raise BadSettings(f"{self.noun} {name!r} is unknown{expected} one of {', '.join(self)}")
        entry = self.others[name]
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            package = entry.dist.name if entry.dist else "another package"
            raise BadSettings(
                f"{self.noun} {name!r} of {package} cannot be loaded: {error}; repair its install"
            ) from error

    def make(self, name: str, settings: Mapping[str, Any]) -> Any:
        """Create an instance of the class of this name. Raises BadSettings for an unknown name or setting."""
        made = self.load(name)
        types = {field.name: field.type for field in fields(made)} if is_dataclass(made) else {}
        for key, value in settings.items():
            if key not in types:
                has = f"it has {', '.join(types) or 'none'}{did_you_mean(key, types)}"
                raise BadSettings(f"{self.noun} {name!r} has no setting {key!r}; {has}")
            if types[key] in (bool, "bool") and not isinstance(value, bool):
                raise BadSettings(f"{self.noun} {name!r}: {key} is {value!r}; expected true or false")
        return made(**settings)
