"""What `afedpg reproduce` can be told. Imports nothing heavy: the command line's help is built from it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from afedpg.config import METHODS, PROBLEMS, SHORT_NAMES, TIMINGS
from afedpg.errors import ConfigError
from afedpg.preset import presets

EXPERIMENTS = (
    "sample-speedup", "global-time", "heterogeneity", "communication", "long-runs", "timeline", "complexity", "rivals",
    "sites", "learners", "adversaries",
)  # fmt: skip
SCALES = ("smoke", "short", "full")
PAPER_TASKS = ("swimmer", "hopper", "walker2d", "humanoid")  # those that the paper has constants for
PAPER = "paper"  # the preset of the paper's figures, unless another one is named
WITH_PRESET = ("sample-speedup", "global-time", "communication", "long-runs", "sites")  # the others set their own
FEDERATED = ("afedpg", "fedpg", "afedpg-vanilla", "a3c")
SUITABLE = {  # the methods each experiment can show
    "sample-speedup": FEDERATED,
    "global-time": FEDERATED,
    "heterogeneity": ("afedpg", "afedpg-vanilla"),
    "communication": FEDERATED,
    "long-runs": FEDERATED,
    "timeline": FEDERATED,
    "complexity": ("pg-plain", "pg", "fedpg", "afedpg", "afedpg-vanilla"),
    "learners": ("afedppo",),
    "rivals": ("afedpg",),
    "sites": ("afedpg", "fedpg"),
    "adversaries": ("afedpg",),
}
TEAMS = dict.fromkeys(("sample-speedup", "long-runs"), (1, 2, 4, 8))  # where the number of agents is what varies
STUDIES = {  # of figures that are made of several
    "learners": (
        "tasks", "long", "alone", "teams", "critics", "discount", "parts", "liars", "plain", "defaults", "bar",
    ),
}  # fmt: skip
BESIDE = {"heterogeneity": "fedpg"}  # there in any case: what the others are compared with
MOST_SEEDS = 10_000  # a run each
NAMED_TIMINGS = tuple(name for name in TIMINGS if name not in ("list", "trace"))  # those need more than a name
SHOWN_TIMINGS = {  # where a figure has timing models of its own
    "heterogeneity": ("straggler", "leader"),
    "rivals": ("equal", "sqrt", "straggler", "pareto"),
    "learners": ("linear",),
    "sites": ("list",),
    "adversaries": ("equal",),
}
OF_OWN_SPEEDS = ("learners", "sites", "adversaries")  # what is told of them names speeds that no other clock has
TAKEN = {  # by figures that do not take all tasks or seeds named: so many of the first
    "tasks": {"heterogeneity": 0, "timeline": 0, "complexity": 0, "communication": 1},
    "seeds": {"heterogeneity": 0, "timeline": 0, "communication": 1},
}
OF_ONE_METHOD = ("learners", "adversaries")  # figures beside which no rule of the user's own stands


@dataclass(frozen=True)
class OwnPart:
    """A part in a user's own file: named on the command line, loaded by whoever needs it."""

    path: str
    function: str
    sha256: str  # of the file: other code is another run
    values: str = ""  # its parameters, as key=value,...

    @property
    def written(self) -> str:
        return f"{self.function}:{self.values}" if self.values else self.function

    @property
    def label(self) -> str:
        return f"{self.written} ({Path(self.path).name})"

    @property
    def named(self) -> str:
        """As on the command line, in the file's own folder."""
        return f"{Path(self.path).name}:{self.written}"


@dataclass(frozen=True)
class Method:
    """A method as figures show it: one of the paper's, or the user's own rule."""

    name: str
    own: OwnPart | None = None

    @property
    def label(self) -> str:
        return self.own.label if self.own else self.name

    @property
    def known(self) -> str:
        """What the configuration of its runs names."""
        return "afedpg" if self.own else self.name

    @property
    def word(self) -> str:
        """For the name of a run folder."""
        return self.own.function if self.own else self.name


