"""The agent program: asks the model, runs its shell commands, until it answers without a call. Standard library only."""

import json
import os
import subprocess
import sys
import urllib.request

TOOL = {
    "type": "function",
    "function": {
        "name": "Bash",
        "description": "Run a shell command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def ask(messages: list) -> dict:
    """Return the model's next message."""
    body = json.dumps({"model": "policy", "messages": messages, "tools": [TOOL]}).encode()
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{os.environ['BASE_URL']}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]


def main(prompt: str, system: str, replies: int) -> None:
    """Run the loop."""
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    for _ in range(replies):
        message = ask(messages)
        messages.append(message)
        print(json.dumps(message), flush=True)
        if not message.get("tool_calls"):
            return
        for call in message["tool_calls"]:
            command = json.loads(call["function"]["arguments"]).get("command", "")
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
            output = (done.stdout + done.stderr).rstrip("\n")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
