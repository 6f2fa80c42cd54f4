"""Recalculates a spreadsheet and prints cells with errors."""

import subprocess
import sys


def main() -> None:
    done = subprocess.run(["soffice", "--headless", "--convert-to", "xlsx", sys.argv[1]], check=False)
    print(done.returncode)


main()
