"""Every failure a user can meet is one of these; the command line turns them into one line and an exit code."""

FOR_GOOD = 3  # starting it again brings the same: somebody must change something first


class AfedpgError(Exception):
    """Something outside the program is wrong: one line that says what, where and what to do."""

    exit_code = 1


class ConfigError(AfedpgError):
    """Bad usage or a bad setting; the message starts with the field's name."""

    exit_code = 2


class Unwelcome(AfedpgError):
    """A server will not have this agent, however often it comes back."""

    exit_code = FOR_GOOD


class BrokenPart(AfedpgError):
    """A part of the user's own answered what nothing can be made of. A rule and an aggregator answer in the middle of a
    server step, which is then left half done: the state is not stored.
    """

    exit_code = FOR_GOOD


class FailedPart(BrokenPart):
    """The part's code may be right: memory was short, or a file could not be read or written."""

    exit_code = AfedpgError.exit_code
