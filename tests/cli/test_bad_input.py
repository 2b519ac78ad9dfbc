"""Bad input gets one clear line that names the field, exit code 2, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from afedpg import resume, train
from afedpg.cli import main, make_parser
from afedpg.config import ESTIMATORS, from_settings, resolved
from afedpg.errors import AfedpgError, ConfigError
from afedpg.runs.train import run
from afedpg.server.rules import afedpg

TRAIN = ("train", "quadratic")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, *arguments):
    """The one line a refused command says."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (2, "", 1), said
    return said.err


# What is given -> what the line says. The field comes first, what was wrong with it after.
CASES = {
    "--method nosuch": "method: unknown 'nosuch'",
    "--method nosuch:power=1": "method: unknown 'nosuch:power=1'",
    "--method afedppo:": "method: 'afedppo:' is not like NAME, NAME:key=value or FILE.py:NAME:key=value",
    "--timing linear:": "timing: 'linear:' is not like NAME",
    "--timing linear:k=1": "timing: linear has no parameters",
    "--method no.py:Rule": "method: cannot read",
    "--estimator nosuch": "estimator: unknown 'nosuch'; choose from gae",
    "--aggregator nosuch": "aggregator: unknown 'nosuch'; choose from each",
    "--aggregator all:k=1": "aggregator: all has no parameter 'k'",
    "--aggregator :": "aggregator: ':' is not like NAME",
    "--codec nosuch": "codec: unknown 'nosuch'; choose from float32",
    "--codec no.py:Codec": "codec: cannot read",
    "--codec float32:k=1,2": "codec: 'k=1,2' is not like key=value",
    "--segment -1": "segment: -1",
    "--attack zeros": "attack: say how with --attack NAME and who with --attackers 2,5",
    "--attackers 1": "attack: say how with --attack NAME and who with --attackers 2,5",
    "--attack nosuch --attackers 1": "attack: unknown 'nosuch'",
    "--attack zeros --attackers 8": "attackers: there is no agent 8; agents are 0 to 7",
    "--attack zeros --attackers -1": "attackers: there is no agent -1",
    "--attack zeros --attackers 0,1 --agents 2": "attackers: every agent lies",
    "--attack zeros --attackers 1,3,1": "attackers: agent 1 is named 2 times",
    "--silent 3,3": "silent: agent 3 is named 2 times",
    "--attack sign-flip:scale=-1 --attackers 1": "attack: sign-flip: scale: -1.0 must be above 0",
    "--attack poisoned-moments --attackers 1": "attack: poisoned-moments needs agents that report moments",
    "--attack false-drift --attackers 1": "attack: false-drift needs an estimator whose reports carry numbers",
    "--attack random-values --attackers 1": "attack: random-values: theta has no group 'value'",
    "--attack observation-noise --attackers 1": "attack: this one changes what is observed",
    "--attack ipm --attackers 1 --engine local": "attack: ipm knows every agent's contribution; use --engine virtual",
    "--aggregator slots:mean=nosuch": "aggregator: slots: mean: unknown 'nosuch'",
    "--aggregator slots:share=0.5": "aggregator: slots: share: 0.5 is outside",
    "--aggregator clip-centred:reach=0": "aggregator: clip-centred: reach: 0.0 must be above 0",
    "--schedule nosuch": "schedule: unknown",
    "--timing nosuch": "timing: unknown",
    "--alpha 0": "alpha: 0.0 is outside (0, 1]",
    "--alpha 1.0001": "alpha: 1.0001 is outside",
    "--alpha -0.1": "alpha: -0.1",
    "--alpha nan": "alpha: nan is not a finite number",
    "--alpha much": "argument --alpha: invalid float value: 'much'",
    "--eta 0": "eta: 0.0 must be above 0",
    "--eta -1": "eta: -1.0",
    "--eta inf": "eta: inf",
    "--eta-floor 1": "eta_floor: 1.0 is outside",
    "--agents 0": "agents: 0; at least 1",
    "--agents -3": "agents: -3",
    "--agents 2.5": "argument --agents: invalid int value",
    "--agents 2 --method pg": "agents: pg is the single-agent baseline",
    "--iterations 0": "iterations: 0",
    "--seed -1": "seed: -1",
    "--seeds 4-0": "seeds: '4-0'",
    "--seeds a-b": "seeds: 'a-b'",
    "--seeds 0-": "seeds: '0-' is not like 0-4",
    "--seeds -3": "seeds: '-3' is not like 0-4",
    "--seeds 0-1000000000": "seeds: '0-1000000000' are more than 10000",
    "--seeds 0-6000,0-6000": "seeds: '0-6000,0-6000' are more than 10000",
    "--seeds 0-1 --seed 3": "seeds: give either",
    "--noise -1": "noise: -1.0",
    "--dimension 0": "dimension: 0",
    "--timing list --speeds 1,2,3": "speeds: 3 given for 8 agents",
    "--timing list": "speeds: 0 given for 8 agents",
    "--agents 2 --timing list --speeds 1,0": "speeds: 0.0 must be above 0",
    "--agents 2 --speeds 1,2": "speeds: only used with --timing list",
    "--trace nosuch.csv": "trace: only used with --timing trace",
    "--sigma 0.5": "sigma: only used with --timing lognormal",
    "--timing lognormal --shape 3": "shape: only used with --timing pareto",
    "--timing sqrt --spread 20": "spread: only used with --timing linear or straggler or leader; this run has sqrt",
    "--timing pareto --spread 20": "spread: only used with --timing linear or straggler or leader; this run has pareto",
    "--timing list --speeds 1,1,1,1,1,1,1,1 --fastest 2": "fastest: only used with --timing linear or sqrt or ",
    "--schedule constant --eta-floor 0.01": "eta_floor: only used with --schedule linear; this run has constant",
    "--schedule fosp --eta-floor 0.01": "eta_floor: only used with --schedule linear; this run has fosp",
    "--schedule constant --literal": "literal: only used with --schedule global or fosp; this run has constant",
    "--literal": "literal: only used with --schedule global or fosp; this run has linear",
    "--update-share 0.5": "update_share: quadratic draws its gradients itself; leave it out, or name a task",
    "--method afedppo --horizon 50": "horizon: quadratic draws its gradients itself",
    "--device cuda": "device: quadratic draws its gradients itself; leave it out, or name a task",
    "--env-kwargs a=1": "env_kwargs: quadratic draws its gradients itself",
    "--method a3c --entropy 0.5": "entropy: quadratic draws its gradients itself",
    "--agents 2 --silent 0,1": "silent: every agent is silent",
    "--agents 2 --silent 2": "silent: there is no agent 2",
    "--method fedpg --silent 3": "silent: the server waits for every agent",
    "--agents 2 --drop 0=5,1=6": "drop: every agent that answers leaves",
    "--agents 3 --drop 0=5,1=6 --silent 2": "drop: every agent that answers leaves",
    "--drop 0=5 --late 0=5": "drop: agent 0 would leave before it has joined",
    "--late 9=1": "late: there is no agent 9",
    "--late 0=-1": "late: -1.0 seconds",
    "--late 0=inf": "late: inf seconds",
    "--late soon": "argument --late: 'soon' is not like name=1",
    "--late late.toml": "argument --late: there is no file late.toml",
    "--alpha -1e-3": "alpha: -0.001 is outside",
    "--eta -inf": "eta: -inf is not a finite number",
    "--silent -1,2": "silent: there is no agent -1",
    "--stop-at-seconds -1e3": "stop_at_seconds: -1000.0",
    "--workers=--": "argument --workers: expected one argument",
    "--fastest 0": "fastest: 0.0",
    "--fastest 1e300": "fastest: 1e+300 seconds per gradient; virtual time ends after 292 years",
    "--spread 1e300": "spread: 1e+300 seconds per gradient",
    "--agents 2 --timing list --speeds 1,1e300": "speeds: 1e+300 seconds per gradient",
    "--timing lognormal --sigma 1e300": "timing: lognormal gives an agent no seconds",
    "--late 0=1e300": "late: 1e+300 seconds",
    "--spread 0.5": "spread: 0.5",
    "--timing pareto --shape 1": "shape: 1.0",
    "--timing trace": "trace: name the CSV file",
    "--timing trace --trace nosuch.csv": "trace: cannot read {here}/nosuch.csv: No such file",
    "--checkpoint-seconds 0": "checkpoint_seconds: 0.0",
    "--keep-checkpoints 0": "keep_checkpoints: 0",
    "--evaluate-every -1": "evaluate_every: -1",
    "--gamma 1.5": "gamma: 1.5",
    "--workers 0": "workers: 0",
    "--method fedpg --deadline 0.5": "deadline: only used with --engine local or --engine ray or `afedpg server`",
    "--max-share 0": "max_share: 0.0 is outside (0, 1]",
    "--max-share 1.5": "max_share: 1.5 is outside (0, 1]",
    "--agents 4 --max-share 0.2": "max_share: 0.2 of the gradients each, by 4 agents: the run could not end",
    "--lease 5": "lease: only used with --engine local or `afedpg server`",
    "--engine ray --max-rate 5": "max_rate: only used with --engine local or `afedpg server`",
    "--agent-cpus 2": "agent_cpus: only used with --engine ray",
    "--engine local --fastest 100": "fastest: only used with --engine virtual",
    "--engine local --timing pareto": "timing: only used with --engine virtual",
    "--engine local --silent 1": "silent: only used with --engine virtual",
    "--engine ray --late 0=1000": "late: only used with --engine virtual",
    "--engine ray --drop 0=1000": "drop: only used with --engine virtual",
    "--engine local --workers 2": "workers: only used with --engine virtual",
    "--engine ray --workers 2": "workers: only used with --engine virtual",
    "--preset nosuch": "preset: there is no 'nosuch' for quadratic",
    "--preset nosuch.toml": "preset: there is no file nosuch.toml",
    "--from nosuch": "from_run: there is no folder {here}/nosuch\n",
    "--nosuch 1": "unrecognized arguments: --nosuch",
    "--agents 1000000000000": "agents: 1000000000000 agents x 10 parameters need about",
    "--dimension 100000000000": "dimension: 100000000000 is outside [1, 268435456]",
    "--agents 100 --dimension 200000000": "agents: 100 agents x 200000000 parameters need about",
}


