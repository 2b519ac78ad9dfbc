"""Runs Python blocks one after the other, each with names of its own, in one process: packages are imported once.

A line of JSON per block: {"where", "text"} on standard input, {"failure", "said"} on standard output.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback


def main() -> None:
    sys.path.insert(0, os.getcwd())  # as for `python FILE` in this folder
    with os.fdopen(os.dup(1), "w") as answers, tempfile.TemporaryFile("w+") as spoken:
        os.dup2(spoken.fileno(), 1)
        os.dup2(spoken.fileno(), 2)
        for line in sys.stdin:
            block = json.loads(line)
            spoken.seek(0)
            spoken.truncate()
            failure = ""
            try:
                exec(compile(block["text"], block["where"], "exec"), {"__name__": "__main__"})
            except BaseException:
                failure = traceback.format_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            spoken.seek(0)
            print(json.dumps({"failure": failure, "said": spoken.read()}), file=answers, flush=True)


if __name__ == "__main__":
    main()
