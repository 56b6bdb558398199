"""Captures what the agent changed, as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rl_agent.errors import GraderError
from rl_agent.workspace.workspace import GIT_ENVIRONMENT, PRIVATE, SHADOW_GIT, printed

if TYPE_CHECKING:
    from rl_agent.sandboxes.base import Sandbox
    from rl_agent.workspace.workspace import Workspace

MOST_BYTES: Final = 32 << 20
"""A patch of this length or more is not captured, which is beyond every grader's limit."""
MOST_GROWTH: Final = 256 << 20
"""Bytes that a work tree may gain: git holds a file twice to compress it."""
LITTLE_GROWTH: Final = 1 << 20
"""If the disk is full although the work tree gained no more than this, the agent did not fill it."""
TOO_LARGE: Final = 95
NOT_CAPTURED: Final = b"not captured: "
"""Begins what stands for a patch that is too large, in words."""
TEXT_SHOWN: Final = 2000

# What the agent left running is ended first, so that nothing changes under git: pass after pass, since one that is just being
# started is in no listing yet and a killed one takes a moment to go. A hundred passes at most: an image's own service that is
# started again for ever must not cost the rollout. A repository inside the repository would be recorded as a mere pointer to
# one of its commits, and in a submodule git would run, as root, what the submodule's own configuration names: every inner .git
# goes. A submodule without one counts as unchanged. git would write what is new to the disk and read it twice: what is too large
# for that, a sparse file of terabytes among it, is refused first.
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
sized() {{ awk '{{ n += $1; if ($1 > m) {{ m = $1; l = $0 }} }} END {{ print sprintf("%.0f", n > 1e15 ? 1e15 : n), l }}'; }}
sizes=$({SHADOW_GIT} ls-files -z -c -o --exclude-standard | xargs -0 -r stat -c '%s %n' -- 2>/dev/null | sized)
now=${{sizes%% *}}
if [ "$now" -gt {LITTLE_GROWTH} ]; then
  before=$({SHADOW_GIT} ls-tree -r -l "$BASE" | awk '{{ n += $4 }} END {{ printf "%.0f", n }}')
  grown=$((now - before))
  free=$(df -Pk "$P" | awk 'END {{ printf "%.0f", $4 * 1024 }}')
  whole=$((grown * 4 / 3))  # in base 85, where nothing can be compressed
  need=$((grown + (whole < {MOST_BYTES} ? whole : {MOST_BYTES})))
  if [ "$grown" -gt {LITTLE_GROWTH} ] && {{ [ "$grown" -gt {MOST_GROWTH} ] || [ "$need" -gt "$free" ]; }}; then
    echo "the work tree has grown by $grown bytes, and $free are free on its disk; the largest file (bytes, name): ${{sizes#* }}"
    exit {TOO_LARGE}
  fi
fi
{SHADOW_GIT} add -A .
{SHADOW_GIT} diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color \
  --src-prefix=a/ --dst-prefix=b/ "$BASE" -- | head -c {MOST_BYTES} >"$P/patch"
[ "${{PIPESTATUS[0]}}" -eq 0 ] || [ "$(stat -c %s "$P/patch")" -eq {MOST_BYTES} ]  # where head had enough, git could not go on
"""


async def capture(sandbox: Sandbox, workspace: Workspace, *, timeout_s: float = 300.0) -> bytes:
    """What the agent changed since `prepare`, as git's binary diff; b"" for nothing.

    Ignored files do not count. Raises GraderError when git fails: never an empty patch for a failure. Where there is more than
    can be captured, NOT_CAPTURED and why, which graders refuse.
    """
    environment = {
        **GIT_ENVIRONMENT,
        "W": workspace.workdir,
        "P": PRIVATE,
        "HOME": PRIVATE,
        "BASE": workspace.base_tree,
    }
    result = await sandbox.exec(CAPTURE, user="root", cwd="/", env=environment, timeout=timeout_s)
    if result.exit_code == TOO_LARGE:
        return NOT_CAPTURED + printed(result, TEXT_SHOWN).encode()
    if result.exit_code != 0:
        what = f"took longer than {timeout_s:g} s" if result.timed_out else f"failed ({result.exit_code})"
        raise GraderError(f"capturing the changes in {workspace.workdir} {what}: {printed(result, TEXT_SHOWN)}")
    patch = await sandbox.read_file(f"{PRIVATE}/patch", user="root")
    if len(patch) >= MOST_BYTES:
        return NOT_CAPTURED + f"the patch has {MOST_BYTES} bytes or more".encode()
    return patch


def why_not_captured(patch: bytes) -> str | None:
    """Return the reason that `capture` reports instead of a patch, or None for a patch."""
    if patch.startswith(NOT_CAPTURED):
        return patch.decode(errors="replace")
    return f"the patch has {MOST_BYTES} bytes or more" if len(patch) >= MOST_BYTES else None
