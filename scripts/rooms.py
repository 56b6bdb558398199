"""Print lines and files per package of rl_agent: `python scripts/rooms.py [folder]`. Blank lines count."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path


def main(root: Path) -> None:
    """Print one row per package, then the total."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    longest: Counter[str] = Counter()
    for path in root.rglob("*.py"):
        inner = path.relative_to(root)
        room = inner.parts[0] if len(inner.parts) > 1 else "."
        count = len(path.read_text().splitlines())
        lines[room] += count
        files[room] += 1
        longest[room] = max(longest[room], count)
    print(f"{'room':12} {'lines':>7} {'files':>6} {'longest':>8}")
    for room in sorted(lines):
        print(f"{room:12} {lines[room]:7} {files[room]:6} {longest[room]:8}")
    print(f"{'total':12} {lines.total():7} {files.total():6} {max(longest.values()):8}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "rl_agent")
