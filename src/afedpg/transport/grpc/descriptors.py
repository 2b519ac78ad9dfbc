"""Open files: connections of strangers must leave enough for the journal, the checkpoints and the database."""

from __future__ import annotations

import contextlib
import os
import resource
import socket

RESERVE = 64  # files that no connection gets
MOST = 1 << 16  # what a server asks the system for


def raise_limit() -> int:
    """As many open files as the system lets this process have without asking anyone, and how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return MOST if soft == resource.RLIM_INFINITY else soft


def room_for_connections(host: str) -> int:
    """How many may be open at once at each address of `host`."""
    return max(1, (raise_limit() - _open_files() - RESERVE) // _addresses(host))


def _open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return RESERVE


def _addresses(host: str) -> int:
    try:
        return len({entry[4] for entry in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return 1
