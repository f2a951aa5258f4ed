"""Run `hitl` as `python -m hitl`."""

from hitl.cli import main

main()