@pytest.mark.parametrize(("given", "said"), CASES.items(), ids=CASES)
def test_a_setting_that_makes_no_sense(given, said, capsys, empty_folder):
    assert said.replace("{here}", str(empty_folder)) in refused(capsys, *TRAIN, *given.split())
    assert list(empty_folder.iterdir()) == []


@pytest.mark.parametrize(
    "command", ["train quadratic", "server quadratic --insecure", "tune quadratic", "reproduce all"]
)
def test_a_folder_without_a_name_is_refused(command, capsys, empty_folder):
    assert refused(capsys, *command.split(), "--out", "") == "afedpg: out: '' is no path\n"
    with pytest.raises(ConfigError, match=r"^out: '' is no path$"):
        train("quadratic", agents=2, iterations=2, out="")
    assert list(empty_folder.iterdir()) == []


def test_runs_of_a_file_are_those_of_no_folder(capsys, empty_folder):
    (empty_folder / "many.py").touch()
    line = refused(capsys, "runs", "many.py")
    assert line == "afedpg: folder: many.py is a file; name run folders, or folders of runs\n"


def constant(iteration, version):
    return 0.1


def test_settings_that_nothing_reads_are_refused_where_they_are_named(empty_folder):
    small = {"agents": 1, "iterations": 1, "steps": 16, "hidden": (4,), "evaluate_episodes": 1, "out": "run"}
    a3c, gae = "only used with --estimator a3c", "only used with --estimator gae or natural; this run has"
    clipped = "only used with --estimator clipped; this run has gae"
    for settings, line in (
        ({"method": "afedppo", "entropy": 0.5}, f"entropy: {a3c} or clipped:entropy=0.5; this run has clipped"),
        ({"entropy": 0.01}, f"entropy: {a3c} or clipped:entropy=0.01; this run has gae"),
        ({"estimator": "natural", "value_weight": 0.5}, f"value_weight: {a3c}; this run has natural"),
        ({"sigma": 0.5}, "sigma: only used with --timing lognormal; this run has linear"),
        ({"timing": lambda agent, n: 1.0, "spread": 2.0}, "spread: .* or leader; this run has one of its own"),
        ({"method": "afedppo", "alpha": 0.1}, "alpha: afedppo mixes nothing, so it has none; leave it out"),
        ({"method": "afedppo", "alpha": constant}, "alpha: afedppo mixes nothing, so it has none; leave it out"),
        ({"method": "afedppo", "baseline": "none"}, f"baseline: {gae} clipped"),
        ({"estimator": "clipped", "baseline_rate": 0.1}, f"baseline_rate: {gae} clipped"),
        ({"method": "a3c", "segment": 0, "baseline": "linear"}, f"baseline: {gae} a3c"),
        (
            {"method": "a3c", "segment": 0, "gae_lambda": 0.9},
            "gae_lambda: .* natural or clipped; this run has a3c",
        ),
        ({"estimator": "reinforce", "gae_lambda": 0.9}, "gae_lambda: .* clipped; this run has reinforce"),
        ({"update_share": 0.5}, f"update_share: {clipped}"),
        ({"horizon": 50}, f"horizon: {clipped}"),
        ({"noise": 0.5}, "noise: only used with quadratic; this run has CartPole-v1"),
        ({"dimension": 5}, "dimension: only used with quadratic; this run has CartPole-v1"),
        ({"batch": 8}, "batch: only used with quadratic or .* or softmax-mdp; this run has CartPole-v1"),
    ):
        with pytest.raises(ConfigError, match=f"^{line}$"):
            train("CartPole-v1", **small, **settings)
    unread = "entropy = 0.5\nsigma = 1.0\nvalue_weight = 0.1\ntrace = 'times.csv'\nliteral = true\nnoise = 2.0\n"
    (empty_folder / "mine.toml").write_text(unread)
    run = train("CartPole-v1", **small, preset="mine.toml")
    assert run.sha256 == train("CartPole-v1", **small | {"out": None}).sha256
    assert resume("run").sha256 == run.sha256
    (empty_folder / "own.py").write_text("from afedpg.agent.estimators.shipped import A3c\nclass Mine(A3c): pass\n")
    read = {"estimator": f"{empty_folder / 'own.py'}:Mine", "entropy": 0.3, "value_weight": 0.2, "out": None}
    read |= {"baseline": "none", "horizon": 5, "update_share": 0.2, "gae_lambda": 0.9}
    nothing = {"device": "cpu", "env_kwargs": {}, "eta_floor": 0.0, "literal": False, "schedule": "constant"}
    assert train("CartPole-v1", **small | read, **nothing).gradients == 1
    settings = {"steps": 16, "hidden": (4,), "agents": 1, "iterations": 1, "evaluate_episodes": 1}
    (empty_folder / "ppo.toml").write_text("method = 'afedppo'\n")
    assert train("CartPole-v1", **settings, preset="ppo.toml", method=afedpg, alpha=constant).gradients == 1


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_reads_the_local_baseline_or_has_the_same_bits_with_another_one(name):
    def bits(**more):
        agent = {"estimator": name, "steps": 32, "max_episode_steps": 16, "hidden": (4,), **more}
        config = from_settings({"task": "CartPole-v1", "agents": 1, "iterations": 2, "method": "pg-plain", **agent})
        return run(resolved(config)).sha256

    same = bits(baseline="mlp", baseline_rate=0.1) == bits(baseline="linear", baseline_rate=1e-3)
    assert same == (name not in ("gae", "natural"))


