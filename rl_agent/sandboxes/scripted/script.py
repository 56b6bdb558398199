"""Shell scripts that run a command in a sandbox at most once, even if its stream breaks, and report its result.

The scripts run as root, in a folder that only root can use: a command cannot read another one's input or write its own exit code.
In a sandbox with one user, they run as that user in a shared folder. Each command has a token, which names its subfolder. Whoever
creates the subfolder first decides: the start script runs the command; a query prevents it from ever running. The command writes
to files, so a broken stream loses nothing. A small reaper (Perl, Python or plain bash) starts it as its user and adopts its
orphans, so that a kill finds the whole process tree. Reports carry bytes in base64, because the SDK's streams are text.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UPLOADS: Final = "/opt/rl_agent/run"
"""Folder for files of all users, which cannot list it."""
COMMANDS: Final = "/opt/rl_agent/commands"
ALONE: Final = "alone"
"""Output of the set-up in a sandbox with one user."""
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEVER: Final = "never"
RUNNING: Final = "running"
NO_USER: Final = "no-user"
_MARK: Final = "rl_agent-report"

SET_UP: Final = f"""\
set -e
mkdir -p {UPLOADS} {COMMANDS}; chmod 755 /opt/rl_agent; chmod 1733 {UPLOADS}; chmod 700 {COMMANDS}
if ! id agent >/dev/null 2>&1; then
  useradd -m -s /bin/bash agent 2>/dev/null || adduser -D -s /bin/bash agent 2>/dev/null || {{
    u=1000; while grep -q "^[^:]*:[^:]*:$u:" /etc/passwd /etc/group; do u=$((u + 1)); done
    echo "agent:x:$u:$u::/home/agent:/bin/bash" >>/etc/passwd; echo "agent:x:$u:" >>/etc/group
    mkdir -p /home/agent; chown $u:$u /home/agent; }}
fi
if read -r _ _ n </proc/self/uid_map && [ "$n" = 1 ] && [ "$(wc -l </proc/self/uid_map)" = 1 ]; then echo {ALONE}; fi
"""
"""Runs as root after the boot. Idempotent."""

_PERL: Final = (
    "delete $ENV{PERL_BADLANG};my($d,$n,$u,$g,$s,@c)=@ARGV;syscall($n+0,36,1,0,0,0);open(F,q(>),qq($d/p));print F $$;close F;rename qq($d/p),qq($d/pid);"
    "my $p=fork;if(!$p){if($u){$)=qq($g $s);$(=$g;($<,$>)=($u,$u);exit 126 if $<!=$u||$>!=$u||$)!=$g}exec{$c[0]}@c;exit 126}"
    "while((my $k=waitpid(-1,0))>0){next if $k!=$p;my $s=$?;open(F,q(>),qq($d/c));"
    "print F ($s&127?128+($s&127):$s>>8);close F;rename qq($d/c),qq($d/code);last}"
)
_PYTHON: Final = (
    "import ctypes,os,sys\n"
    "d,s,c=sys.argv[1],sys.argv[5],sys.argv[6:]\n"
    "n,u,g=map(int,sys.argv[2:5])\n"
    "ctypes.CDLL(None).prctl(36,1,0,0,0)\n"
    "def w(a,b,t):\n open(d+a,'w').write(t);os.rename(d+a,d+b)\n"
    "w('/p','/pid',str(os.getpid()))\n"
    "p=os.fork()\n"
    "if not p:\n try:\n  if u:os.setgroups([*map(int,s.split())]);os.setgid(g);os.setuid(u)\n  os.execv(c[0],c)\n finally:os._exit(126)\n"
    "while True:\n k,s=os.wait()\n if k==p:break\n"
    "r=os.waitstatus_to_exitcode(s);w('/c','/code',str(r if r>=0 else 128-r))"
)
_BASH: Final = """\
d=$1 u=$3 g=$4 s=${5// /,}; shift 5
become() {
  if [ "$u" = 0 ]; then "$@"
  elif chroot --skip-chdir --userspec=0:0 / true 2>/dev/null; then chroot --skip-chdir --userspec="$u:$g" --groups="$s" / "$@"
  elif setpriv --reuid=0 true 2>/dev/null; then setpriv --reuid="$u" --regid="$g" --groups="$s" "$@"
  else su -s /bin/bash "$USER" -c "$(printf '%q ' "$@")"; fi
}
echo $BASHPID >"$d/p"; mv "$d/p" "$d/pid"; become "$@"; r=$?; echo $r >"$d/c"; mv "$d/c" "$d/code"; exit $r
"""
_REPORT: Final = """\
rl_part() {
  s=$(wc -c <"$1" 2>/dev/null || echo 0)
  if [ "$s" -le "$L" ]; then base64 <"$1" 2>/dev/null | tr -d '\\n'
  else h=$((L / 2)); { head -c $h "$1"; printf '\\n[... %d bytes dropped ...]\\n' $((s - 2 * h)); tail -c $h "$1"; } | base64 | tr -d '\\n'; fi
  echo
}
rl_report() { echo "MARK $1"; rl_part "$D/out"; rl_part "$D/err"; echo MARK; }
""".replace("MARK", _MARK)
_ENDED: Final = """\
rl_ended() {
  [ -e "$D/code" ] && return 0
  p=$(cat "$D/pid" 2>/dev/null) || return 1
  [ -d "/proc/$p" ] && return 1
  [ -e "$D/code" ] || echo 137 >"$D/code"
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """State and output of a command."""

    state: str
    """Exit code, `NEVER`, `RUNNING` or `NO_USER`."""
    stdout: bytes
    stderr: bytes


def parse(text: str) -> Report | None:
    """Return the report in a script's output; None if it is incomplete."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(_MARK + " ")]
    if not starts or len(lines) < starts[-1] + 4 or lines[starts[-1] + 3] != _MARK:
        return None
    head, out, err = lines[starts[-1] : starts[-1] + 3]
    try:
        return Report(
            state=head.split()[1],
            stdout=base64.b64decode(out, validate=True),
            stderr=base64.b64decode(err, validate=True),
        )
    except (binascii.Error, IndexError):
        return None


def _head(folder: str, token: str, limit: int) -> str:
    return f"export LC_ALL=C; D={folder}/{token}; L={limit}\n{_REPORT}{_ENDED}"


def start(
    token: str,
    cmd: str,
    *,
    folder: str,
    user: str,
    env: Mapping[str, str],
    cwd: str | None,
    stdin: bool,
    limit: int,
    forget: Iterable[str] = (),
) -> str:
    """Return the script that runs `cmd` as `user`, unless its token exists, and reports. `forget`: tokens of reported commands."""
    words = ["LANG=C.UTF-8", "TERM=dumb", f"PATH={PATH}", *(f"{name}={value}" for name, value in env.items())]
    old = " ".join(f"{folder}/{name}" for name in forget)
    there = shlex.quote(cwd) if cwd else '"$H"'
    # PERL_BADLANG: keeps Perl's warning about a missing locale out of the command's stderr.
    reaper = f"""
case $(uname -m) in aarch64) N=167;; *) N=157;; esac
if R=$(command -v perl); then set -- env PERL_BADLANG=0 "$R" -e {shlex.quote(_PERL)} --
elif R=$(command -v python3); then set -- "$R" -IS -c {shlex.quote(_PYTHON)}
else set -- /bin/bash -c {shlex.quote(_BASH)} sandbox; fi
"""
    return f"""{_head(folder, token, limit)}
{f"rm -rf {old} 2>/dev/null" if old else ""}
umask 022; U={shlex.quote(user)}
if mkdir -m 700 "$D" 2>/dev/null; then
: >"$D/out"; : >"$D/err"
exec 8<{'"$D.in"; rm -f "$D.in"' if stdin else "/dev/null"}
while IFS=: read -r n _ u g _ H _ || [ -n "$n" ]; do [ "$n" = "$U" ] && break; n=; done </etc/passwd
{reaper}
if [ -z "$n" ]; then echo {NO_USER} >"$D/code"
elif ! cd -- {there} 2>>"$D/err"; then echo 126 >"$D/code"; else
if [ "$(id -u)" = 0 ]; then chown "$u:$g" "$D/out" "$D/err"; else u=0; fi
setsid env -i HOME="$H" USER="$U" LOGNAME="$U" {shlex.join(words)} \
"$@" "$D" $N "$u" "$g" "$(id -G "$U" 2>/dev/null || echo "$g")" /bin/bash -c {shlex.quote(cmd)} <&8 8<&- >>"$D/out" 2>>"$D/err" &
wait $!; W=$?; [ -e "$D/code" ] || echo $W >"$D/code"
fi; fi
while ! rl_ended; do sleep 0.05; done
rl_report "$(cat "$D/code")"
"""


def ask(token: str, *, folder: str, limit: int, wait_s: int) -> str:
    """Return the script that waits for a command and reports. A command that has not started never will. Idempotent."""
    return f"""{_head(folder, token, limit)}
