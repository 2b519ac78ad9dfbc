"""The settings of a run as typed keywords of `train`; written from afedpg.config by `make keywords`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

Kind = Literal["both", "sampled", "deterministic"]  # how theta acts when evaluated


class Settings(TypedDict, total=False):
    """Everything else a run can be told. What is left out has its default, or what preset and method bring."""

    # The run.
    attack: str
    """how the attackers lie, to see what the others stand (default: '')"""
    attackers: tuple[int, ...] | list[int]
    """the agents that lie, with --attack (default: ())"""
    agents: int
    """N, number of agents (default: 8)"""
    iterations: int
    """the run stops after agents x iterations gradients (a3c: times T/segment); fast agents contribute more (default:
    100)"""
    seed: int
    """seeds everything that is random (default: 0)"""
    engine: Literal["virtual", "local", "ray", "grpc"]
    """what decides when agents and server meet (default: 'virtual')"""
    dimension: int
    """quadratic: number of parameters (default: 10)"""
    batch: int
    """synthetic problems: samples that one gradient is the mean of (default: 1)"""
    noise: float
    """quadratic: deviation of the gradient's noise (default: 1.0)"""
    optima: tuple[float, ...] | list[float]
    """quadratic: the optima of agents 0, 1, ... in turn; without any, all have 1 (default: ())"""
    from_run: str | Path
    """start from the theta and the statistics of this run (default: '')"""
    stop_at_return: float | None
    """end early once training's mean return stays at this"""
    stop_at_evaluation: float | None
    """end early once theta's last five evaluations have this mean"""
    stop_at_seconds: float | None
    """end early once the run's clock, virtual or real, is here"""

    # alpha and eta over the run.
    schedule: Literal["constant", "linear", "global", "fosp"]
    """how alpha and eta change over the run (default: 'linear')"""
    eta_floor: float
    """where the linear schedule's eta stops falling (default: 0.0)"""
    literal: bool
    """index the decaying schedules as printed, without the clamp max(v, (k+1)//2) (default: False)"""
    literal_constants: bool
    """steps of n contributions (fedpg: N) keep alpha and eta as given; else n times both, constant and linear (default:
    False)"""

    # How many virtual seconds each agent takes for a gradient.
    fastest: float
    """seconds per gradient of the fastest agent (the median for lognormal) (default: 1.0)"""
    spread: float
    """t_max / t_min of linear, straggler and leader (default: 4.0)"""
    speeds: tuple[float, ...] | list[float]
    """seconds per gradient of every agent, with --timing list (default: ())"""
    sigma: float
    """lognormal: deviation of log seconds between agents (default: 0.5)"""
    shape: float
    """pareto: tail index of every single gradient's seconds; above 1 (default: 2.0)"""
    trace: str | Path
    """trace: a CSV of agent,seconds rows, as recorded by a real run (default: '')"""
    silent: tuple[int, ...] | list[int]
    """agents that never answer (default: ())"""
    late: Mapping[str, float] | Mapping[int, float]
    """agents that join later, as AGENT=SECONDS (default: {})"""
    drop: Mapping[str, float] | Mapping[int, float]
    """agents that leave, as AGENT=SECONDS (default: {})"""
    latency: float
    """seconds that a message of the first agent takes, a Task or a report (default: 0.0)"""
    bandwidth: float
    """bytes per second of the first agent's messages; 0: any number at once (default: 0.0)"""
    transfer: Literal["equal", "sqrt", "linear"]
    """the i-th agent's messages take 1, sqrt(i) or i times the first one's (default: 'equal')"""
    update_share: float
    """estimators that fetch late: share of a gradient's seconds from fetch to report (default: 0.1)"""

    # How an agent turns theta~ into a gradient, on a Gymnasium task.
    hidden: tuple[int, ...] | list[int]
    """widths of the policy's hidden layers (default: (64, 64))"""
    activation: Literal["relu", "tanh"]
    """of the policy's hidden layers (default: 'relu')"""
    mean: Literal["tanh", "linear"]
    """the Gaussian policy's mean: tanh(MLP), within the action bounds, or MLP (default: 'tanh')"""
    log_std: float
    """the Gaussian policy's log standard deviation at the start (default: 0.0)"""
    steps: int
    """T, environment steps per gradient; 0: 1,024 / N (default: 1024)"""
    gamma: float
    """discount, in (0, 1] (default: 0.99)"""
    gae_lambda: float
    """GAE's lambda, in [0, 1] (default: 0.95)"""
    baseline: Literal["linear", "mlp", "none"]
    """local value estimate, never sent (default: 'mlp')"""
    baseline_hidden: tuple[int, ...] | list[int]
    """widths of the mlp baseline (default: (64, 64))"""
    baseline_rate: float
    """Adam's rate for the mlp baseline (default: 0.001)"""
    baseline_epochs: int
    """passes over a rollout per fit of the mlp baseline (default: 2)"""
    scale_advantages: bool
    """advantages to zero mean, unit deviation within a report (default: True)"""
    scale_observations: bool
    """scale observations to zero mean and unit deviation (default: True)"""
    scaling: Literal["shared", "local"]
    """by whose statistics: the federation's, or an agent's own (default: 'shared')"""
    scale_rewards: bool
    """divide rewards by the deviation of the discounted return, shared by the federation (default: False)"""
    sampler: Literal["auto", "native", "gymnasium"]
    """rollout code (default: 'auto')"""
    compute: Literal["auto", "native", "torch"]
    """code of gradient and critic (default: 'auto')"""
    horizon: int
    """server steps over which an estimator's rates fall; 0: as many as the run has (default: 0)"""
    device: Literal["cpu", "cuda"]
    """where gradient and critic are computed (default: 'cpu')"""
    segment: int
    """environment steps per report, where T is reported in parts; 0: T (default: 0)"""
    entropy: float
    """a3c: weight of the entropy bonus (default: 0.01)"""
    value_weight: float
    """a3c: weight of the value loss (default: 0.5)"""
    env_kwargs: Mapping[str, Any]
    """keyword arguments of gymnasium.make, or a TOML file with a table per agent (default: {})"""
    max_episode_steps: int
    """an episode is truncated after so many steps; 0: the task's own limit (default: 0)"""

    # What is kept of a run, and how often.
    checkpoint_seconds: float
    """real seconds between checkpoints (default: 30.0)"""
    keep_checkpoints: int
    """how many checkpoints stay (default: 2)"""
    journal_mib: float
    """MiB of journal after which a checkpoint is written early (default: 256.0)"""
    keep_reports: bool
    """keep every report of the run in the journal (default: False)"""
    evaluate_every: int
    """evaluate theta every so many iterations per agent; 0 only at the end (default: 0)"""
    evaluate_episodes: int
    """episodes per evaluation (default: 10)"""
    evaluate_kind: Literal["both", "sampled", "deterministic"]
    """how theta acts when evaluated (default: 'both')"""

    # Agents in other processes: how long the server waits for them, and what it believes of a report.
    lease: float
    """seconds of silence after which an agent is dropped (default: 15.0)"""
    deadline: float | None
    """fedpg: seconds after which a round closes; 0: never; without it, 10 times what the slowest answer took, and 60 s
    at least"""
    max_norm: float
    """reports whose gradient is longer are refused (default: 1000000000.0)"""
    max_delay: int
    """reports with a larger delay are refused; 0: none is (default: 0)"""
    max_rate: float
    """reports per second an agent may send (default: 1000.0)"""
    max_share: float
    """share of the applied gradients that one agent may make up, beyond its first ten (default: 1.0)"""
    durable: bool
    """a Task goes out only once the journal is on the disk: survives a power cut (default: False)"""

    # With --engine ray: the cluster, and what an agent takes of it.
    ray_address: str
    """the cluster to join, as auto or HOST:PORT; without it one starts on this machine (default: '')"""
    agent_cpus: float
    """processors of the cluster each agent takes; a share packs more on one (default: 1.0)"""
    agent_gpus: float
    """GPUs of the cluster each agent takes, with --device cuda (default: 0.0)"""
