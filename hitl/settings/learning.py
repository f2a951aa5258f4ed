"""Settings of what models learn from: features of items, links between them, and the model that learns."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hitl.settings.section import AtLeastOne, Section, Text, code_in


class FeatureSettings(Section):
    """Source of the features of items: one of `file`, `columns`, `text` and `image`, or none."""

    file: Text | None = None
    """File of features by your own ids: .csv, .jsonl, .parquet, .arrow, or .npz with `items`."""
    columns: tuple[str, ...] = ()
    """Fields of an item's data that hold numbers or categories."""
    text: Text | None = None
    """Field of an item's data that holds its text."""
    image: Text | None = None
    """Field of an item's data that holds the path or address of an image."""
    model: Text | None = None
    """Model that turns texts or images into numbers; default for texts: `tfidf`."""
    weights: Text | None = None
    """Pretrained weights of a torchvision model: a file, or a name such as `DEFAULT`."""
    dimensions: AtLeastOne | None = None
    """Number of features per item; default: the model's, or 100 for `tfidf`."""
    folder: str = "."
    """Folder where relative paths of images start."""
    device: str = "auto"
    """Device of a torch model: `auto`, `cpu`, `cuda`, `cuda:1`."""
    missing: Literal["skip", "refuse"] = "skip"
    """What happens to an item without features: it is skipped, or the run stops (`refuse`)."""

    @property
    def kind(self) -> Literal["file", "columns", "text", "image"] | None:
        """Source of the features, or None."""
        names: tuple[Literal["file", "columns", "text", "image"], ...] = ("file", "columns", "text", "image")
        return next((name for name in names if getattr(self, name)), None)

    def within(self, folder: Path) -> FeatureSettings:
        """Return the settings with relative paths resolved against this folder."""
        paths = {"folder": str(folder / self.folder)}
        if self.file is not None:
            paths["file"] = str(folder / self.file)
        if self.weights is not None and (folder / self.weights).is_file():
            paths["weights"] = str(folder / self.weights)
        if self.model is not None:
            paths["model"] = code_in(folder, self.model)
        return self.model_copy(update=paths)

    @model_validator(mode="after")
    def _of_one_kind(self) -> FeatureSettings:
        kinds = [name for name in ("file", "columns", "text", "image") if getattr(self, name)]
        if len(kinds) > 1:
            raise ValueError(f"{' and '.join(kinds)} exclude each other; expected one of them")
        if not kinds and self.model_fields_set:
            raise ValueError("nothing to make them of; expected one of file, columns, text and image")
        if self.model is not None and self.kind not in ("text", "image"):
            raise ValueError("model: sees a text or an image; expected one of these as well")
        if self.image is not None and self.model is None:
            raise ValueError("image: needs a model, such as 'torchvision:resnet18', 'module:name', 'file.py:name'")
        return self


class GraphSettings(Section):
    """Links between items, for methods that use a graph: from `file`, from `neighbours`, or none."""

    file: Text | None = None
    """File of edges between your own item ids."""
    item: Text = "item"
    """Column of the item in that file."""
    neighbours: AtLeastOne | None = None
    """Instead of a file: link each item to this many items with the nearest features."""

    @property
    def kind(self) -> Literal["file", "neighbours"] | None:
        """Source of the graph, or None."""
        return "file" if self.file else "neighbours" if self.neighbours else None

    def within(self, folder: Path) -> GraphSettings:
        """Return the settings with a relative `file` resolved against this folder."""
        return self if self.file is None else self.model_copy(update={"file": str(folder / self.file)})

    @model_validator(mode="after")
    def _of_one_kind(self) -> GraphSettings:
        if (self.file is None) == (self.neighbours is None) and self.model_fields_set:
            raise ValueError("expected one of file and neighbours")
        return self


class LearnSettings(Section):
    """A model trained on labels and features while the project is labeled."""

    model: Text | None = None
    """Model that learns from the labels: `logistic`, `gp`, `gpc-ma`, or an estimator of yours (`module:name`)."""
    field: Text | None = None
    """Field of an item's data that your own estimator gets instead of features."""
    folds: int = Field(default=5, ge=2)
    """Number of folds; no model predicts an item that it was trained on."""
    groups: Text | None = None
    """Field with the same value for near-duplicates, which are put into one fold."""
    growth: float = Field(default=0.1, ge=0)
    """Train again when this share of the labels or items has been added, removed or changed."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of the split into folds."""

    @model_validator(mode="after")
    def _field_of_own(self) -> LearnSettings:
        if self.field is not None and ":" not in (self.model or ""):
            raise ValueError(
                f'field is {self.field!r}: it is for an estimator of yours, model = "module:name"; others learn from '
                "[features]"
            )
        return self
