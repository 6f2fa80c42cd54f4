"""The web UI: the chat and what surrounds it, as pages that only this computer can open.

Blocks and forms are rendered to HTML on the server (`html`); the browser shows them and sends back what the user does.
"""
