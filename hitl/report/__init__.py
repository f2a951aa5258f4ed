"""Write the state of a project as a self-contained HTML page: `write(Report(...), path)`."""

from __future__ import annotations

from hitl.report.contents import Curve, Cycle, QuestionPage, Report
from hitl.report.page import render, write

__all__ = ["Curve", "Cycle", "QuestionPage", "Report", "render", "write"]
