"""What `python -m pyspark_seb.jobs` prints: the jobs, and the folder of their files, which
spark-submit takes; `--folder` prints only that."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> dict[str, str]:
    """The first line of the docstring of each job, by its name."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "\nJOB = " in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return found


if __name__ == "__main__":
    lines = [] if "--folder" in sys.argv else [f"{n:14} {what}" for n, what in names().items()]
    sys.stdout.write("\n".join([*lines, str(FOLDER)]) + "\n")