@pytest.mark.parametrize("given", ["--engine virtual", "--timing pareto", "--silent 1", "--agent-cpus 2"])
def test_a_server_has_no_settings_of_other_engines(given, capsys, empty_folder):
    line = refused(capsys, "server", "quadratic", "--insecure", "--out", "run", *given.split())
    assert f"unrecognized arguments: {given}" in line
    (empty_folder / "mine.toml").write_text("silent = [1]\n")
    line = refused(capsys, "server", "quadratic", "--insecure", "--out", "run", "--preset", "mine.toml")
    assert line == "afedpg: silent: only used with --engine virtual\n"
    assert [path.name for path in empty_folder.iterdir()] == ["mine.toml"]


@pytest.mark.parametrize("lease", ["0.4", "86401", "100000", "2147484", "1e300"])
def test_a_lease_that_agents_or_grpc_would_not_take(lease, capsys, empty_folder, monkeypatch):
    monkeypatch.setattr("afedpg.runs.serve.run_server", lambda *rest, **more: pytest.fail("it was accepted"))
    line = refused(capsys, "server", "quadratic", "--insecure", "--out", "run", "--lease", lease)
    assert line == f"afedpg: lease: {float(lease)} is outside [0.5, 86400.0]\n"
    assert list(empty_folder.iterdir()) == []


