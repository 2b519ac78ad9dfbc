"""`afedpg export`: a run's policy for other runtimes."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from afedpg import __version__
from afedpg.commands.parser import add_policy, add_run, add_which, command, own_policy
from afedpg.errors import AfedpgError, ConfigError
from afedpg.printable import printable

FORMATS = ("onnx",)
SAMPLED = {"sampled": ", and the file acts deterministic: a graph draws nothing at random"}


def add_commands(commands: Any) -> None:
    help = "write a run's deterministic policy for other runtimes, observation scaling included"
    parser = command(commands, "export", help, "afedpg export runs/swimmer-afedpg-seed0 --to onnx swim.onnx", _export)
    add_run(parser)
    add_which(parser)
    add_policy(parser)
    parser.add_argument("--to", metavar="FORMAT", default="onnx", help="onnx (default), needs afedpg[onnx]")
    parser.add_argument("file", metavar="FILE", help="where to write")


def _export(options: argparse.Namespace) -> int:
    if options.to not in FORMATS:
        raise ConfigError(f"to: unknown '{options.to}'; choose from {', '.join(FORMATS)}")
    from afedpg.export.onnx_file import to_onnx
    from afedpg.export.policy_file import read_policy
    from afedpg.record.disk import write_bytes
    from afedpg.record.folder import open_run
    from afedpg.record.loss import warn_of_beginning

    run, target = open_run(Path(options.run)), Path(options.file)
    if not target.name or os.path.isdir(target):
        raise ConfigError(f"file: '{options.file}' is a folder; name the file to write")
    if not os.path.isdir(target.parent):
        raise ConfigError(f"file: there is no folder {target.parent}")
    config = run.config()
    if config.synthetic:
        raise ConfigError(f"run: {config.task} is a synthetic problem, its theta is no policy that could act")
    file = read_policy(run.path, which=options.which)
    warn_of_beginning(run, file.origin.iteration)
    model = to_onnx(file, run.versions(), __version__, own_policy(options))
    content = model.SerializeToString()
    try:
        write_bytes(target, content)
    except OSError as error:
        raise AfedpgError(f"cannot write {target}: {error.strerror}") from error
    inputs, metadata = [entry.name for entry in model.graph.input], {p.key: p.value for p in model.metadata_props}
    if options.json:
        written = {"out": str(target), "bytes": len(content), "inputs": inputs, "sha256": metadata["sha256"]}
        print(json.dumps({**written, "which": file.origin.which}))
    else:
        print(printable(str(file.origin)) + SAMPLED.get(file.origin.acting, ""))
        print(f"{target}: {', '.join(inputs)} -> action, {len(content)} bytes, theta as float32 {metadata['sha256']}")
    return 0
