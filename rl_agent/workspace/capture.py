"""Capture of the agent's changes as a git diff, in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rl_agent.errors import GraderError
from rl_agent.workspace.workspace import GIT_ENVIRONMENT, PRIVATE, SHADOW_GIT, printed

if TYPE_CHECKING:
    from rl_agent.sandboxes.base import Sandbox
    from rl_agent.workspace.workspace import Workspace

MOST_BYTES: Final = 32 << 20
"""Size from which a patch is not captured. It exceeds every grader's limit."""
MOST_GROWTH: Final = 256 << 20
"""Maximum growth of a work tree. To compress a file, git holds it twice."""
LITTLE_GROWTH: Final = 1 << 20
"""Growth up to which the work tree is not checked. If the disk is full then, the agent did not fill it."""
MOST_FILES: Final = 500_000
"""Maximum number of files in a work tree."""
REFUSED: Final = 95
NOT_CAPTURED: Final = b"not captured: "
"""Prefix of the message that replaces a patch that cannot be captured."""
TEXT_SHOWN: Final = 2000

# First, the script kills the agent's remaining processes, so that no file changes while git reads it. It makes several
# passes: a process that is just starting is not listed yet, and a killed one takes a moment to exit. A hundred passes
# are enough: a service of the image that restarts forever must not cost the rollout. Then it removes every inner .git:
# git would record a nested repository as a mere pointer to one of its commits, and in a submodule it would run, as
# root, the commands of the submodule's configuration. Pipes and sockets go too, which git cannot record. git writes new files to disk and reads them twice, so the script
# first rejects what is too large, such as sparse terabyte files. If git fails although the shadow is intact, the work
# tree is at fault: its names may be too long, for example.
CAPTURE: Final = f"""\
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
refuse() {{ echo "$1"; exit {REFUSED}; }}
sized() {{ awk '{{ n += $1; if ($1 > m) {{ m = $1; l = $0 }} }} END {{ print sprintf("%.0f", n > 1e15 ? 1e15 : n), NR, l }}'; }}
(
set -eu
[ "$(readlink -f "$W")" = "$(cat "$P/where")" ] && cd "$W" || refuse "the work tree $W is gone, or a link stands in its place"
find . -mindepth 1 -iname .git -not -path ./.git -prune -exec rm -rf {{}} +
find . -path ./.git -prune -o -not -type f -not -type d -not -type l -exec rm -f {{}} +
read -r now files largest < <({SHADOW_GIT} ls-files -z -c -o --exclude-standard | xargs -0 -r stat -c '%s %n' -- 2>/dev/null | sized)
[ "$files" -le {MOST_FILES} ] || refuse "the work tree has $files files"
if [ "$now" -gt {LITTLE_GROWTH} ]; then
  before=$({SHADOW_GIT} ls-tree -r -l "$BASE" | awk '{{ n += $4 }} END {{ printf "%.0f", n }}')
  grown=$((now - before))
  free=$(df -Pk "$P" | awk 'END {{ printf "%.0f", $4 * 1024 }}')
  whole=$((grown * 4 / 3))  # base 85, if nothing can be compressed
  need=$((grown + (whole < {MOST_BYTES} ? whole : {MOST_BYTES})))
  if [ "$grown" -gt {LITTLE_GROWTH} ] && {{ [ "$grown" -gt {MOST_GROWTH} ] || [ "$need" -gt "$free" ]; }}; then
    refuse "the work tree has grown by $grown bytes, and its disk has $free free bytes; the largest file (bytes, name): $largest"
  fi
fi
{SHADOW_GIT} add -A .
{SHADOW_GIT} diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color \
  --src-prefix=a/ --dst-prefix=b/ "$BASE" -- | head -c {MOST_BYTES} >"$P/patch"
[ "${{PIPESTATUS[0]}}" -eq 0 ] || [ "$(stat -c %s "$P/patch")" -eq {MOST_BYTES} ]  # head closes the pipe at its limit, and git fails
)
code=$?
if [ $code -ne 0 ] && [ $code -ne {REFUSED} ] && {SHADOW_GIT} diff-tree --quiet "$BASE" "$BASE" \
  && ! {SHADOW_GIT} ls-tree -r "$BASE" | awk '$2 == "blob" {{ print $3 }}' | {SHADOW_GIT} cat-file --batch-check | grep -q missing; then
  code={REFUSED}
fi
exit $code
"""


async def capture(sandbox: Sandbox, workspace: Workspace, *, timeout_s: float = 300.0) -> bytes:
    """Return the agent's changes since `prepare` as a binary git diff, b"" without changes.

    Ignored files do not count. If the changes are too large, or git fails over them, the result is NOT_CAPTURED with the
    reason, which graders reject. Raises GraderError for other failures. A failure is never an empty patch.
    """
    environment = {
        **GIT_ENVIRONMENT,
        "W": workspace.workdir,
        "P": PRIVATE,
        "HOME": PRIVATE,
        "BASE": workspace.base_tree,
    }
    result = await sandbox.exec(CAPTURE, user="root", cwd="/", env=environment, timeout=timeout_s)
    if result.exit_code == REFUSED:
        return NOT_CAPTURED + printed(result, TEXT_SHOWN).encode()
    if result.exit_code != 0:
        what = f"took longer than {timeout_s:g} s" if result.timed_out else f"failed ({result.exit_code})"
        raise GraderError(f"{workspace.workdir}: capturing the changes {what}: {printed(result, TEXT_SHOWN)}")
    patch = await sandbox.read_file(f"{PRIVATE}/patch", user="root")
    if len(patch) >= MOST_BYTES:
        return NOT_CAPTURED + f"the patch has {MOST_BYTES} bytes or more".encode()
    return patch


def why_not_captured(patch: bytes) -> str | None:
    """Return the reason that `capture` reports instead of a patch, or None for a patch."""
    if patch.startswith(NOT_CAPTURED):
        return patch.decode(errors="replace")
    return f"the patch has {MOST_BYTES} bytes or more" if len(patch) >= MOST_BYTES else None
