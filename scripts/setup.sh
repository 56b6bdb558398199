#!/usr/bin/env bash
# Creates .venv at the project's root, installs the pinned dependencies, fetches the pinned agent CLIs.
# Re-running it re-uses what is there. Every failure names what is missing and how to get it.
set -euo pipefail
cd "$(dirname "$0")/.."

need() { # need COMMAND HOW-TO-GET-IT
  command -v "$1" >/dev/null 2>&1 || { echo "setup: '$1' is missing. $2" >&2; exit 2; }
}

python=""
for candidate in python3.11 python3 python; do
  if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
    python=$candidate; break
  fi
done
[ -n "$python" ] || { echo "setup: Python 3.11 is missing (the CPU build of vLLM exists for 3.11 only). Install it, e.g. 'apt-get install python3.11 python3.11-venv' or 'pyenv install 3.11'." >&2; exit 2; }
need git "Install it: 'apt-get install git'."
need npm "It fetches the pinned agent CLIs. Install it: 'apt-get install npm'."
need unshare "Install it: 'apt-get install util-linux'."

if [ ! -x .venv/bin/python ]; then
  "$python" -m venv .venv || { echo "setup: 'python -m venv' failed. On Debian: 'apt-get install python3.11-venv'." >&2; exit 2; }
fi
[ -x .venv/bin/uv ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==0.9.30"

# Without a GPU torch must be the CPU build. Folders that pip is set up to look in come first (uv does not read pip's settings);
# where none of them has it, PyTorch's own CPU index does.
extra=cpu
links=()
if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then
  extra=gpu
else
  local_torch=""
  for folder in $(.venv/bin/python -m pip config list | sed -n "s/^[^=]*find-links='\(.*\)'$/\1/p" | tr ' ' '\n' | sort -u); do
    [ -d "$folder" ] || continue
    links+=(--find-links "$folder")
    if ls "$folder"/torch-*+cpu-cp311-*.whl >/dev/null 2>&1; then local_torch=yes; fi
  done
  [ -n "$local_torch" ] || links+=(--extra-index-url "https://download.pytorch.org/whl/cpu" --index-strategy unsafe-best-match)
fi
# Compiled once here. Where Python may not write its caches (PYTHONDONTWRITEBYTECODE), each process would compile torch and vLLM
# anew, which doubles the time that vLLM takes to start.
compile=(--compile-bytecode)
echo "setup: installing the '$extra' dependencies into .venv"
failed="installing the dependencies failed; the message above names the package. A package index (or its mirror) must be reachable."
if [ "$extra" = cpu ]; then
  .venv/bin/uv pip install --quiet --python .venv/bin/python "${compile[@]}" "${links[@]}" --no-deps --requirement requirements/cpu.txt || { echo "setup: $failed" >&2; exit 2; }
  .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --editable . || { echo "setup: $failed" >&2; exit 2; }
  # the older line of E2B's SDK, apart from the one in use: the sandbox contract is tried with both
  .venv/bin/uv pip install --quiet --python .venv/bin/python --target .venv/share/e2b-2.20 --no-deps e2b==2.20.3 dockerfile-parse==2.0.1 || { echo "setup: $failed" >&2; exit 2; }
else
  .venv/bin/uv pip install --quiet --python .venv/bin/python "${compile[@]}" --editable ".[gpu,dev]" || { echo "setup: $failed" >&2; exit 2; }
fi

.venv/bin/python -m rl_agent.harnesses.fetch claude_code codex
