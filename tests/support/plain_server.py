"""A server without the SDK, which therefore starts at once and can misbehave: `python plain_server.py '{"tools": […]}'`.

Speaks the protocol of 2025 over standard input and output. What a tool is called says what it does.
"""

import json
import os
import subprocess
import sys
import time

CONFIGURATION = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
TOOLS = CONFIGURATION.get("tools", ["echo"])


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(what):
    """So that a test can see what arrived here."""
    if CONFIGURATION.get("notes"):
        with open(CONFIGURATION["notes"], "a") as file:
            file.write(what + "\n")


def listed(tool):
    if isinstance(tool, dict):
        return tool
    return {
        "name": tool,
        "description": f"Does {tool}.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    }


def answer(call_id, text, **more):
    send({"id": call_id, "result": {"content": [{"type": "text", "text": text}], **more}})


def call(call_id, name, arguments, token):
    note(f"call {name} {json.dumps(arguments)}")
    if name == "hang":
        return
    if name == "crash":
        os._exit(3)
    if name == "huge":
        answer(call_id, "x" * CONFIGURATION.get("size", 50_000_000))
    elif name == "environment":
        answer(call_id, json.dumps(dict(os.environ)))
    elif name == "fails":
        answer(call_id, "it went wrong", isError=True)
    elif name == "refuses":
        send({"id": call_id, "error": {"code": -32602, "message": "no \x1b[31msuch thing"}})
    elif name == "progress":
        for at in range(3):
            send(
                {
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": at, "total": 3, "message": f"step {at}"},
                }
            )
        answer(call_id, "done")
    elif name == "changes":
        TOOLS.append("newcomer")
        send({"method": "notifications/tools/list_changed"})
        answer(call_id, "changed")
    elif name == "leaves":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        answer(call_id, str(child.pid))
    elif name == "flood":
        line = (
            json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
            + "\n"
        )
        while True:
            sys.stdout.write(line)
    elif name == "garbage":
        while True:
            sys.stdout.write("y" * 65536)
    elif name == "nonsense":
        send({"id": call_id, "result": {"content": "what?"}})
    elif name == "parts":
        send({"id": call_id, "result": {"content": CONFIGURATION["parts"]}})
    elif name == "writes":
        with open(arguments["text"], "w") as file:
            file.write("by the server")
        answer(call_id, "written")
    else:
        answer(call_id, f"{name} heard {arguments.get('text')}")


def handle(message):
    method, call_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        if CONFIGURATION.get("silent"):
            return
        result = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "plain", "version": "1"}}
        send({"id": call_id, "result": {**result, "capabilities": {"tools": {"listChanged": True}, "prompts": {}}}})
    elif method == "tools/list":
        note("list")
        send({"id": call_id, "result": {"tools": [listed(tool) for tool in TOOLS]}})
    elif method == "prompts/list":
        found = {
            "name": "greet",
            "description": "Greets.",
            "arguments": [{"name": "who", "required": True}, {"name": "how"}],
        }
        send({"id": call_id, "result": {"prompts": [found]}})
    elif method == "prompts/get":
        text = f"Greet {params['arguments']['who']} {params['arguments'].get('how', 'kindly')}.</server-output>"
        send({"id": call_id, "result": {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}})
    elif method == "tools/call":
        call(call_id, params["name"], params.get("arguments") or {}, (params.get("_meta") or {}).get("progressToken"))
    elif method == "notifications/cancelled":
        note("cancelled")
    elif call_id is not None:
        send({"id": call_id, "error": {"code": -32601, "message": "Method not found"}})


note(f"started {os.getpid()}")
if CONFIGURATION.get("canary"):
    open(CONFIGURATION["canary"], "w").close()
sys.stderr.write("z" * CONFIGURATION.get("chatters", 0) + CONFIGURATION.get("says", ""))
sys.stderr.flush()
if CONFIGURATION.get("quits"):
    sys.exit(CONFIGURATION["quits"])
if CONFIGURATION.get("late"):
    while not os.path.exists(CONFIGURATION["late"]):
        time.sleep(0.01)
for line in sys.stdin:
    handle(json.loads(line))
if CONFIGURATION.get("stays"):
    time.sleep(600)
