"""Runs the command line for `python -m kitbag`."""

from kitbag.cli import main

main()