if mkdir -m 700 "$D" 2>/dev/null; then echo {NEVER} >"$D/code"; fi
i=0; while ! rl_ended && [ $i -lt {wait_s * 10} ]; do sleep 0.1; i=$((i + 1)); done
if [ -e "$D/code" ]; then rl_report "$(cat "$D/code")"; else rl_report {RUNNING}; fi
"""


def kill(token: str, *, folder: str, limit: int) -> str:
    """Return the script, for root, that kills a command's process tree and reports. Idempotent."""
    return f"""{_head(folder, token, limit)}
if mkdir -m 700 "$D" 2>/dev/null; then echo {NEVER} >"$D/code"; fi
i=0; while [ ! -e "$D/pid" ] && [ ! -e "$D/code" ] && [ $i -lt 40 ]; do sleep 0.05; i=$((i + 1)); done
T=$(cat "$D/pid" 2>/dev/null)
rl_below() {{
  F=" $T "; G=1
  while [ $G = 1 ]; do G=0
    for f in /proc/[0-9]*/stat; do
      read -r l <"$f" 2>/dev/null || continue
      q=${{f#/proc/}}; q=${{q%/stat}}; r=${{l##*) }}; s=${{r%% *}}; r=${{r#* }}; r=${{r%% *}}
      [ "$s" = Z ] && continue
      case $F in *" $q "*) continue;; *" $r "*) F="$F$q "; G=1;; esac
    done
  done
  B=${{F#" $T "}}
}}
if [ -n "$T" ] && [ ! -e "$D/code" ]; then
  i=0; while [ $i -lt 200 ]; do rl_below; [ -z "$B" ] && break; kill -9 $B 2>/dev/null; i=$((i + 1)); done
  kill -9 "$T" 2>/dev/null
fi
i=0; while ! rl_ended && [ $i -lt 100 ]; do sleep 0.02; i=$((i + 1)); done
rl_report "$(cat "$D/code" 2>/dev/null || echo 137)"
"""
