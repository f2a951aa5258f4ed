"""CVAT for images: the XML file, or the .zip file with it. Tags of images are read, shapes are not.

CVAT does not say who set a tag. So the annotator is the assignee of the job or task, or else the name of the file; a
.zip file may hold the files of several annotators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitl.connectors.exports.export import Answer, Export, Record, Tool
from hitl.errors import BadTable
from hitl.tables.columns import BOXES_ELSEWHERE

AUTOMATIC = ("auto", "consensus")
"""Sources of tags that no person has set."""


class CVAT(Tool):
    """Tags of CVAT."""

    title = "CVAT for images XML"
    items, annotators = ("image", "name"), ("annotator", "assignee, or name of the file")

    def matches(self, kind: str, names: frozenset[str], first: Sequence[Mapping[str, Any]]) -> bool:
        """Return True for the elements of CVAT."""
        tags = {element.get("tag") for element in first}
        return kind == "xml" and not {"meta", "version"}.isdisjoint(tags) and not {"image", "track"}.isdisjoint(tags)

    def answers(self, export: Export) -> Iterator[Answer]:
        """Yield the tags of each image. Raise BadTable for a file that has shapes and no tags."""
        self.assignees: dict[str, str] = {}
        self.tagged = False
        yield from super().answers(export)
        if not self.tagged and (export.skipped["shape"] or export.skipped["track"]):
            raise BadTable(
                f"{export.path}: CVAT XML with shapes and no tags. Only tags, labels of a whole image, are read. "
                f"{BOXES_ELSEWHERE}"
            )

    def read(self, export: Export, record: Record) -> Iterator[Answer]:
        """Yield the tags of an image, or note the assignee of the job."""
        element = record.fields
        if element["tag"] == "meta":
            self.assignees[record.source] = _assignee(element)
        elif element["tag"] == "track":
            export.skipped["track"] += 1
        elif element["tag"] == "image":
            item = export.item_of(element, element.get("name"))
            tags = [inner for inner in element["inside"] if inner["tag"] == "tag"]
            people = tuple(tag["label"] for tag in tags if tag.get("source") not in AUTOMATIC)
            automatic = "tag that was set automatically|tags that were set automatically"
            export.skipped[automatic] += len(tags) - len(people)
            export.skipped["shape"] += len(element["inside"]) - len(tags)
            self.tagged |= bool(people)
            yield Answer(item, "tag", self.assignees.get(record.source) or record.source, people)


def _assignee(meta: Mapping[str, Any]) -> str:
    """Return the name of the assignee in the description of a job or task, or an empty text."""
    for inner in meta["inside"]:
        if inner["tag"] == "assignee":
            names = [each["text"] for each in inner["inside"] if each["tag"] == "username"]
            return str(names[0] if names else inner["text"])
        if found := _assignee(inner):
            return found
    return ""
