"""Write a new hitl.toml: the keys that most projects set, with comments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hitl.errors import BadSettings
from hitl.formatting import plain

NEW = """\
# hitl project. Every key can be overridden: HITL_BUDGET__OPEN_QUESTIONS=50. Secrets stay there.
name = {name}
store = {store}  # or postgresql://user@host/database

[source]
{source}

[budget]
open_questions = 100       # questions that may be open at a time
target_confidence = 0.95   # an item is done when its label is this sure
min_labels = 1             # answers an item needs before it can be done
max_labels = 10            # answers after which an item is done in any case
# target_accuracy = 0.97   # the project is done when this share of all labels is right
# cost = 50.0              # most that the questions of a cycle may cost, in the unit of crew.cost
# value_per_label = 2.0    # what one more right label is worth; what costs more than it brings is not asked

[crew]
annotators = {crew}  # asked by name; empty: any who comes
# capacity = 50            # questions each may have at a time
# capacities = {{ ann = 20 }} # and for some annotators
# cost = 1.0               # what a label costs, in any one unit
# costs = {{ ann = 2.5 }}    # and for some annotators
# skills = {{ ann = ["de", "fr"] }}
# skill_field = "language" # the field of an item that says which skills it takes
# expire_hours = 24        # then a question that was not answered is given to another annotator

[policy]
name = "expected-gain"  # what chooses; its settings: options = {{ }}

[combine]
method = "default"         # see `hitl combine --help`
# paper = true             # with the settings of the paper of that method, not hitl's

# [features]               # what items look like, for models and for batches that are not all alike
# text = "text"            # or image, columns = [..], file = "features.parquet"

# [graph]                  # which items are linked, for combine.method = "network-ibcc"
# neighbours = 10          # each to those with the nearest features; or file = "graph.csv": item, neighbour, weight

# [learn]                  # a model that learns from the labels, by the features, and predicts all items
# model = "logistic"       # or "gp", or an estimator of yours: "module:name"

# [schedule]               # for `hitl schedule`
# every = "15m"            # or cron = "*/10 8-18 * * mon-fri"
"""
"""Template that `hitl init` writes."""


def write(path: str | Path, name: str, source: dict[str, Any], store: str, crew: list[str]) -> None:
    """Write a commented hitl.toml. Refuses to overwrite."""
    path = Path(path)
    if path.exists():
        raise BadSettings(f"{path} exists already; remove it first, or edit it")
    keys = "\n".join(f"{key} = {_toml(value)}" for key, value in source.items())
    text = NEW.format(name=_toml(name), store=_toml(store), source=keys, crew=_toml(crew))
    rights = 0o666 if plain(text) == text else 0o600  # a URL with a password in it is for its owner alone
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, rights), "w", encoding="utf-8") as file:
        file.write(text)


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # JSON strings, numbers and arrays of them are valid TOML