CERTS = {
    ("--days", "10000000"): "days: 10000000; between 1 and 3650",
    ("--days", "0"): "days: 0; between 1 and 3650",
    (
        "--host",
        "m\u00fcller.example",
    ): "host: 'm\u00fcller.example' is no host's name or address; write it as xn--mller-kva.example",
    ("--host", "a b"): "host: 'a b' is no host's name",
    ("--host", "a\nb"): "host: 'a\\nb' is no host's name",
    ("--host", "[::1]"): "host: '[::1]' is no host's name",
    ("--host", "a..b"): "host: 'a..b' is no host's name",
    ("--host", "x" * 300): "host: 'xxx",
    ("--host", ""): "host: name at least one",
    ("--host", ","): "host: name at least one",
    ("--agents", ".."): "name: '..' is not",
    ("--agents", "a,.,b"): "name: '.' is not",
    ("--agents", "100000000000"): "agents: 100000000000 certificates; at most 10000 are made at once",
    ("--agents", "9" * 5000): "agents: 9999",
}


@pytest.mark.parametrize(("given", "said"), CERTS.items(), ids=[" ".join(given)[:40] for given in CERTS])
def test_certificates_that_cannot_be_made(given, said, capsys, empty_folder):
    line = refused(capsys, "certs", "in/certs", *given)
    assert line.startswith(f"afedpg: {said}")
    assert len(line) < 300
    assert list(empty_folder.iterdir()) == []


