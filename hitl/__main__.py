"""Run `hitl` by `python -m hitl`."""

from hitl.cli import main

main()
