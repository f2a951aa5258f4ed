"""Masks over an image: an answer is all that one annotator drew over one image, in run lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from hitl.kinds.kind import Marked, PartsKind, StoredAnswers
from hitl.models.segmentation import mask_labels
from hitl.models.segmentation.image_consensus import of_images
from hitl.parts import drawn_as_label, drawn_in

if TYPE_CHECKING:
    from hitl.consensus import Consensus
    from hitl.evidence import Evidence
    from hitl.models.combiner import Combiner


class Masks(PartsKind):
    """One mask per label."""

    noun: ClassVar[str] = "masks"
    columns: ClassVar[Mapping[str, pa.DataType | None]] = {
        "label": None,
        "confidence": None,
        "height": pa.int64(),
        "width": pa.int64(),
        "rle": pa.string(),
    }

    def read(self, answer: str) -> list[Marked]:
        height, width, masks = drawn_in(answer)
        return [{"label": label, "height": height, "width": width, "rle": rle} for label, rle in masks]

    def write(self, parts: Iterable[Marked]) -> str:
        parts = list(parts)
        height, width = (parts[0]["height"], parts[0]["width"]) if parts else (0, 0)
        return drawn_as_label(height, width, [(str(part["label"]), part["rle"]) for part in parts])

    def evidence(self, stored: StoredAnswers) -> dict[str, Evidence]:
        tables = stored.items(), stored.answers(), stored.gold()
        return {stored.question.name: mask_labels.evidence_of(stored.question, *tables, stored.names)}

    def consensus(self, evidence: Evidence, method: Combiner) -> Consensus:
        return of_images(evidence, method)
