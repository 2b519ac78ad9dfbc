"""What every writer of a run folder shares: errors of the disk as one line, and writes that survive a power cut."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from afedpg.errors import AfedpgError


def to_copy(*words: str | Path) -> str:
    """A command of ours: a path with a space in it is quoted, as a shell wants it."""
    return shlex.join(("afedpg", *map(str, words)))


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_error(error: OSError, file: Path, run: Path) -> AfedpgError:
    """The error to raise for one of the operating system's, met while writing `file` of that run."""
    if is_full(error):
        return disk_full(file, run)
    reason = error.strerror or str(error)
    return AfedpgError(f"cannot write {file}: {reason}; put it right and run `{to_copy('resume', run)}`")


def disk_full(file: Path, run: Path) -> AfedpgError:
    return AfedpgError(f"disk full: cannot write {file}, free space and run `{to_copy('resume', run)}`")


def sync_folder(folder: Path) -> None:
    """New names in a folder reach the disk only with the folder itself."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def create_private(file: Path) -> int:
    """A new file's handle, never readable by others, not even for a moment."""
    file.unlink(missing_ok=True)
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def write_text(file: Path, text: str) -> None:
    write_bytes(file, text.encode("utf-8"))


def beside(file: Path) -> Path:
    """Where a file is written before it takes its place."""
    return file.with_name(f".{file.name}.tmp")


def write_bytes(file: Path, content: bytes) -> None:
    """The whole content or, after a crash, whatever was there before."""
    unfinished = beside(file)
    try:
        with unfinished.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(unfinished, file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)
