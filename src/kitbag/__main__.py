"""`python -m kitbag` is `kitbag`."""

from kitbag.cli import main

main()
