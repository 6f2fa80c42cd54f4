"""Removes empty rows."""

import csv
import sys

with open(sys.argv[1], newline="") as file:
    rows = [row for row in csv.reader(file) if any(row)]
csv.writer(sys.stdout).writerows(rows)
