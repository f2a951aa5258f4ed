"""`python -m hitl` is `hitl`."""

from hitl.cli import main

main()
