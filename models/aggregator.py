"""`Aggregator`: the methods of hitl with the interface of crowd-kit."""

from __future__ import annotations

from typing import Any, Self

import pandas as pd

from hitl.consensus import Consensus
from hitl.models.combine import combine
from hitl.models.combiner import Combiner
from hitl.tables.columns import Table, require_columns, table_of
from hitl.tables.in_memory import Truth


class Aggregator:
    """Combine labels as crowd-kit's aggregators do: a table with the columns task, worker and label in, pandas out.

    Args:
        method: name of a method, as in `hitl.combine`, or a method itself.
        settings: settings of the named method.

    Attributes:
        labels_: Series "agg_label", indexed by task.
        probas_: DataFrame of probabilities, indexed by task, with a column per label.
        skills_: Series "skill", indexed by worker: the estimated accuracy, in [0, 1].
        priors_: Series "prior", indexed by label: the estimated share of each label.
        consensus_: the whole result.

    Example:
        >>> import hitl
        >>> answers = {"task": ["a", "a", "a", "b", "b"], "worker": [1, 2, 3, 1, 2],
        ...            "label": ["cat", "cat", "dog", "dog", "dog"]}
        >>> hitl.Aggregator().fit_predict(answers).to_dict()
        {'a': 'cat', 'b': 'dog'}
        >>> hitl.Aggregator("majority").fit_predict_proba(answers).round(2)
        label   cat   dog
        task
        a      0.62  0.38
        b      0.17  0.83
    """

    labels_: pd.Series[Any]
    probas_: pd.DataFrame
    skills_: pd.Series[Any]
    priors_: pd.Series[Any]
    consensus_: Consensus

    def __init__(self, method: str | Combiner = "default", **settings: Any) -> None:
        self.method = method
        self.settings = settings

    def __repr__(self) -> str:
        settings = [f"{name}={value!r}" for name, value in self.settings.items()]
        return f"Aggregator({', '.join([repr(self.method), *settings])})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, by which `sklearn.base.clone` makes a copy."""
        return {"method": self.method, **self.settings}

    def fit(self, data: Table, true_labels: Truth | None = None) -> Self:
        """Combine the labels. `true_labels`: known labels, as a Series indexed by task, a dict or a table."""
        data = table_of(data, "data")
        require_columns(data, ["task", "worker", "label"], "data", "Rename the columns as in crowd-kit")
        found = combine(data, None, true_labels, method=self.method, item="task", annotator="worker", **self.settings)
        people = found.annotators
        tasks, classes = pd.Index(found.items, name="task"), pd.Index(found.label_values, name="label")
        self.consensus_ = found
        self.labels_ = pd.Series(found.labels, tasks, name="agg_label")
        self.probas_ = pd.DataFrame(found.probabilities, tasks, classes)
        self.skills_ = pd.Series(people.accuracy, pd.Index(people.names, name="worker"), name="skill")
        self.priors_ = pd.Series(found.class_shares, classes, name="prior")
        return self

    def fit_predict(self, data: Table, true_labels: Truth | None = None) -> pd.Series[Any]:
        """Return the label of each task: a Series indexed by task."""
        return self.fit(data, true_labels).labels_

    def fit_predict_proba(self, data: Table, true_labels: Truth | None = None) -> pd.DataFrame:
        """Return the probabilities of the labels: a DataFrame indexed by task, with a column per label."""
        return self.fit(data, true_labels).probas_