def test_a_timing_model_of_ones_own_is_for_virtual_time():
    with pytest.raises(ConfigError, match=r"^timing: only used with --engine virtual$"):
        train("quadratic", engine="local", timing=lambda agent, n: 1.0)


@pytest.mark.parametrize("task", ["nosuch", "NoSuchEnvironment-v0", "../quadratic"])
def test_an_unknown_task(task, capsys, empty_folder):
    line = refused(capsys, "train", task)
    assert line.startswith("afedpg: task: ")
    assert task in line
    assert list(empty_folder.iterdir()) == []


OPTIONS = ["--preset", "--late", "--env-kwargs", "--timing=trace --trace"]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("content", [bytes(range(256)), b"a = " + b"[" * 3000 + b"]" * 3000], ids=["binary", "deep"])
def test_a_file_that_is_not_what_it_should_be(option, content, capsys, empty_folder):
    (empty_folder / "file.toml").write_bytes(content)
    line = refused(capsys, *TRAIN, *option.split(), "file.toml")
    assert "file.toml" in line
    assert [path.name for path in empty_folder.iterdir()] == ["file.toml"]


def test_an_agent_reads_env_kwargs_as_training_does(capsys, empty_folder):
    (empty_folder / "mine.toml").write_bytes(bytes(range(256)))
    agent = ("agent", "quadratic", "--connect", "127.0.0.1:1", "--insecure", "--name", "a", "--env-kwargs")
    assert "argument --env-kwargs: mine.toml is not TOML" in refused(capsys, *agent, "mine.toml")
    assert "argument --env-kwargs: 'soon' is not like name=1" in refused(capsys, *agent, "soon")
    options = make_parser().parse_args([*agent, "gravity=-3.7,name='x'"])
    assert options.env_kwargs == {"gravity": -3.7, "name": "x"}
    (empty_folder / "mine").write_text("gravity = -3.7")  # whatever its name
    assert make_parser().parse_args([*agent, "mine"]).env_kwargs == {"gravity": -3.7}