@dataclass(frozen=True)
class Choices:
    scale: str
    out: Path
    workers: int
    tasks: tuple[str, ...] = ()  # empty: the experiment's own
    seeds: tuple[int, ...] = ()
    agents: tuple[int, ...] = ()
    studies: tuple[str, ...] = ()
    methods: tuple[Method, ...] = ()
    preset: str = ""  # empty: the experiment's own
    timing: str = ""  # a named timing model
    own_timing: OwnPart | None = None
    finished_only: bool = False  # compute nothing: conclude from what is finished

    def pick_tasks(self, usual: tuple[str, ...]) -> tuple[str, ...]:
        return self.tasks or usual

    def pick_seeds(self, smoke: int, short: int, full: int) -> tuple[int, ...]:
        """Those given, or the first so many of the scale."""
        return self.seeds or tuple(range({"smoke": smoke, "short": short, "full": full}[self.scale]))

    def pick_preset(self, usual: str = PAPER) -> str:
        return self.preset or usual

    def pick_agents(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        return self.agents or usual

    def pick_methods(self, usual: tuple[str, ...], suitable: tuple[str, ...] | None = None) -> tuple[Method, ...]:
        """Names narrow the figure's usual methods down, to none if none suits; the user's own stand beside them."""
        names = tuple(method for method in self.methods if method.own is None)
        own = tuple(method for method in self.methods if method.own is not None)
        if not names:
            return (*(Method(name) for name in usual), *own)
        return (*(method for method in names if method.name in (suitable or usual)), *own)

    def command(self, id: str) -> str:
        """What makes this figure again; where it is written and with how many processes changes nothing in it."""
        suit = (*SUITABLE[id], BESIDE.get(id))
        methods = [m.own.named if m.own else m.name for m in self.methods if m.own or m.name in suit]
        given = {
            "scale": self.scale,
            "tasks": ",".join(self.tasks[: TAKEN["tasks"].get(id)]),
            "seeds": ",".join(map(str, self.seeds[: TAKEN["seeds"].get(id)])),
            "agents": ",".join(map(str, self.agents)),
            "studies": ",".join(self.studies),
            "methods": ",".join(methods),
            "timing": self.own_timing.named if self.own_timing else self.timing,
            "preset": self.preset if id in WITH_PRESET else "",
        }
        flags = (f"--{name} {shlex.quote(value)}" for name, value in given.items() if value)
        return " ".join(["afedpg reproduce", id, *flags])


def parse_seeds(text: str) -> tuple[int, ...]:
    """0-4 or 0,3,7."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            named = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            named = range(0)
        if not named:
            raise ConfigError(f"seeds: '{text}' is not like 0-4 or 0,3,7")
        if named.stop - named.start > MOST_SEEDS - len(seeds):
            raise ConfigError(f"seeds: '{text}' are more than {MOST_SEEDS}")
        seeds += named
    return tuple(dict.fromkeys(seeds))


def parse_agents(id: str, text: str) -> tuple[int, ...]:
    """Some of a figure's teams: the larger ones take most of the time. All are measured against one agent alone."""
    if id not in TEAMS:
        raise ConfigError(f"agents: only for {' and '.join(TEAMS)}, not for {id}")
    given, usual = set(text.split(",")), TEAMS[id]
    named = tuple(agents for agents in usual if str(agents) in given)
    if len(named) < len(given) or len(named) < 2 or named[0] != 1:
        raise ConfigError(f"agents: '{text}' is not 1 and some more of {', '.join(map(str, usual))}, like 1,8")
    return named


def parse_studies(id: str, text: str) -> tuple[str, ...]:
    """Some of a figure's studies, in its own order."""
    if id not in STUDIES:
        raise ConfigError(f"studies: only for {' and '.join(STUDIES)}, not for {id}")
    given = text.split(",")
    for name in given:
        if name not in STUDIES[id]:
            raise ConfigError(f"studies: unknown '{name}'; choose from {', '.join(STUDIES[id])}")
    return tuple(name for name in STUDIES[id] if name in given)


def split_methods(text: str) -> list[str]:
    """At commas, but for those between a part's own parameters."""
    return re.split(r",(?!\s*\w+\s*=)", text)


def parse_method(text: str) -> Method:
    """One of the named methods, or FILE.py:NAME[:key=value,...]."""
    if ".py" in text:
        own = parse_own(text, "methods")
        return Method(f"own-{own.written}", own)
    if text not in METHODS:
        raise ConfigError(f"methods: unknown '{text}'; choose from {', '.join(METHODS)}, or give FILE.py:FUNCTION")
    return Method(text)


def check_methods(id: str, methods: tuple[Method, ...]) -> tuple[str, ...]:
    """The experiments to make: the one that all methods named must suit, or those of `all` that are left with one."""
    names = [method.name for method in methods if method.own is None]

    def left(id: str) -> bool:
        own = len(names) < len(methods) and id not in OF_ONE_METHOD
        return own or not names or any(name in SUITABLE[id] for name in names)

    if id == "all":
        return tuple(filter(left, EXPERIMENTS))
    beside = BESIDE.get(id)
    wrong = [name for name in names if name not in (*SUITABLE[id], beside)]
    if wrong or not left(id):
        suit = ", ".join(SUITABLE[id]) + (f" beside {beside}" if beside else "")
        raise ConfigError(f"methods: {id} takes {suit}, not {', '.join(wrong) or f'{beside} alone'}")
    return (id,)


def check_timing(id: str, timing: str, own: OwnPart | None = None) -> tuple[str, ...]:
    """The experiments that a named timing model suits, or a function of one's own; one asked for must be of them."""
    if timing and timing not in NAMED_TIMINGS:
        raise ConfigError(f"timing: unknown '{timing}'; choose from {', '.join(NAMED_TIMINGS)}, or FILE.py:FUNCTION")
    suited = tuple(one for one in EXPERIMENTS if _suits(one, timing, own))
    if id != "all" and id not in suited:
        named = [name for name in SHOWN_TIMINGS[id] if name in NAMED_TIMINGS]
        own_too = [] if id in OF_OWN_SPEEDS else ["FILE.py:FUNCTION"]
        takes = " or ".join([", ".join(named), *own_too]) if named else "none, as it sets its own speeds"
        raise ConfigError(f"timing: {id} takes {takes}, not {own.named if own else timing}; or leave --timing out")
    return suited


def _suits(id: str, timing: str, own: OwnPart | None) -> bool:
    if own:
        return id not in OF_OWN_SPEEDS
    return not timing or timing in SHOWN_TIMINGS.get(id, NAMED_TIMINGS)


def parse_own(text: str, field: str) -> OwnPart:
    file, _, written = text.partition(".py:")
    file, (function, _, values) = f"{file}.py", written.partition(":")
    if not function.isidentifier():
        raise ConfigError(f"{field}: '{text}' is not like my_file.py:function")
    path = Path(file).resolve()
    try:
        code = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{field}: cannot read {file}: {error.strerror}") from error
    import hashlib  # loads OpenSSL, which `--help` need not wait for

    return OwnPart(str(path), function, hashlib.sha256(code).hexdigest(), values)


def check_tasks(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """A typing error in a short name is found now; what looks like a Gymnasium id is Gymnasium's to judge."""
    for task in tasks:
        known = task in SHORT_NAMES or task in PROBLEMS or "-v" in task or "/" in task
        if not known:
            names = ", ".join((*SHORT_NAMES, *PROBLEMS))
            raise ConfigError(f"tasks: unknown '{task}'; choose from {names}, or a Gymnasium id")
    return tasks


def check_taken(id: str, tasks: Sequence[str], seeds: Sequence[int]) -> None:
    """All that is named for one figure must count there; with `all` it counts where it can."""
    for flag, named in (("tasks", tasks), ("seeds", seeds)):
        most = TAKEN[flag].get(id, len(named))
        if len(named) > most:
            given = ",".join(map(str, named))
            takes = f"a single one, not {given}; name one" if most else f"none, as it has its own; leave --{flag} out"
            raise ConfigError(f"{flag}: {id} takes {takes}")


def check_preset(id: str, preset: str) -> str:
    """The preset itself, if it is a file or some task has it; a task without it has the defaults."""
    known = presets()
    if preset and id not in ("all", *WITH_PRESET):
        raise ConfigError(f"preset: only for {', '.join(WITH_PRESET)}, not for {id}; leave --preset out")
    if preset and not preset.endswith(".toml") and not any(name.endswith(f".{preset}") for name in known):
        raise ConfigError(f"preset: there is no '{preset}'; known: {', '.join(known) or 'none'}, or a .toml file")
    return preset
