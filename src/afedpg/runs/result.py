"""What a run came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from afedpg.config import Config
from afedpg.engine.delegate import bare
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Evaluation, Statistics, Vector, Workload
from afedpg.record import tensors
from afedpg.record.folder import RunFolder
from afedpg.record.recorder import Contents
from afedpg.runs.best import Evaluated
from afedpg.runs.curve import Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from afedpg.export.policy_file import LoadedPolicy

Which = Literal["best", "last"]


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """What a run came to; `print(result)` shows it.

        result = train("CartPole-v1", agents=4, iterations=20, steps=256, evaluate_every=5)
        action = result.policy.act([0.0, 0.1, 0.0, -0.1])
        result.save("best.safetensors")
        result.plot("curve.pdf")

    Attributes:
        theta: the last parameters, in float64.
        statistics: by which observations are scaled, and the like.
        iteration: server steps.
        gradients: applied gradients.
        samples: the environment steps behind them.
        seconds: of the run's clock.
        virtual: whether that clock is simulated.
        sha256: of theta, to compare runs by.
        evaluations: of the last theta, one for each kind of acting, in each environment that differs.
        out: the run folder, if one is kept.
        best: the best evaluated theta; None where no evaluation gave a number.
        looks: evaluations that it was chosen among.
        stopped: what ended the run early: the class of a callback, on_arrival, or the setting stop_at_return,
            stop_at_evaluation or stop_at_seconds; empty where nothing did.
        config: the settings.
        workload: what the agents did; `save` asks it how the policy is written.
        curve: returns by samples, as `plot` draws them.
    """

    theta: Vector
    statistics: Statistics
    iteration: int
    gradients: int
    samples: int
    seconds: float
    virtual: bool
    sha256: str
    evaluations: tuple[Evaluation, ...]
    out: Path | None
    config: Config
    workload: Workload  # of one that was pickled, what exports its policy
    curve: Curve
    best: Evaluated | None = None
    looks: int = 0
    stopped: str = ""

    def __getstate__(self) -> dict[str, Any]:
        """Without environments and compiled code, which no other process could have."""
        workload = bare(self.workload)
        return {**self.__dict__, "workload": getattr(workload, "exporter", workload)}

    @property
    def cut(self) -> str:
        """What is said behind the run's seconds of its early end."""
        return f", stopped by {self.stopped}" if self.stopped else ""

    @property
    def last(self) -> Evaluated:
        theta = self.theta.astype(np.float32)
        where = (self.iteration, self.gradients, self.samples, self.seconds)
        return Evaluated(theta, self.statistics, *where, self.evaluations)

    @property
    def policy(self) -> LoadedPolicy:
        """The best policy, with `act` and `predict`; `load(which="last")` gives the last."""
        return self.load()

    def load(self, which: Which | None = None, seed: int = 0) -> LoadedPolicy:
        """The best or the last policy, by default the best where there is one; `seed` is of sampled actions."""
        from safetensors.numpy import save

        from afedpg.export.policy_file import LoadedPolicy, parse

        if self.config.synthetic:
            raise ConfigError(f"policy: {self.config.task} is a synthetic problem, its theta is no policy")
        make_policy = getattr(bare(self.workload), "make_policy", None)
        return LoadedPolicy(parse(save(*self._export(which)), "result"), seed, make_policy)

    def save(self, path: str | Path, which: Which | None = None) -> Path:
        """Writes the best or the last policy as a file that `load_policy` reads; by default the best."""
        place = Path(path)
        try:
            tensors.write(place, *self._export(which))
        except OSError as error:
            raise AfedpgError(f"cannot write {place}: {error.strerror}") from error
        return place

    def _export(self, which: Which | None) -> Contents:
        which = which or ("last" if self.best is None else "best")
        if which not in ("best", "last"):
            raise ConfigError(f"which: '{which}' is neither best nor last")
        chosen = self.last if which == "last" else self.best
        if chosen is None:
            raise ConfigError("which: there is no best theta: no evaluation gave a number; use last")
        return chosen.export(self.workload, which, self.looks)

    def plot(self, path: str | Path | None = None) -> Figure:
        """The learning curve: training returns of theta~ and evaluations of theta with their 95% intervals.

        With a `path` it is written there, as .png, .pdf or .svg. A notebook shows what this returns.
        """
        import matplotlib

        from afedpg import plotting

        config = self.config
        curve = self.curve if self.out is None else Curve.read(RunFolder(self.out).database)
        with matplotlib.rc_context(plotting.STYLE):
            figure, axes = plotting.panel()
            curve.draw(f"{config.task}, {config.method}, {config.agents} agents", axes)
            if path is not None:
                try:
                    plotting.write(figure, Path(path))
                except (OSError, ValueError) as error:  # a folder that is not there, a format that nobody knows
                    raise ConfigError(f"plot: cannot write {path}: {error}") from error
        return figure

    def __repr__(self) -> str:
        config, clock = self.config, "virtual seconds" if self.virtual else "seconds"
        lines = [
            f"{config.task}, {config.method}, {config.agents} agents: {self.gradients} gradients, {self.samples} "
            f"samples, {self.seconds:.6g} {clock}{self.cut}",
            str(self.last.origin("last", self.looks)),
        ]
        if self.best is not None and self.looks > 1:
            lines.append(str(self.best.origin("best", self.looks)))
        lines.append(f"run folder {self.out}" if self.out else "no run folder")
        return "Result(" + "\n       ".join(lines) + ")"
