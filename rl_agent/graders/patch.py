"""Captures what the agent changed, as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rl_agent.errors import GraderError
from rl_agent.graders.workspace import GIT_ENVIRONMENT, PRIVATE, SHADOW_GIT, printed

if TYPE_CHECKING:
    from rl_agent.graders.workspace import Workspace
    from rl_agent.sandboxes.base import Sandbox

MOST_BYTES: Final = 32 << 20
"""A longer patch is cut here, which is beyond every grader's limit."""
TEXT_SHOWN: Final = 2000

# What the agent left running is ended first, so that nothing changes under git: pass after pass, since one that is just being
# started is in no listing yet and a killed one takes a moment to go. A hundred passes at most: an image's own service that is
# started again for ever must not cost the rollout. A repository inside the repository would be recorded as a mere pointer to
# one of its commits, and in a submodule git would run, as root, what the submodule's own configuration names: every inner .git
# goes. A submodule without one counts as unchanged.
CAPTURE: Final = f"""\
set -eu
end_all() {{
  some=1
  for process in /proc/[0-9]*; do
    [ "$process" != /proc/1 ] || continue
    while read -r key value _; do
      case $key$value in
        State:[ZX]) break ;;
        Uid:0) ;;
        Uid:*) kill -KILL "${{process#/proc/}}" && some=0 || : ;;
      esac
    done <"$process/status" || :
  done
  return $some
}}
for pass in $(seq 100); do
  end_all 2>/dev/null || break
  sleep 0.02
done
[ ! -L "$W" ]
cd "$W"
find . -mindepth 2 -name .git -prune -exec rm -rf {{}} +
{SHADOW_GIT} add -A .
{SHADOW_GIT} diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color \
  --src-prefix=a/ --dst-prefix=b/ "$BASE" -- >"$P/patch"
[ "$(stat -c %s "$P/patch")" -le {MOST_BYTES} ] || truncate -s {MOST_BYTES} "$P/patch"
"""


async def capture(sandbox: Sandbox, workspace: Workspace, *, timeout_s: float = 300.0) -> bytes:
    """What the agent changed since `prepare`, as git's binary diff; b"" for nothing.

    Ignored files do not count. Raises GraderError when git fails: never an empty patch for a failure.
    """
    environment = {
        **GIT_ENVIRONMENT,
        "W": workspace.workdir,
        "P": PRIVATE,
        "HOME": PRIVATE,
        "BASE": workspace.base_tree,
    }
    result = await sandbox.exec(CAPTURE, user="root", cwd="/", env=environment, timeout=timeout_s)
    if result.exit_code != 0:
        what = f"took longer than {timeout_s:g} s" if result.timed_out else f"failed ({result.exit_code})"
        raise GraderError(f"capturing the changes in {workspace.workdir} {what}: {printed(result, TEXT_SHOWN)}")
    return await sandbox.read_file(f"{PRIVATE}/patch", user="root")