LONG = "x" * 300


@pytest.mark.parametrize("words", [f"train quadratic {option} {LONG}" for option in ("--out", "--from")])
def test_a_name_that_is_too_long(words, capsys, empty_folder):
    assert LONG in refused(capsys, *words.split())
    assert list(empty_folder.iterdir()) == []


def test_negative_numbers_are_values():
    for option, text, value in [
        ("--stop-at-return", "-1e3", -1000.0),
        ("--stop-at-evaluation", "-.5e2", -50.0),
        ("--log-std", "-1", -1.0),
        ("--speeds", "-1e0,2", (-1.0, 2.0)),
        ("--silent", "-1,2", (-1, 2)),
    ]:
        assert getattr(make_parser().parse_args([*TRAIN, option, text]), option[2:].replace("-", "_")) == value


def test_control_codes_are_shown_and_not_obeyed(capsys):
    assert "\\x1b[31mred\\nafedpg" in refused(capsys, *TRAIN, "--method", "\x1b[31mred\nafedpg")
    assert "\\x1b[31mred" in refused(capsys, *TRAIN, "--hidden", "\x1b[31mred")


def test_an_evaluation_has_no_negative_seed(capsys, empty_folder):
    train("quadratic", agents=1, iterations=2, out="run")
    assert refused(capsys, "evaluate", "run", "--seed", "-1") == "afedpg: seed: -1 is negative\n"


@pytest.mark.parametrize("file", [".", "..", "folder", ""])
def test_a_policy_is_not_written_over_a_folder(file, capsys, empty_folder):
    train("quadratic", agents=1, iterations=2, out="run")
    (empty_folder / "folder").mkdir()
    assert refused(capsys, "export", "run", file) == f"afedpg: file: '{file}' is a folder; name the file to write\n"


def test_settings_from_python(empty_folder):
    (empty_folder / "mine.toml").write_text("agents = 2\niterations = 3\n")
    settings = {"agents": np.int64(2), "iterations": np.int32(3), "noise": np.float32(0.5), "keep_reports": np.True_}
    ours = train("quadratic", preset=empty_folder / "mine.toml", noise=0.5, timing="list", speeds=(1.0, 2.0))
    theirs = train("quadratic", timing="list", speeds=np.array([1.0, 2.0]), seed=np.uint8(0), **settings)
    assert ours.sha256 == theirs.sha256
    with pytest.raises(ConfigError, match=r"^agents: 2.0 is not of type int$"):
        train("quadratic", agents=np.float64(2))
    with pytest.raises(ConfigError, match=r"^eta: a whole number of 401 digits is no float$"):
        train("quadratic", eta=10**400)
    for workers in (0, -1):
        with pytest.raises(ConfigError, match=rf"^workers: {workers}; at least 1 is needed$"):
            train("quadratic", workers=workers)


@pytest.mark.parametrize(("name", "value"), [("alpha", 0), ("alpha", 1.5), ("alpha", None), ("eta", -1)])
def test_a_schedule_must_give_what_a_step_can_be_made_with(name, value, empty_folder):
    with pytest.raises(ConfigError, match=rf"^{name}: your schedule gave {value!r} at iteration 0, version 0; it must"):
        train("quadratic", out="first", **{name: lambda iteration, version: value})
    assert list(empty_folder.iterdir()) == []
    schedule = {name: lambda iteration, version: value if iteration >= 5 else 0.5}
    with pytest.raises(AfedpgError, match=rf"^{name}: your schedule gave {value!r} at iteration 5.* start again"):
        train("quadratic", agents=2, iterations=9, out="later", **schedule)
    for engine in ("virtual", "local"):  # nothing half done is stored
        with pytest.raises(AfedpgError, match=rf"^{name}: your schedule gave {value!r} at iteration 5"):
            train("quadratic", agents=1, iterations=9, out=engine, engine=engine, **schedule)
        gradients = [int(path.name) for path in (empty_folder / engine / "checkpoints").iterdir()]
        assert max(gradients) <= 1 + 1  # of the start: a Join each


