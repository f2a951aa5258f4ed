"""Connect labeling platforms and file formats, one per module. Classes load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy

if TYPE_CHECKING:
    from hitl.connectors.label_studio import LabelStudio as LabelStudio
    from hitl.connectors.tables import Tables as Tables
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
