import os
import subprocess

environment = os.environ.copy()
environment["LANG"] = "C.UTF-8"
subprocess.run(["mkdocs", "build", "--strict"], env=environment, check=True)