@pytest.mark.parametrize("name", ["alpha", "eta"])
def test_a_schedule_is_a_function_of_two_numbers_that_gives_one(name):
    for schedule in (lambda progress: 0.1, lambda iteration, version, more: 0.1, lambda: 0.1):
        with pytest.raises(ConfigError, match=rf"^{name}: a schedule is a function of \(iteration, version\): "):
            train("quadratic", **{name: schedule})
    for value in (np.array([0.1]), np.full(3, 0.1), [0.1], "0.1"):
        with pytest.raises(
            ConfigError, match=rf"^{name}: your schedule gave .*0.1.* at iteration 0, version 0; it must"
        ):
            train("quadratic", **{name: lambda iteration, version, value=value: value})
    for value in (0.1, np.float64(0.1), np.array(0.1)):
        assert train("quadratic", agents=1, iterations=1, **{name: lambda i, v, value=value: value}).gradients == 1


def test_a_timing_model_of_ones_own_beyond_virtual_time():
    with pytest.raises(AfedpgError, match="agent 0 is busy beyond 292 virtual years"):
        train("quadratic", agents=2, timing=lambda agent, n: 1e300)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("train CartPole-v1 --learning-rate 3e-4", "train"),
        ("train CartPole-v1 --hidden 64 64", "train"),
        ("server quadratic --insecure --listen 127.0.0.1:0 --out run --timing equal", "server"),
    ],
)
def test_an_unknown_option_is_answered_by_the_help_that_lists_the_known_ones(words, command, capsys):
    line = refused(capsys, *words.split())
    assert line.startswith(f"afedpg {command}: unrecognized arguments: ")
    assert line.endswith(f"; see `afedpg {command} --help`\n")


def test_an_unknown_command(capsys):
    assert "invalid choice: 'fly'" in refused(capsys, "fly")
    assert "required: COMMAND" in refused(capsys)


def test_a_run_folder_that_exists_is_left_as_it_is(capsys, empty_folder):
    train("quadratic", agents=2, iterations=3, out="run")
    before = {path: path.read_bytes() for path in empty_folder.rglob("*") if path.is_file()}
    line = refused(capsys, *TRAIN, "--out", "run")
    assert line.startswith("afedpg: out: run exists; choose another --out or `afedpg resume run`")
    assert before == {path: path.read_bytes() for path in empty_folder.rglob("*") if path.is_file()}


def test_a_folder_with_something_else_or_a_file_is_not_written_to(capsys, empty_folder):
    (empty_folder / "notes").mkdir()
    (empty_folder / "notes" / "thesis.txt").write_text("mine")
    (empty_folder / "file").write_text("mine")
    assert "out: notes exists" in refused(capsys, *TRAIN, "--out", "notes")
    assert "out: file exists" in refused(capsys, *TRAIN, "--out", "file")
    assert "out: cannot create file/run" in refused(capsys, *TRAIN, "--out", "file/run")
    assert sorted(path.name for path in empty_folder.rglob("*")) == ["file", "notes", "thesis.txt"]


@pytest.mark.parametrize("command", ["resume", "replay"])
def test_a_folder_that_is_no_run(command, capsys, empty_folder):
    (empty_folder / "notes").mkdir()
    assert "run: there is no folder nosuch" in refused(capsys, command, "nosuch")
    (empty_folder / "policy.safetensors").touch()
    said = refused(capsys, command, "policy.safetensors")
    assert said.startswith("afedpg: run: policy.safetensors is a file; name a run folder (load_policy")
    (empty_folder / "policy.safetensors").unlink()
    assert "run: notes is no run folder" in refused(capsys, command, "notes")
    (empty_folder / "notes" / "run.toml").write_text("task = ")
    assert "run.toml is not TOML" in refused(capsys, command, "notes")
    for text in (f"seed = {'1' * 5000}", f"seed = {'[' * 10_000}"):
        (empty_folder / "notes" / "run.toml").write_text(text)
        assert "run.toml is not TOML" in refused(capsys, command, "notes")
    (empty_folder / "notes" / "run.toml").write_text("wings = 2\n")
    assert "wings: no such setting" in refused(capsys, command, "notes")
    assert [path.name for path in empty_folder.rglob("*")] == ["notes", "run.toml"]


