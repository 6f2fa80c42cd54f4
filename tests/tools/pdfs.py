"""Makes PDF documents by hand, sound ones and others."""

import base64
from collections.abc import Sequence

FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
ENCRYPTED = base64.b64decode(
    "JVBERi0xLjMKJeLjz9MKMSAwIG9iago8PAovVHlwZSAvQ2F0YWxvZwovUGFnZXMgMiAwIFIKPj4KZW5kb2JqCjIgMCBvYmoKPDwKL1R5cGUg"
    "L1BhZ2VzCi9LaWRzIFsgMyAwIFIgXQovQ291bnQgMQo+PgplbmRvYmoKMyAwIG9iago8PAovVHlwZSAvUGFnZQovUGFyZW50IDIgMCBSCi9N"
    "ZWRpYUJveCBbIDAgMCA2MTIgNzkyIF0KL0NvbnRlbnRzIDQgMCBSCi9SZXNvdXJjZXMgPDwKL0ZvbnQgPDwKL0YxIDUgMCBSCj4+Cj4+Cj4+"
    "CmVuZG9iago0IDAgb2JqCjw8Ci9MZW5ndGggNDIKPj4Kc3RyZWFtCsZvDQBvb4F1deFmxAWW8X+7/nKd+L4muomDQ3oH0axrXOguBDrWIQY0"
    "zQplbmRzdHJlYW0KZW5kb2JqCjUgMCBvYmoKPDwKL1R5cGUgL0ZvbnQKL1N1YnR5cGUgL1R5cGUxCi9CYXNlRm9udCAvSGVsdmV0aWNhCj4+"
    "CmVuZG9iago2IDAgb2JqCjw8Ci9WIDEKL1IgMgovTGVuZ3RoIDQwCi9QIDQyOTQ5NjcyOTIKL0ZpbHRlciAvU3RhbmRhcmQKL08gPGU1YThk"
    "MjY4N2JkOWQwY2ZmOTQ2YjdhYzU1ZjUxMDgxZGNmMGQxMTY1NTRjNGJmY2IwYTVlNDQ2ZjY5ZWE0OGE+Ci9VIDwzMGQxMzhhOGM3NmZjNGM0"
    "MTAzMTkzZGI2MzU3ZTY4MTc5NmY2OGNhZmQ4MWFjMmIzYzk0OThjOTQxMmYyZGYxPgo+PgplbmRvYmoKeHJlZgowIDcKMDAwMDAwMDAwMCA2"
    "NTUzNSBmIAowMDAwMDAwMDE1IDAwMDAwIG4gCjAwMDAwMDAwNjQgMDAwMDAgbiAKMDAwMDAwMDEyMyAwMDAwMCBuIAowMDAwMDAwMjUxIDAw"
    "MDAwIG4gCjAwMDAwMDAzNDMgMDAwMDAgbiAKMDAwMDAwMDQxMyAwMDAwMCBuIAp0cmFpbGVyCjw8Ci9TaXplIDcKL1Jvb3QgMSAwIFIKL0lE"
    "IFsgPDc1ZDU1NDEwMTdjZTlmNWY0NDc4OTAzZDk5ODU0YWE4PiA8NzVkNTU0MTAxN2NlOWY1ZjQ0Nzg5MDNkOTk4NTRhYTg+IF0KL0VuY3J5"
    "cHQgNiAwIFIKPj4Kc3RhcnR4cmVmCjYyNwolJUVPRgo="
)
"""One page, `Hello there`, behind the password `secret`."""


def shown(text: str) -> bytes:
    return b"BT /F1 12 Tf 72 700 Td (" + text.encode("latin-1") + b") Tj ET"


def stream(data: bytes, more: bytes = b"") -> bytes:
    return b"<</Length %d%b>>stream\n%b\nendstream" % (len(data), more, data)


def whole(objects: Sequence[bytes]) -> bytes:
    """The first is the catalog."""
    out, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    head = b"xref\n0 %d\n0000000000 65535 f \n" % size
    return out + head + table + b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, len(out))


def document(*contents: bytes, more: bytes = b"", resources: bytes = b"", objects: Sequence[bytes] = ()) -> bytes:
    """A page for each content stream; `more` is said of each stream. `objects` are numbered from 4 on."""
    first = 4 + len(objects)
    pages = range(first, first + 2 * len(contents), 2)
    kids = b" ".join(b"%d 0 R" % page for page in pages)
    made = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[%b]/Count %d>>" % (kids, len(contents)), FONT]
    made += objects
    for page, content in zip(pages, contents, strict=True):
        box = b"/Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R" % (page + 1)
        made += [b"<<%b/Resources<</Font<</F1 3 0 R>>%b>>>>" % (box, resources), stream(content, more)]
    return whole(made)