def test_there_are_no_runs_to_list_where_there_is_no_folder(capsys):
    assert "folder: there is no folder runs" in refused(capsys, "runs")


def test_a_policy_of_another_size_is_no_start(capsys, empty_folder):
    train("quadratic", agents=1, iterations=2, dimension=3, out="three")
    line = refused(capsys, *TRAIN, "--from", "three", "--out", "ten")
    assert f"from_run: the policy of {empty_folder}/three has 3 parameters, this task's policy has 10" in line
    assert not (empty_folder / "ten").exists()


def test_a_setting_of_the_wrong_kind_in_a_file_is_named(capsys, empty_folder):
    for text, said in [
        ('agents = "many"', "agents: 'many' is not of type int"),
        ("agents = 2.0", "agents: 2.0 is not of type int"),
        ("agents = true", "agents: True is not of type int"),
        ("wings = 2", "wings: no such setting"),
        ("agents = ", "preset: own.toml is not TOML"),
        ("speeds = 3", "speeds: 3 is not of type"),
    ]:
        (empty_folder / "own.toml").write_text(text)
        assert said in refused(capsys, *TRAIN, "--preset", "own.toml")
    assert [path.name for path in empty_folder.iterdir()] == ["own.toml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hidden", "abc"], "'abc' is not like 64,64"),
        (["--hidden", "64,x"], "'64,x' is not like 64,64"),
        (["--hidden", "x"], "'x' is not like 64,64"),
        (["--hidden", "64,,32"], "'64,,32' is not like 64,64"),
        (["--hidden", "64,"], "'64,' is not like 64,64"),
        (["--silent", "1,b"], "'1,b' is not like 64,64"),
        (["--speeds", "1,x,3"], "'1,x,3' is not like 1,0.5"),
        (["--env-kwargs", "map_name=8x8"], "values are written as in TOML"),
        (["--codec", "float32:k=" + "1" * 5000], "is not like key=value,other=value"),
        (["--env-kwargs", "steps=" + "1" * 5000], "values are written as in TOML"),
        (["--method", "a3c", "--segment", "-1"], "segment: -1"),
        (["--method", "a3c", "--steps", "100"], "segment: T = 100 steps are not a whole number of segments of 32"),
    ],
)
def test_what_cannot_be_read_says_how_to_write_it(arguments, words, tmp_path, capsys):
    try:
        code = main(["train", "CartPole-v1", *arguments, "--out", str(tmp_path / "run")])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    assert words in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("port", ["", "x", "65536", "\u0663", "9" * 5000])
def test_what_is_no_address_is_named(capsys, port, empty_folder):
    command = ("agent", "quadratic", "--insecure", "--name", "a", "--connect", f"127.0.0.1:{port}")
    assert refused(capsys, *command) == f"afedpg: connect: '127.0.0.1:{port}' is not HOST:PORT\n"


def test_an_agent_without_a_certificate_is_asked_for_its_name(capsys):
    said = refused(capsys, "agent", "quadratic", "--insecure", "--connect", "127.0.0.1:1")
    assert said == "afedpg: name: with --insecure no certificate says who this is; give --name NAME\n"


@pytest.mark.parametrize(
    "words",
    [
        "server quadratic --agents 1 --insecure --listen 0.0.0.0:0 --out run",
        "agent quadratic --insecure --name a --connect 10.0.0.1:7443",
        "status 10.0.0.1:7443",
    ],
)
def test_without_tls_nothing_leaves_this_machine(capsys, words, empty_folder):
    said = refused(capsys, *words.split())
    assert said.startswith("afedpg: insecure: ")
    assert "is not this machine" in said
    assert list(empty_folder.iterdir()) == []
