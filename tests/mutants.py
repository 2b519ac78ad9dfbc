"""`make mutants`: breaks the code on purpose, one mutation at a time, and demands that a test notices.

Every mutation is a mistake somebody could make. It is applied to a copy of the tree, the fast tests that should notice
run, and the mutation counts as killed when they fail. A survivor, or a mutation whose text is gone, fails the command.

    python tests/mutants.py [WORD]      only the mutations with WORD in their names
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 2
PATIENCE = 120.0  # seconds; a mutation that makes the tests hang is killed too

LAWS = "tests/server/test_server_laws.py"
ROUNDS = "tests/server/test_rounds.py"
RIVALS = "tests/server/test_rivals.py"
FAMILIES = "tests/agent/test_site_families.py"
REJECTION = "tests/server/test_rejection.py"
AGGREGATORS = "tests/server/test_aggregators.py"
MOMENTS = "tests/server/test_moments.py"
KERNELS = "tests/server/test_kernels.py"
SCHEDULES = "tests/server/test_schedules.py"
ROBUST = "tests/server/test_robust.py"
DEFENCES = "tests/server/test_defences.py"
BOUNDED = "tests/server/test_bounded.py"
LIES = "tests/attacks/test_attack_reports.py"
WORLDS = "tests/attacks/test_attack_worlds.py"
OMNISCIENT = "tests/attacks/test_attack_omniscient.py"
PROBLEMS = "tests/problems/test_problems.py"
TIME = "tests/engine/test_time.py not many and not ten_thousand"
BITS = "tests/engine/test_same_bits.py"
API = "tests/engine/test_api.py"
RECORDED = "tests/engine/test_refused_reports.py"
LOST = "tests/engine/test_lost_files.py"
INPUT = "tests/cli/test_bad_input.py"
POLICY = "tests/agent/test_policy_file.py"
LIAR = "tests/network/test_hostile_server.py"
ANSWERS = "tests/agent/test_answers.py"
ENVIRONMENTS = "tests/agent/test_environments.py"
CHOICES = "tests/agent/test_choices.py"
POLICIES = "tests/agent/test_own_policies.py"
PRESETS = "tests/agent/test_presets.py"
TUNE = "tests/engine/test_tune.py"
IMAGES = "tests/agent/test_images.py"
MISFITS = "tests/network/test_misfits.py"
TEXT = "tests/network/test_peer_text.py"
STRANGERS = "tests/network/test_strangers.py"
STEPS = "tests/compute/test_local_steps.py"
COMPUTE = "tests/compute/test_compute_kernels.py"
ACTIVATIONS = "tests/agent/test_activations.py"
CLIPPED = "tests/agent/test_clipped.py"
LATE = "tests/engine/test_late_fetch.py"
NATURAL = "tests/agent/test_natural.py"
CHECK = "tests/cli/test_check.py"
KEYWORDS = "tests/engine/test_keywords.py not mypy"
BEST = "tests/engine/test_best.py"
CALLBACKS = "tests/engine/test_callbacks.py"
EXTEND = "tests/engine/test_extend.py"
VALUES = "tests/parts/test_values.py"
BROKEN = "tests/parts/test_broken_aggregators.py"
RULES = "tests/parts/test_broken_rules.py"
ESTIMATORS = "tests/parts/test_broken_estimators.py"


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str  # below src/afedpg
    old: str
    new: str
    tests: str  # a file, and after a blank what -k selects of it


MUTANTS = [
    # The step.
    Mutant("the gradient points downhill", "server/transforms.py",
           "1 - alpha, alpha * direction.factor", "1 - alpha, -alpha * direction.factor", LAWS),
    Mutant("alpha weighs the old direction", "server/transforms.py",
           "1 - alpha, alpha * direction.factor", "alpha, (1 - alpha) * direction.factor", LAWS),
    Mutant("alpha of the iteration instead of the version", "server/transforms.py",
           "alpha = self.alpha(at.iteration, at.version)", "alpha = self.alpha(at.iteration, at.iteration)", LAWS),
    Mutant("eta of the version instead of the iteration", "server/transforms.py",
           "direction.factor * self.eta(at.iteration, at.version)",
           "direction.factor * self.eta(at.version, at.version)", LAWS),
    Mutant("each gradient is normalized instead of the direction", "server/rules.py",
           "Chain(Mix(alpha), Normalize(), Scale(eta))", "Chain(Normalize(), Mix(alpha), Scale(eta))", LAWS),
    Mutant("no normalization", "server/rules.py",
           "Chain(Mix(alpha), Normalize(), Scale(eta))", "Chain(Mix(alpha), Scale(eta))", LAWS),
    Mutant("a zero direction is divided by its length", "server/transforms.py",
           " if length > SHORTEST and direction.factor != 0 else 0.0", "", LAWS),
    Mutant("a float32 server", "server/state.py",
           "theta = np.array(theta, dtype=np.float64)", "theta = np.array(theta, dtype=np.float32)", LAWS),
    Mutant("a float32 direction", "server/transforms.py",
           '{"direction": np.zeros(size)}', '{"direction": np.zeros(size, np.float32)}', LAWS),
    Mutant("a lookahead of (1 - alpha)", "server/lookahead.py",
           "return (1 - alpha) / alpha", "return 1 - alpha", LAWS),
    Mutant("a lookahead of alpha/(1 - alpha)", "server/lookahead.py",
           "return (1 - alpha) / alpha", "return alpha / (1 - alpha + 1e-9)", LAWS),
    Mutant("the lookahead from a difference of thetas", "server/kernels.py",
           "        theta[index] += step\n        theta_lookahead[index] = theta[index] + stretch * step",
           "        before = theta[index]\n        theta[index] += step\n"
           "        theta_lookahead[index] = theta[index] + stretch * (theta[index] - before)", LAWS),
    Mutant("vanilla looks ahead", "server/rules.py",
           "return replace(afedpg(alpha, eta), broadcast=SendTheta())", "return afedpg(alpha, eta)", LAWS),
    Mutant("rmsprop weighs the new square with rho", "server/kernels.py",
           "rho * square[index] + (1 - rho) * (value * value)", "(1 - rho) * square[index] + rho * (value * value)",
           KERNELS),
    Mutant("multiply-adds are fused in the step", "server/kernels.py",
           "@jit\ndef mix(", "@fast_jit\ndef mix(", KERNELS),
    Mutant("a zero gradient is mixed in", "server/fold.py", "if moves and", "if", LAWS),
    Mutant("squares underflow in the norm", "server/kernels.py",
           "return _scaled_norm(vector, _ENLARGED)", "pass", KERNELS),
    Mutant("the norm in float32", "server/kernels.py",
           "value = np.float64(vector[index])\n        total", "value = vector[index]\n        total", KERNELS),
    # Robust means.
    Mutant("rounding leaves a liar a remainder of its weight", "server/robust.py",
           "_ROUNDING = 1e-12", "_ROUNDING = 0.0", ROBUST),
    Mutant("a row's weight stays behind when its value is sorted", "server/robust.py",
           "= (other_part, part) if swap", "= (part, other_part) if swap", ROBUST),
    Mutant("trimmed at the lower end alone", "server/robust.py",
           "min(above, highest) - max", "above - max", ROBUST),
    Mutant("the geometric median forgets the weights", "server/robust.py",
           "coefficients = shares / np.maximum", "coefficients = 1 / np.maximum", ROBUST),
    Mutant("the last of the nearest rows counts whole", "server/robust.py",
           "np.clip(1 - share - _ROUNDING - before, 0, shares[order])", "(before < 1 - share) * shares[order]", ROBUST),
    Mutant("clipping lengthens what is short", "server/robust.py",
           "return 1.0 if distance <= radius else radius / distance", "return radius / distance", ROBUST),
    Mutant("the last block of coordinates is left out", "server/robust.py",
           "range(0, result.size, _BLOCK):", "range(0, result.size - _BLOCK + 1, _BLOCK):", ROBUST),
    # Defences.
    Mutant("a flood gains weight", "server/defences.py",
           "min(max(1.0, middle(counts)), 1 / self.beta)", "1 / self.beta", DEFENCES),
    Mutant("a flood makes the server step", "server/defences.py",
           "if recent[row] >= self.fair * usual + FREE_REPORTS:", "if False:", DEFENCES),
    Mutant("who comes back may flood again", "server/defences.py",
           "recent[row] = usual", "recent[row] = 0.0", DEFENCES),
    Mutant("who reports first leads theta", "server/defences.py",
           "direction = last if arrays[\"moving\"][0] else _without_steps(last, here)", "direction = last", DEFENCES),
    Mutant("who has left keeps a vote", "server/defences.py",
           "if not stay.all():", "if False:", DEFENCES),
    Mutant("groups are judged together", "server/defences.py",
           "for place in here.places:", "for place in (slice(None),):", DEFENCES),
    Mutant("a flood clips nobody's weight", "server/defences.py",
           "* min(1.0, self.fair * middle(counts) / counts[row])", "* 1.0", DEFENCES),
    Mutant("statistics are merged though agents may lie", "server/moments.py",
           "if robust:\n        return middle(observed)\n    # Comparing",
           "if False:\n        return middle(observed)\n    # Comparing", MOMENTS),
    Mutant("everybody may be in quarantine", "server/defences.py",
           "found > max(self.quarantine, float(np.median(found)))", "found > self.quarantine", DEFENCES),
    Mutant("who is in quarantine has a vote", "server/defences.py",
           "weights[self.kept_out(gaps)] = 0.0", "pass", DEFENCES),
    Mutant("one agent's word for all of them", "server/defences.py",
           "coordinate_median(rows, np.ones(len(rows))).tolist()", "rows[-1].tolist()", DEFENCES),
    Mutant("bounded: nothing is shortened", "server/defences.py",
           "clip_factor(lengths[row], self.factor * lower_median(votes))", "1.0", BOUNDED),
    Mutant("bounded: the longest lie goes as far as is allowed", "server/defences.py",
           "lower_median(votes)) ** 2", "lower_median(votes))", BOUNDED),
    Mutant("bounded: the longest lie is the usual length", "server/defences.py", "lower_median(votes)", "votes.max()",
           BOUNDED),
    Mutant("bounded: of two the longer is usual", "server/robust.py", "(values.size - 1) // 2", "values.size // 2",
           BOUNDED),
    Mutant("bounded: zeros have a vote", "server/defences.py", "lengths[lengths > 0]", "lengths", BOUNDED),
    Mutant("bounded: the first is compared with itself", "server/defences.py",
           "min(FEWEST, agents) if here.iteration < HELD * agents else 0", "0", BOUNDED),
    Mutant("bounded: a group waits for the silent for ever", "server/defences.py",
           "min(FEWEST, agents) if here.iteration < HELD * agents else 0", "min(FEWEST, agents)", BOUNDED),
    Mutant("bounded: values are as long as they are far from zero", "server/defences.py",
           "distance(here.theta[place], given.vector[place])", "norm(given.vector[place])", BOUNDED),
    Mutant("bounded: values are taken over whole", "server/fold.py", "factor * rule.mixing(here)", "rule.mixing(here)",
           BOUNDED),
    Mutant("bounded: what waits is a step the old way", "server/fold.py", " and factor != 0", "", BOUNDED),
    Mutant("one agent's statistics are rounded", "server/moments.py",
           "return parts[0]  # to the bit what merging gives", "pass", f"{BOUNDED} statistics"),
    # Agents that lie.
    Mutant("random moments leave Adam's steps", "agent/attacks/reports.py",
           "place=slice(ends[mine[0]], ends[mine[-1] + 1])", "place=slice(ends[mine[0]], ends[mine[0] + 1])", LIES),
    Mutant("everybody lies", "engine/attacked.py",
           "if task.agent_id in self.liars and", "if", LIES),
    Mutant("a liar's noise is the same every time", "agent/attacks/reports.py",
           '{"stream": freeze(generator)}, with_vector(report, noise)', "state, with_vector(report, noise)", LIES),
    Mutant("a liar of another life makes the old noise", "engine/attacked.py",
           'branch(array, life) if name.endswith("stream") else array', "array", LIES),
    Mutant("a lie too long to travel", "agent/attacks/reports.py",
           "np.clip(vector, -limit, limit)", "np.asarray(vector)", LIES),
    Mutant("the honest work in the liars' world", "engine/attacked.py",
           "if self.world is None or agent_id not in self.liars else", "if self.world is None else", WORLDS),
    Mutant("random actions do not follow the episode's seed", "agent/attacks/worlds.py",
           "self._given.seed(seed)", "pass", WORLDS),
    Mutant("the noise of observations does not follow the episode's seed", "agent/attacks/worlds.py",
           "self._generator = np.random.default_rng(seed)", "pass", WORLDS),
    Mutant("the largest angle falls short", "agent/attacks/omniscient.py",
           "-sine * unit(m) +", "-0.9 * sine * unit(m) +", OMNISCIENT),
    Mutant("an adversary forgets its stream when it is stored", "agent/attacks/omniscient.py",
           'self.stream = np.array(tree["stream"], np.uint64)', "pass", OMNISCIENT),
    Mutant("false drift is honest", "agent/attacks/reports.py",
           "scalars={**report.scalars, **self.ends}", "scalars=report.scalars", LIES),
    Mutant("random values reach the policy", "agent/attacks/reports.py",
           "place=slice(ends[mine[0]], ends[mine[-1] + 1])", "place=slice(0, ends[mine[-1] + 1])", LIES),
    # Schedules.
    Mutant("linear decay over the version", "server/schedules.py",
           "1 - iteration / total", "1 - version / total", SCHEDULES),
    Mutant("linear decay of fedpg over gradients", "server/schedules.py",
           "steps = -(-config.gradients // contributions)", "steps = config.gradients",
           SCHEDULES),
    Mutant("a synchronous rule's constants are not scaled", "server/rules.py",
           "return made(contributions) if contributions > 1 else rule", "return rule", SCHEDULES),
    Mutant("no clamp", "server/schedules.py",
           "version if self.literal else max(version, (iteration + 1) // 2)", "version", SCHEDULES),
    Mutant("alpha of the theorems one step late", "server/schedules.py",
           "return math.pow(index + 1, -self.power)", "return math.pow(index + 2, -self.power)", SCHEDULES),
    Mutant("fedpg's floor is that of one agent", "server/schedules.py",
           "steps, factor * chosen.eta_floor, before)", "steps, chosen.eta_floor, before)",
           "tests/engine/test_twin.py virtual and linear and fedpg"),
    Mutant("all agents have the same optimum", "problems/problem.py",
           "self.sites[task.agent_id % len(self.sites)] if self.sites else self.problem", "self.problem",
           "tests/problems/test_sites.py"),
    Mutant("messages are computed in segments, too", "engine/virtual.py",
           "seconds += self.timing.transfer(agent_id, n, self.seconds, up, down)",
           "seconds += self.timing.transfer(agent_id, n, self.seconds, up, down) * self.workload.cost", TIME),
    Mutant("a message goes one way", "engine/timing.py", "2 * self.latency", "self.latency", TIME),
    # The aggregators of other methods.
    Mutant("a gap that is met for a moment counts", "experiments/contests.py",
           "                reached = None\n", "                pass\n", "tests/experiments/test_contests.py"),
    Mutant("one task far below the bar does not matter", "experiments/bar.py",
           " and min(one.share for one in contests) >= WORST", "", "tests/experiments/test_bar.py ruled"),
    Mutant("the bar is ruled on five tasks", "experiments/bar.py", "there >= set(tasks) and sound", "sound",
           "tests/experiments/test_bar.py rule_nothing"),
    Mutant("PPO is compared with itself", "experiments/learners.py",
           "for side in (ours, theirs))", "for side in (theirs, theirs))", "tests/experiments/test_bar.py compared"),
    Mutant("a curve's samples leave out what was dropped", "server/fold.py",
           "bytes_down,\n                state.samples,", "bytes_down,\n                state.gradients,",
           "tests/record/test_database.py dropped"),
    Mutant("a batch's weights multiply parameters, too", "server/rivals.py",
           'if group.kind == "parameters":', "if False:", "tests/server/test_rivals.py weights_of_a_batch"),
    Mutant("a level counts as left before it was held long enough", "experiments/contests.py",
           "if held(engine):", "if False:", "tests/experiments/test_contests.py recorded_thetas"),
    Mutant("an episode belongs to the part it begins in", "experiments/bar_runs.py", 'side="left"', 'side="right"',
           "tests/experiments/test_bar.py belongs"),
    Mutant("an interquartile mean keeps the highest quarter", "experiments/statistics.py",
           "[cut : len(values) - cut]", "[cut:]", "tests/experiments/test_statistics.py interquartile"),
    Mutant("strata are resampled with one another", "experiments/statistics.py",
           "[stratum[generator.integers(len(stratum), size=len(stratum))] for stratum in strata]",
           "[generator.choice(np.concatenate(list(strata)), len(stratum)) for stratum in strata]",
           "tests/experiments/test_statistics.py strat"),
    Mutant("what was concluded makes way for nothing", "experiments/reproduce.py",
           "return bool(jobs) and all(", "return all(", "tests/experiments/test_learner_runs.py concluded"),
    Mutant("a return that one evaluation meets counts", "experiments/contests.py",
           "len(recent) == EVALUATION_WINDOW and ", "", "tests/experiments/test_contests.py whole_training"),
    Mutant("a figure about its own speeds takes another clock", "experiments/choices.py",
           "return id not in OF_OWN_SPEEDS", "return True", "tests/experiments/test_reproduce_choices.py clock"),
    Mutant("a task without the preset is told to have it", "experiments/learning.py",
           'return f"the defaults, as', 'return "" and f"', "tests/experiments/test_reproduce_choices.py paper"),
    Mutant("a figure passes over tasks and seeds without a word", "experiments/choices.py",
           "if len(named) > most:", "if False:", "tests/experiments/test_reproduce_choices.py counts"),
    Mutant("lies are measured by honest agents that learned nothing", "experiments/adversaries.py",
           "else map(_open, of_task)", "else of_task", "tests/experiments/test_adversaries.py nothing"),
    Mutant("a time that was never reached is not enough data", "experiments/rivals.py",
           "not math.isnan(ratio.value)", "math.isfinite(ratio.value)", "tests/experiments/test_contests.py"),
    Mutant("rennala takes what is outdated", "server/rivals.py",
           'only contributions of the present iteration count") if delay else None',
           'only contributions of the present iteration count") if delay > 1 else None', RIVALS),
    Mutant("malenia is content with one of each", "server/rivals.py",
           "or not self._enough(batches.values())", "", RIVALS),
    Mutant("malenia weighs by arrivals", "server/rivals.py",
           "return Use(_mean_over_agents(kept, batches), kept)", "return Use(mean([g.vector for g in kept]), kept)",
           RIVALS),
    Mutant("malenia forgets who may come back", "server/fold.py",
           "agents = state.present | state.absent if state.absent else state.present", "agents = state.present",
           RIVALS),
    Mutant("fedbuff is as old as its first", "server/rivals.py",
           "return Use(total, kept, sum(each.version for each in kept) // len(kept))", "return Use(total, kept)",
           RIVALS),
    Mutant("fedasync's hinge begins one early", "server/rivals.py", "delay > self.bound:", "delay >= self.bound - 1:",
           RIVALS),
    Mutant("newest keeps an agent's old contribution too", "server/rivals.py",
           "total -= slots[given.agent][1:]", "pass", RIVALS),
    Mutant("newest remembers the silent for ever", "server/rivals.py",
           "if slot[0] >= oldest}", "if True}", RIVALS),
    Mutant("a weight is lost on the way to the step", "server/fold.py",
           "Direction(vector, factor)", "Direction(vector)", RIVALS),
    Mutant("an environment is taken over from another site", "sampling/environments.py",
           "if self._kind(old_id) == self._kind(agent_id):", "if self._make_env is None:", FAMILIES),
    Mutant("the size of a body leaves its inertia", "sampling/sites.py",
           "model.body_inertia[:] *= np.float64(factor) ** 5", "model.body_inertia[:] *= factor**3", FAMILIES),
    Mutant("local scaling is the federation's", "agent/work.py",
           'statistics = _statistics_in(state, _OWN)\n', 'pass\n', FAMILIES),
    Mutant("ringmaster uses a delay of R", "server/rivals.py",
           "if delay >= self.threshold:", "if delay > self.threshold:", RIVALS),
    Mutant("recomputing forgets what was unused", "runs/replay.py",
           "until=rule.spent(recorded.gradients, recorded.unused)", "until=recorded.gradients",
           BITS + " rennala and recompute"),
    # What arrives.
    Mutant("the delay is off by one", "server/fold.py",
           " iteration - version,\n", " iteration - version + 1,\n", LAWS),
    Mutant("a report sent twice is applied twice", "server/admission.py",
           "if state.outstanding.get(event.agent_id) != (event.task_id, event.version):",
           "if event.agent_id not in state.outstanding:", REJECTION),
    Mutant("more episodes than steps are accepted", "server/admission.py", "episodes > steps or ", "", REJECTION),
    Mutant("any number of steps is accepted", "server/admission.py",
           "if not 0 <= steps <= limits.steps:", "if False:", REJECTION),
    Mutant("a refused report is journalled whole", "engine/federation.py",
           "journal.append(admitted, seconds)", "journal.append(event, seconds)",
           f"{RECORDED} costs_the_journal"),
    Mutant("an agent's share has no bound", "server/admission.py",
           "if applied > limits.share * total + FREE_GRADIENTS:", "if False:", REJECTION),
    Mutant("an open round keeps every segment of the journal", "runs/session.py",
           " or recorder.journal_full())", ")", f"{RECORDED} open_round"),
    Mutant("gradients that are not finite are accepted", "server/admission.py",
           "if not size <= limits.gradient_norm or size == math.inf:", "if size > limits.gradient_norm:", REJECTION),
    Mutant("who is refused gets no fresh work", "server/fold.py",
           "return Outcome([_hand_out(state, event.agent_id)] if fresh else [], [], event)",
           "return Outcome([], [], event)", REJECTION),
    Mutant("a void report voids the Task that is out", "server/fold.py", " and not event.void", "", REJECTION),
    Mutant("task ids are used again", "server/fold.py", "state.counter += 1\n", "pass\n", REJECTION),
    Mutant("impossible moments are merged", "server/moments.py",
           "if (new.m2 < 0).any() or (new.count == 1 and new.m2.any()):", "if False:", REJECTION),
    Mutant("moments are merged without the gap of the means", "server/moments.py",
           "old.m2 + new.m2 + gap * gap * (old.count * new.count / count)", "old.m2 + new.m2", MOMENTS),
    Mutant("the statistics of the last report alone", "server/fold.py",
           "moments.take(state.observed[name], state.statistics.get(name), agent_id, new, aggregator.robust)",
           "new", MOMENTS),
    Mutant("nobody's moments are set aside", "server/moments.py",
           "if aside != observed.aside:", "if False:", MOMENTS),
    Mutant("whoever is first to see a thing change is set aside", "server/moments.py",
           "q > bounds", "q > bound", MOMENTS),
    Mutant("short reports count as long ones", "server/moments.py",
           "variance, count])[voters]", "variance, 1024 * reports])[voters]", MOMENTS),
    Mutant("who claims few observations may be far from the others", "server/moments.py",
           "middles[-1] / SEEN", "count[voters].min() / SEEN", MOMENTS),
    Mutant("where a few see no change there is no bound", "server/moments.py",
           "rare * np.maximum(many, 1))", "np.inf)", MOMENTS),
    Mutant("the room for rare forces ends at what the liar says itself", "server/moments.py",
           "max(len(q) - 1 - max(quarter, 1), 0)", "len(q) - 1", MOMENTS),
    Mutant("the room for rare forces ends as soon as that for all others", "server/moments.py",
           "for power in (5, 2)", "for power in (5, 5)", MOMENTS),
    Mutant("where most see no change there is no bound", "server/moments.py",
           "_mean_squares(_where_most_see_no_change(usual, mean, variance), ", "_mean_squares(usual, ", MOMENTS),
    Mutant("of two that see a change the larger is the liar", "server/moments.py",
           ".sum(axis=0) >= 3, np", ".sum(axis=0) >= 2, np", MOMENTS),
    Mutant("who is set aside makes everybody else's share small", "server/moments.py",
           "count / count[used].sum()", "count / count.sum()", MOMENTS),
    Mutant("who is set aside is merged on", "server/moments.py",
           "return statistics if agent_id in observed.aside else merge", "return merge", MOMENTS),
    Mutant("a revoked agent's moments stay", "server/fold.py",
           "merged = moments.forget(observed, state.statistics.get(name), event.agent_id, rule.aggregator.robust)",
           "merged = state.statistics.get(name)", MOMENTS),
    # Rounds.
    Mutant("fedpg sums", "server/aggregators.py", "total /= len(vectors)", "pass", ROUNDS),
    Mutant("fedpg adds in the order of arrival", "server/aggregators.py",
           "reports = sorted(memory.kept, key=lambda given: given.agent)", "reports = list(memory.kept)", ROUNDS),
    Mutant("a late report joins the next round", "server/aggregators.py",
           "if given.version < here.iteration:", "if False:", ROUNDS),
    Mutant("a round waits for who has left", "server/fold.py",
           "return _look_again(rule, state)\n", "return Outcome([], [])\n", ROUNDS),
    Mutant("every round waits for who missed one", "server/fold.py",
           "state.late = set(state.outstanding)", "pass", ROUNDS),
    Mutant("who answers again in an open round counts twice", "server/aggregators.py",
           " if kept.agent != given.agent)", ")", AGGREGATORS),
    Mutant("the first that comes back closes the round", "server/fold.py", " + len(state.absent)", "", AGGREGATORS),
    Mutant("a deadline waits for who never came back", "server/fold.py",
           "        state.absent.clear()\n", "", AGGREGATORS),
    Mutant("what is dropped is no sample", "server/fold.py",
           "state.unused += 1\n        state.samples += report.stats.steps", "state.unused += 1", AGGREGATORS),
    Mutant("a vector of an agent outlives it", "server/fold.py",
           "    memory.slots.pop(agent_id, None)\n", "", AGGREGATORS),
    Mutant("parameters are added as a step is", "server/kernels.py",
           "weight * (np.float64(values[index]) - theta[index])", "weight * np.float64(values[index])", AGGREGATORS),
    Mutant("scalars have no bounds", "server/admission.py",
           "if not scalar.low <= given[scalar.name] <= scalar.high:", "if False:", AGGREGATORS),
    Mutant("a checkpoint forgets the agents' vectors", "server/state.py",
           "{}), slots, kept)", "{}), {}, kept)",
           AGGREGATORS),
    # Problems.
    Mutant("all agents share a stream", "problems/problem.py",
           'stream(self.seed, "agent", agent_id)', 'stream(self.seed, "agent")', PROBLEMS),
    Mutant("a block of draws is used again", "problems/problem.py",
           "state, used = self._refill(thaw(state[\"stream\"])), 0", "used = 0", PROBLEMS),
    Mutant("the score is not divided by sigma", "problems/bandits.py",
           "scale * noise / SIGMA * reward", "scale * noise * reward", PROBLEMS),
    # Time.
    Mutant("ties break on the highest agent", "engine/virtual.py",
           "takes = round(min(seconds * NANOSECONDS, _BEYOND)) or 1",
           "takes = (round(min(seconds * NANOSECONDS, _BEYOND)) or 1) - agent_id", TIME),
    Mutant("who leaves may finish first", "engine/virtual.py", "LEAVE = 0", "LEAVE = 3", TIME),
    Mutant("one draw of seconds per agent", "engine/timing.py",
           'stream(self.seed, "timing", agent_id, n)', 'stream(self.seed, "timing", agent_id)', TIME),
    Mutant("two stragglers", "engine/timing.py",
           "(fastest,) * (config.agents - 1) + (fastest * config.timing.spread,)",
           "((fastest,) * (config.agents - 2) + (fastest * config.timing.spread,) * 2)[:config.agents]", TIME),
    # The record and its return.
    Mutant("a dropped journal entry", "engine/federation.py",
           "            self.recorder.journal.append(admitted, seconds)",
           "            if self.server.gradients != 20:\n"
           "                self.recorder.journal.append(admitted, seconds)",
           f"{BITS} replay_and"),
    Mutant("the journal is written after the event is applied", "engine/federation.py",
           "        if self.recorder is not None:\n            self.recorder.journal.append(admitted, seconds)\n"
           "        self.server, outcome = apply(self.rule, self.server, admitted, given)\n",
           "        self.server, outcome = apply(self.rule, self.server, admitted, given)\n"
           "        if self.recorder is not None:\n            self.recorder.journal.append(admitted, seconds)\n",
           f"{BITS} journal"),
    Mutant("a checkpoint has agents from after their work", "engine/virtual.py",
           '"agents": stack_states(self.states)',
           '"agents": stack_states([self.workload.work(s, self.tasks[i])[0] if i in self.tasks else s '
           "for i, s in enumerate(self.states)])",
           f"{BITS} interrupted"),
    Mutant("a checkpoint forgets how many tasks were handed out", "engine/virtual.py",
           '"handed_out": np.array(self.handed_out, np.int64)', '"handed_out": np.zeros(self.agents, np.int64)',
           f"{BITS} interrupted"),
    Mutant("run.db is not rewound", "record/recorder.py",
           "self.database.rewind(at.gradients, at.sequence, at.reached)", "pass", f"{BITS} crashed"),
    Mutant("an interruption forgets the newest returns", "runs/session.py",
           "        self.goals.note(arrivals)  # first: what an interruption stores must know of them\n",
           "        self.interruption.check()\n        self.goals.note(arrivals)\n",
           f"{BITS} forgets"),
    Mutant("replay compares a theta with itself", "runs/replay.py",
           "_sha(recorded.theta), _sha(server.theta))", "_sha(recorded.theta), _sha(recorded.theta))",
           f"{BITS} damaged"),
    Mutant("a worker's result goes to another agent", "engine/crew.py",
           "result = self._done.pop(job.key)", "result = self._done.pop(next(iter(self._done)))",
           f"{BITS} workers_change"),
    Mutant("what an agent says of its failure is lost on the way from a worker", "engine/crew.py",
           "next(kinds, AfedpgError), cause)", "RuntimeError, cause)",
           f"{BITS} kills_every"),
    Mutant("the lookahead is evaluated", "runs/session.py",
           "return Evaluated(server.theta.astype(np.float32)", "return Evaluated(server.theta_lookahead",
           f"{API} evaluated"),
    Mutant("the first of equally good thetas is kept", "runs/best.py",
           "best.mean > new.mean", "best.mean >= new.mean", f"{BEST} equally"),
    Mutant("the best theta is not in the checkpoint", "runs/session.py",
           '"best": None if self.best is None else self.best.to_tree()', '"best": None', f"{BEST} killed"),
    Mutant("the second look plays the first one's episodes", "runs/session.py",
           ', "second look")', ")", f"{BEST} second_look"),
    Mutant("a finished run is judged twice", "runs/session.py",
           "if new:\n            self.goals", "if True:\n            self.goals", f"{BEST} twice"),
    Mutant("an evaluation at an end counts for a longer run", "runs/session.py",
           "self._checkpoint(memory)\n            self.fed", "self._checkpoint()\n            self.fed",
           f"{EXTEND} none"),
    Mutant("an evaluation at an end that failed counts for a longer run", "runs/session.py",
           "self._checkpoint(memory)\n        except", "self._checkpoint()\n        except", f"{EXTEND} failed"),
    Mutant("a run that is not kept copies its callbacks' memory", "runs/session.py",
           "if self.federation.recorder is not None:\n                memory", "if True:\n                memory",
           f"{CALLBACKS} not_kept"),
    Mutant("what no checkpoint can hold is told without the way on", "runs/session.py",
           "return error if isinstance(error, BrokenPart) else broken", "raise",
           "tests/parts/test_broken_estimators.py no_checkpoint"),
    Mutant("the last theta is loaded unless asked otherwise", "export/policy_file.py",
           'which != "last" and best.is_file()', 'which == "best"', f"{BEST} default"),
    Mutant("a callback's memory is lost with the process", "runs/session.py",
           '"callbacks": self.watchers.to_tree()', '"callbacks": {}', f"{CALLBACKS} killed"),
    Mutant("nobody listens to a callback's answer", "runs/session.py",
           "self.stopped = self.watchers.stopped or ", "self.stopped = ", f"{CALLBACKS} is_ended"),
    Mutant("an evaluation after the end ended the run", "runs/session.py",
           "stopped=self.stopped,", "stopped=self.watchers.stopped or self.stopped,", f"{CALLBACKS} after_the_end"),
    Mutant("a callback remembers the run before", "runs/callbacks.py",
           "                callback.forget()\n", "                pass\n", f"{CALLBACKS} several_runs"),
    Mutant("a callback forgets before it is made", "runs/callbacks.py",
           "self.patience, self.min_delta, self.threshold = patience, min_delta, threshold\n        self._clear()",
           "self.patience, self.min_delta, self.threshold = patience, min_delta, threshold\n        self.forget()",
           f"{CALLBACKS} forgets_more"),
    Mutant("callbacks write into the server's theta", "runs/callbacks.py",
           "return self._theta.copy()", "return self._theta", f"{CALLBACKS} belongs"),
    Mutant("0 ends a run as False does", "runs/callbacks.py",
           "isinstance(answer, (bool, np.bool)) and not answer", "answer is not None and not answer",
           f"{CALLBACKS} false_alone"),
    Mutant("what is as good as before counts as better", "runs/callbacks.py",
           "event.mean > self._best + self.min_delta", "event.mean > self._best", f"{CALLBACKS} patience"),
    Mutant("the journal passes by the best theta too late", "runs/live_session.py",
           "server.gradients == wanted.gradients", "server.gradients == wanted.gradients + 1",
           "tests/network/test_live_evaluations.py best_theta"),
    Mutant("an extended run forgets how it began", "server/schedules.py",
           "if iteration < step:", "if iteration < 0:", EXTEND),
    Mutant("agents forget how an extended run began", "agent/work.py",
           "if version < step), 0)", "if version < 0), 0)", f"{EXTEND} environments"),
    Mutant("agents forget what an extended run's steps were made of", "agent/work.py",
           "shorter(self._config, self._contributions)", "shorter(self._config, 1)", f"{EXTEND} several_contributions"),
    Mutant("an estimator's rates fall over contributions", "agent/work.py",
           "agent.horizon or server_steps(config, contributions)", "agent.horizon or config.gradients",
           f"{LATE} whatever_these"),
    Mutant("an estimator's rates fall over contributions in workers", "runs/virtual.py",
           "own.workload(config, federation.rule)", "own.workload(config)", f"{LATE} so_they_do"),
    Mutant("an estimator's rates fall over contributions in a federation", "transport/grpc/terms.py",
           "config.agent.horizon or server_steps(config, contributions)", "config.agent.horizon or config.gradients",
           f"{LATE} so_they_do"),
    Mutant("an estimator's rates fall over contributions on Ray", "runs/ray.py",
           "contributions=rule.contributions(parts.config.agents)", "contributions=1",
           "tests/cluster/test_ray_engine.py rates"),
    Mutant("edited iterations pass for an extension", "record/agreement.py",
           'return grows and lengths[0] == then.get("iterations") and', "return grows and",
           "tests/engine/test_edited_settings.py iterations"),
    Mutant("another task keeps the arguments of the run's", "runs/evaluate.py",
           '{"env_kwargs": self.env_kwargs or {}}', '{"env_kwargs": config.agent.env_kwargs}',
           "tests/agent/test_elsewhere.py other"),
    Mutant("a setting that train's types do not know", "runs/keywords.py",
           "    keep_reports: bool\n", "", KEYWORDS),
    Mutant("names that are not loaded yet are not listed", "__init__.py", "{*__all__, *(", "{*(", KEYWORDS),
    Mutant("an environment that forgets its seed is called deterministic", "runs/check.py",
           "deterministic=not changes", "deterministic=True", f"{CHECK} otherwise"),
    Mutant("own environments know no limit that is set", "sampling/environments.py",
           "TimeLimit(env, limit) if limit else env", "TimeLimit(env, limit) if limit < 0 else env",
           f"{ENVIRONMENTS} environments_of_ones_own"),
    Mutant("compiled numbers are used where they round otherwise", "sampling/native/cart_pole.py",
           "return _difference(kind) or Cart(", "return Cart(", "tests/native/test_native_cart_pole.py rounded"),
    Mutant("a compiled cart stays where it was", "sampling/native/cart_pole.py",
           "        body.move(state)\n", "", "tests/native/test_native_cart_pole.py rollouts_and_states"),
    Mutant("compiled liars are paid as the honest are", "sampling/native/cart_pole.py",
           "reward=factor * found.reward,", "reward=found.reward,", "tests/native/test_native_cart_pole.py world"),
    Mutant("a liar's noise starts anew with every rollout", "sampling/native/cart_pole.py",
           "part[last : last + 1] for part", "part[:1] for part", "tests/native/test_native_cart_pole.py world"),
    Mutant("a task without a time limit is no warning", "runs/check.py",
           "    if limit is None and", "    if limit == 0 and", f"{CHECK} people"),
    Mutant("a picture is what the environment painted last", "sampling/normalizer.py",
           "return raw.copy()", "return raw", f"{IMAGES} paints"),
    Mutant("the pictures of a stack are mixed", "policy/image.py",
           "() if first else (0, 3, 1, 2)", "() if first else (0, 3, 2, 1)", f"{IMAGES} side_by_side"),
    Mutant("a search uses the seeds that it is judged on", "runs/tune.py",
           "SEEDS = (100, 101, 102)", "SEEDS = (0, 1, 2)", f"{TUNE} seeds"),
    Mutant("a search forgets that a trial was cut short", "runs/tune.py",
           "            if watch.cut:\n", "            if watch.cut and number:\n", f"{TUNE} median"),
    Mutant("every choice is drawn by the first one's logits", "policy/forward.py",
           "_draw(logits[start : start + choices[choice]], generator)", "_draw(logits[: choices[choice]], generator)",
           f"{CHOICES} drawn"),
    Mutant("several choices have the first one's entropy", "policy/mlp.py",
           "sum_of(-(log_p.exp() * log_p).sum(1) for log_p in logs)", "-(logs[0].exp() * logs[0]).sum(1)",
           f"{CHOICES} entropy or bernoulli"),
    Mutant("own timing models forget who is silent", "engine/timing.py",
           "    if chosen.silent:\n", "    if chosen.silent and own is None:\n", f"{API} silence"),
    Mutant("a nested state.json is nobody's business", "record/checkpoint.py",
           "except RecursionError as error:", "except ZeroDivisionError as error:",
           "tests/record/test_checkpoint.py whatever"),
    Mutant("edited settings are taken as they are", "record/agreement.py",
           "if name not in _MAY_CHANGE:", "if False:", "tests/engine/test_edited_settings.py named"),
    Mutant("a run folder is a run before it says where it listens", "record/folder.py",
           '{**files, "run.toml": tomli_w.dumps(document)}', '{"run.toml": tomli_w.dumps(document), **files}',
           "tests/record/test_folder.py run_toml"),
    Mutant("a refused extension is written down", "runs/extend.py",
           "check_agreement(folder, tree, lambda text: None)", "pass", "tests/engine/test_extend.py refused_resume"),
    Mutant("of a seed the first folder by name counts", "experiments/comparison.py",
           'run.state != "finished", -run.gradients, ', "", "tests/cli/test_compare.py furthest"),
    Mutant("interrupted seeds begin again with other settings", "commands/train.py",
           " and open_run(out).config() == config", "", "tests/cli/test_commands.py seeds"),
    Mutant("a run folder is taken before its lock is", "record/lock.py",
           "while not _try_lock(self._handle, fcntl.LOCK_EX):", "while False:",
           "tests/record/test_folder.py processes"),
    Mutant("what came into a folder before its lock was there is not seen", "record/folder.py",
           "if not _is_unfinished(path, texts):\n                lock.release()",
           "if False:\n                lock.release()", "tests/record/test_folder.py over_before"),
    # Parts of one's own.
    Mutant("a changed default is not noticed", "runs/parts.py",
           "if made.get(key) != values.get(key):", "if False:", VALUES),
    Mutant("defaults are not stored", "runs/parts.py", ", *value_entries(config)))", "))", f"{VALUES} another"),
    Mutant("fields that nobody can set are taken", "runs/parts.py",
           "        parts.check_fields(kind, name, parts.load(kind, file, name))\n", "", f"{VALUES} without"),
    Mutant("a forgotten decorator is noticed in mid-run", "parts.py",
           "        check_decorated(kind, factory)\n", "        pass\n", f"{VALUES} decorator"),
    Mutant("the same of an object", "runs/parts.py",
           "        check_decorated(kind, part if isinstance(part, type) else type(part))\n", "        pass\n",
           f"{VALUES} decorator"),
    Mutant("an aggregator writes to what it is given", "server/guards.py",
           "Given(given.report, read_only(given.vector), given.norm)", "given", f"{BROKEN} none"),
    Mutant("a step that is not finite is the agents' fault", "server/guards.py",
           "if not _is_finite(new.factor) or not math.isfinite(new.factor * length):", "if False:", f"{RULES} step"),
    Mutant("a transform in a chain is not held to anything", "server/guards.py",
           "held = (is_own(part) or isinstance(part, Chain) for", "held = (False for", f"{RULES} chain"),
    Mutant("a rule's fields are looked at in mid-run", "server/rules.py",
           "if not callable(function):", "if False:", f"{RULES} field"),
    Mutant("a rule looks in vain for an aggregator's scalar", "server/guards.py",
           "if missing := sent.keys() - given.keys():", "if missing := set():", f"{BROKEN} scalars"),
    Mutant("agents wait for ever", "server/guards.py",
           "if self.waits and type(inner).changed is Aggregator.changed:", "if False:", f"{BROKEN} declaration"),
    Mutant("a rule writes to theta", "server/guards.py",
           "at if at.theta is None else at._replace(theta=read_only(at.theta))", "at", f"{RULES} step"),
    Mutant("a guard believes the length that it is told", "server/guards.py",
           "    return norm(vector)", "    return 1.0", f"{BROKEN} none"),
    Mutant("an estimator writes to theta and to its state", "agent/estimators/checks.py",
           "if is_own(estimator):", "if False:", f"{ESTIMATORS} writes"),
    Mutant("what an agent remembers is written over by the next rollout", "agent/estimators/checks.py",
           "array if array.base is None else array.copy()", "array", f"{ESTIMATORS} keeps"),
    Mutant("a guard loses the factor", "server/guards.py",
           "return Direction(new.vector, new.factor, length)", "return Direction(new.vector, 1.0, length)",
           "tests/server/test_guards.py"),
    Mutant("a kept report may vanish unsaid", "server/guards.py",
           "if not known <= counted | kept and", "if False and", f"{BROKEN} kept_report"),
    Mutant("a report is used and stays kept", "server/guards.py", "if counted & kept:", "if False:", f"{BROKEN} twice"),
    Mutant("a report is used again", "server/guards.py", "if not counted <= known:", "if False:", f"{BROKEN} twice"),
    Mutant("an agent with a broken part is started again", "runs/local.py",
           "if (failure := agent.failure()) is not None:", "if False:", "tests/network/test_local_engine.py broken"),
    Mutant("agents of the local engine are all honest", "runs/local.py",
           "lies = replace(agreed, attack=config.attack, attackers=config.attackers)", "lies = agreed",
           "tests/network/test_local_engine.py attackers"),
    Mutant("an estimator overwrites the library's arrays", "agent/estimators/checks.py",
           "if key in RESERVED or key.startswith(RESERVED_STARTS):", "if False:", ESTIMATORS),
    Mutant("a tuple without its comma is taken", "own_parts.py",
           "if isinstance(given, of) or not isinstance(given, tuple | list):", "if False:",
           f"{ESTIMATORS} declaration"),
    Mutant("an estimator's check fails with a traceback", "agent/work.py",
           "answer_of(self.estimator, self.estimator.check, self._tools)", "self.estimator.check(self._tools)",
           f"{ESTIMATORS} declaration"),
    Mutant("a group of another length is sent", "agent/estimators/checks.py",
           "if np.shape(vector[group.name]) != (group.size,):", "if False:", ESTIMATORS),
    Mutant("a worker does not say that a part is broken", "engine/crew.py",
           "(ConfigError, FailedPart, BrokenPart)", "(ConfigError,)", f"{ESTIMATORS} worker"),
    # What compiled code is given.
    Mutant("act takes any shape", "export/policy_file.py",
           "if _batch_size(self.observation_space, observation) is not None:", "if False:", f"{POLICY} act_takes"),
    Mutant("statistics of any length scale", "sampling/normalizer.py",
           "if not mean.shape == m2.shape == (size,):", "if False:", f"{POLICY} compiled"),
    Mutant("an actor reads as far as its layers say", "policy/acting.py",
           "if observation.size != self._inputs:", "if False:", f"{POLICY} compiled"),
    Mutant("numpy stretches tensors of a policy file", "params.py",
           "if tensors[name].shape != shape:", "if False:", f"{POLICY} fit_together"),
    # What a server sends.
    Mutant("agents take statistics of any length", "transport/grpc/wire.py",
           "if not mean.size == m2.size == quantities:", "if False:", f"{LIAR} could_not"),
    Mutant("agents take a theta that is not finite", "transport/grpc/wire.py",
           "if not np.isfinite(theta).all():", "if False:", f"{LIAR} could_not"),
    Mutant("an agent comes back to a server that lies", "transport/grpc/client.py",
           "except Damaged as error:", "except Refused as error:", f"{LIAR} for_good"),
    Mutant("the last of two statistics of one name counts", "transport/grpc/wire.py",
           "if len(contents) != len(moments):", "if False:", f"{LIAR} come_once"),
    Mutant("a server may name a file of its agents", "transport/grpc/terms.py",
           "if parse(kind, text).file:\n            raise", "if False:\n            raise", f"{LIAR} no_file"),
    Mutant("the first to come back has a round for itself", "engine/live.py",
           "return waited and not server.absent", "return waited", "tests/network/test_live_engine.py started_again"),
    Mutant("settings have no upper bounds", "validation.py",
           "if inside and (at_most is None or number <= at_most):", "if inside:", f"{LIAR} no_agent"),
    Mutant("a setting is forgotten among the terms", "config.py",
           "at_least=0, at_most=1, term=True", "at_least=0, at_most=1", f"{LIAR} no_agent"),
    # What a policy of one's own answers.
    Mutant("log-probabilities may be a column", "policy/own.py",
           "if not isinstance(found, Tensor) or found.shape != (n,):", "if False:", f"{POLICIES} one_row"),
    Mutant("a policy of one's own drops what it likes", "policy/own.py",
           "            part.training = False", "            pass", f"{POLICIES} dropout"),
    Mutant("a policy's own train decides in ONNX", "policy/own.py",
           "        self.training = mode\n        return self", "        return super().train(mode)",
           "tests/agent/test_onnx.py train_is_its_own"),
    Mutant("an action may lie anywhere", "policy/actions.py",
           'and found.device.type == "cpu"', "", f"{POLICIES} names_the_policy"),
    Mutant("an own policy's index is anything", "policy/actions.py",
           "((row >= 0) & (row < self.choices)).all()", "True", f"{POLICIES} names_the_policy"),
    Mutant("an own policy's index is cut to a whole number", "policy/actions.py",
           "if found.is_floating_point() != (self.choices is None):", "if False:", f"{POLICIES} names_the_policy"),
    Mutant("statistics of training are no agent's", "policy/own.py",
           "for name, part in module.named_modules():", "for name, part in ():", f"{POLICIES} what_is_no_policy"),
    Mutant("parameters that are not to be trained are", "policy/own.py",
           "if not parameter.requires_grad:", "if False:", f"{POLICIES} what_is_no_policy"),
    Mutant("another writing of an agent's number is taken", "validation.py",
           "return number if str(number) == name else None", "return number", f"{ENVIRONMENTS} named_as"),
    Mutant("digits of other scripts are numbers", "options.py", "text.isascii() and ", "", f"{EXTEND} makes_no_sense"),
    Mutant("two agents share an environment", "sampling/environments.py",
           "if self._made.get(id(inner)) is inner:", "if False:", f"{ENVIRONMENTS} one_environment"),
    Mutant("no actions are of another type", "export/policy_file.py",
           "np.array(actions, space.dtype)", "np.array(actions)", "tests/agent/test_policy_file.py no_observations"),
    Mutant("agents are named twice", "validation.py", "_require(count == 1,", "_require(True,", INPUT),
    # What an environment answers.
    Mutant("words and arrays are rewards", "sampling/answers.py",
           "if not isinstance(reward, (str, bytes)) and np.shape(reward) == ():", "if True:",
           f"{ANSWERS} reward"),
    Mutant("a category is taken for another", "sampling/spaces.py",
           "    _check_range(space, observation)\n    return np.asarray(spaces",
           "    return np.asarray(spaces", f"{ANSWERS} category"),
    Mutant("what is no attack is taken for one", "agent/attacks/shipped.py",
           "if not isinstance(attack, Attack):", "if False:", f"{LIES} no_attack"),
    Mutant("a process that may have no children starts some", "engine/spawn.py",
           "return bool(current_process().daemon)", "return False",
           "tests/engine/test_scripts.py children"),
    Mutant("a pickled policy begins its stream anew", "export/policy_file.py",
           ', {"_generator": self._generator}', ", {}", "tests/engine/test_result.py pickled"),
    Mutant("log-probabilities that are not finite are swallowed", "agent/estimators/clipped.py",
           "if not np.isfinite(log_prob).all():", "if False:", f"{POLICIES} not_finite"),
    Mutant("what is no number of seconds is taken", "engine/timing.py",
           "if not isinstance(number, Real):", "if False:", "tests/engine/test_time.py broken"),
    Mutant("a preset's estimator replaces another method's own", "runs/parts.py",
           'base = fitted(base, settings.get("method"))\n', "pass\n", f"{PRESETS} stays_itself"),
    Mutant("figures take a preset's estimator for a3c's", "experiments/jobs.py",
           "dict(fitted(load_preset(task, name), method.known))", "load_preset(task, name)", f"{PRESETS} a3c_itself"),
    Mutant("a search looks for a rate among lengths", "runs/tune.py",
           "etas = ETAS.get(config.method, _LENGTHS)", "etas = _LENGTHS", f"{TUNE} is_read"),
    Mutant("a search draws an eta below its floor", "runs/tune.py",
           "max(etas.low, config.schedule.eta_floor)", "etas.low", f"{TUNE} is_read"),
    Mutant("what was found does not say for which method", "runs/tune.py",
           ', "method": self._method}', "}", f"{TUNE} judge_nothing"),
    Mutant("what a model does not read is taken", "validation.py",
           "_require(reads, f", "_require(True, f", f"{INPUT} no_sense or nothing_reads"),
    Mutant("an alpha that is a function counts for nothing", "validation.py",
           "{*named, *own}", "{*named}", f"{INPUT} nothing_reads"),
    Mutant("a segment too short is told as steps", "agent/work.py",
           '"--segment 0 with ") if config.agent.segment', '"") if False', "tests/agent/test_work.py what_helps"),
    Mutant("a colon is left over", "parts.py", ' or left_over:', ":", f"{INPUT} no_sense"),
    Mutant("figures take a file for any task", "experiments/jobs.py",
           "fitted(base_of(task, preset)", "fitted(load_preset(task, preset)", f"{PRESETS} in_a_file"),
    Mutant("a3c has the rate of the others", "config.py", ', "eta": 7e-4}', "}", f"{PRESETS} its_own_rate"),
    Mutant("a length's floor stays where its eta goes", "preset.py",
           '{"eta_floor"} if "eta" in apart', '{"eta_floor"} if False', f"{PRESETS} its_own_rate"),
    Mutant("settings of a preset count as named", "runs/parts.py",
           "named = tuple(settings)", "named = (*settings, *base)", f"{INPUT} nothing_reads"),
    Mutant("any numbers are a picture", "sampling/evaluate.py",
           "frame.dtype != np.uint8 or ", "", "tests/agent/test_evaluate.py no_picture"),
    Mutant("evaluation takes observations that are not finite", "sampling/evaluate.py",
           "if not np.isfinite(observation).all():", "if False:", f"{ANSWERS} infinite"),
    Mutant("agents are compared when their turn comes", "runs/parts.py",
           "    workload.check()\n", "", f"{ENVIRONMENTS} before_anything"),
    Mutant("an evaluation's episode may never end", "sampling/evaluate.py",
           "not ended and length + 1 < longest", "not ended and length < 300", "tests/agent/test_evaluate.py cut"),
    Mutant("a compiled episode samples where it is to act by its mean", "sampling/native/closed_loop.py",
           "if acting.deterministic:", "if False:", "tests/native/test_native_evaluation.py gymnasium and Hopper-v4"),
    Mutant("compiled episodes of a task without a time limit", "sampling/native/compiled_sampler.py",
           "isinstance(body, str) or body.limit > MOST_STEPS", "isinstance(body, str)",
           "tests/native/test_native_evaluation.py does_not_know"),
    Mutant("who asks after the run sees its own episodes again", "runs/evaluate.py",
           ', "verdict")\n\n\ndef film', ')\n\n\ndef film',
           "tests/agent/test_evaluate.py fresh"),
    Mutant("the return of the first gradients", "record/returns.py",
           "AND gradient > ?", "AND gradient <= ?", "tests/record/test_returns.py"),
    Mutant("a short run's return of 5% alone", "record/returns.py",
           "(min(LATE * newest, first[0] - 1),)", "(LATE * newest,)", "tests/record/test_returns.py"),
    Mutant("progress keeps the returns of the whole run", "record/returns.py",
           "            rows.popleft()", "            break", "tests/record/test_returns.py"),
    Mutant("a gradient that waits in its round is counted", "engine/members.py",
           "        self.compute_seconds += weight * (seconds - self.compute_seconds)\n",
           "        self.compute_seconds += weight * (seconds - self.compute_seconds)\n        self.gradients += 1\n",
           "tests/network/test_live_engine.py were_applied"),
    Mutant("a killed server's agents go on from its last description", "engine/members.py",
           "        member.gradients, member.rejected, member.unused = applied, refused, unused", "        pass",
           "tests/network/test_live_engine.py were_applied"),
    Mutant("who never answered is done", "record/ending.py",
           'return "done" if gradients else "never answered"', 'return "done"',
           "tests/dashboard/test_follow.py who_is_late"),
    Mutant("an agent's return is drawn as another's", "dashboard/agent_returns.py",
           "column = order[np.searchsorted(self._agents, agents, sorter=order)]",
           "column = np.searchsorted(np.sort(self._agents), agents)", "tests/dashboard/test_agent_returns.py"),
    Mutant("merging agents' returns forgets how many there were", "dashboard/agent_returns.py",
           "np.add.reduceat(self._counts, starts)", "self._counts[starts]", "tests/dashboard/test_agent_returns.py"),
    Mutant("infinite settings break the page's JSON", "dashboard/catalog.py",
           "json.dumps(value, default=str)", "value", "tests/dashboard/test_settings.py"),
    # The network.
    Mutant("a refusal's reason is shown as it came", "transport/grpc/wire.py",
           "message.refusal.reason = of_peer(message.refusal.reason)", "pass", f"{TEXT} every_text"),
    Mutant("what was refused is quoted as it came", "transport/grpc/wire.py",
           "super().__init__(of_peer(text))", "super().__init__(text)", f"{TEXT} every_text"),
    Mutant("repeats are never forgotten", "transport/grpc/rates.py",
           "if now - at < self.forget", "if True", f"{TEXT} repeats"),
    Mutant("building counts as silence of the server", "transport/grpc/client.py",
           "self.contact = time.monotonic()  # it has", "# it has", f"{MISFITS} builds"),
    Mutant("a welcome alone makes an agent hurry back", "transport/grpc/connection.py",
           "if self._answered:", "if True:", f"{MISFITS} pauses"),
    Mutant("a line that breaks looks like a wrong certificate", "transport/grpc/probe.py",
           "if not fault:", "if False:", f"{MISFITS} breaks"),
    Mutant("who hangs up before a handshake is a misfit", "transport/grpc/probe.py",
           "return None if shaken else \"\"", "return None", f"{MISFITS} hangs_up"),
    Mutant("silent streams are never given up", "transport/grpc/service.py",
           "self._silent[caller] -= 1", "pass", f"{STRANGERS} few"),
    Mutant("connections take every file", "transport/grpc/descriptors.py",
           "- _open_files() - RESERVE", "", f"{STRANGERS} asks_for"),
    Mutant("a restart is at the beginning of time", "runs/live_session.py",
           "federation.apply(Restart(), seconds)", "federation.apply(Restart(), refolded.seconds)",
           "tests/network/test_live_resume.py clock"),
    Mutant("an agent's key may lie beside its folder", "transport/grpc/roster.py",
           r'(?!\.{1,2}\Z)', "", f"{INPUT} certificates"),
    Mutant("a loss is passed over in silence", "record/loss.py", "if not accept:", "if False:", f"{LOST} tail"),
    Mutant("run.db tells of events that are not on the disk", "record/recorder.py",
           "        self.journal.sync()\n        return", "        return", f"{LOST} power_cut_takes_no_event"),
    Mutant("rows that are gone are not missed", "record/loss.py",
           "if missing > max(told.given_up, never):", "if False:", f"{LOST} virtual_run_without_its_rows"),
    Mutant("every run folder may import what it names", "record/trust.py",
           "place is not None and place not in known", "False", "tests/cli/test_trust.py somebody"),
    # The command line.
    Mutant("alpha may be zero", "validation.py", "number > above", "number >= above", INPUT),
    Mutant("a run folder that exists is written over", "record/folder.py",
           "return all(entry.name in left for entry in path.iterdir())", "return True",
           f"{INPUT} exists"),
    # The native kernels.
    Mutant("the clipped side has a slope", "agent/compute/objectives.py",
           "memory.weigh[r] = 0.0 if flat else ratio * advantage / count",
           "memory.weigh[r] = ratio * advantage / count", STEPS),
    Mutant("entropy is a penalty", "agent/compute/objectives.py",
           "rows, given.entropy / count)", "rows, -given.entropy / count)", STEPS),
    Mutant("Adam's start is not corrected for", "agent/compute/elementwise.py",
           "np.float32(rate / (1 - decay**first_steps))", "np.float32(rate)", STEPS),
    Mutant("the gradient's norm has no bound", "agent/compute/local_steps.py",
           "if length > how.max_norm:", "if length < 0:", STEPS),
    Mutant("the policy goes on however far away it is", "agent/compute/local_steps.py",
           "stopped = max_kl > 0 and kl > max_kl", "stopped = False", STEPS),
    Mutant("weights are transposed but for the last layer's", "agent/compute/network.py",
           "for layer in range(1, shape.sizes.size - 1):", "for layer in range(1, shape.sizes.size - 2):", STEPS),
    Mutant("the Fisher information of log_std is 1", "agent/compute/objectives.py",
           "= 2.0 * memory.other[shape.log_std_at + i]", "= memory.other[shape.log_std_at + i] * 1.0",
           f"{COMPUTE} fisher"),
    Mutant("a block of rows too few", "agent/compute/products.py",
           "if m + 2 <= rows:", "if m + 3 <= rows:", f"{COMPUTE} fit or wide or values"),
    Mutant("a server makes the sampler that it never uses", "agent/work.py",
           'self._works = config.engine != "grpc" or', "self._works = True or",
           "tests/compute/test_imports.py whatever"),
    Mutant("servers and agents keep the compiler in memory", "compiled.py",
           'numba.core.event.register("numba:compiler_lock", _ReleaseCompiler())', "pass",
           "tests/compute/test_imports.py lets_go"),
    Mutant("the compiler is let go of while it is in use", "compiled.py",
           "idle = self._count == 0", "idle = True", "tests/compute/test_imports.py lets_go"),
    Mutant("every compiled part says that it compiles", "compiled.py",
           "@cache\ndef _say_compiling", "def _say_compiling", "tests/native/test_native_cache.py one_line"),
    Mutant("compiled code is loaded together with what compiles it", "compiled.py",
           "if found is None else found", "if True else found", "tests/native/test_native_cache.py kernels"),
    Mutant("a fast caller makes an exact function fast", "compiled.py",
           '"error_model": "numpy", "fastmath": False}', '"error_model": "numpy"}', f"{KERNELS} fast_caller"),
    # Activation and mean.
    Mutant("tanh layers leave out what is negative", "policy/forward.py",
           "np.float32(-2 if network.tanh_layers else 0)", "np.float32(0)", f"{ACTIVATIONS} acts"),
    Mutant("every mean is squashed where actions are drawn", "policy/forward.py",
           "np.tanh(outputs[i]) if network.squashed else outputs[i]", "np.tanh(outputs[i])", f"{ACTIVATIONS} acts"),
    Mutant("every mean is squashed in torch", "policy/mlp.py",
           'torch.tanh(output) if self.mean == "tanh" else output\n        z =', "torch.tanh(output)\n        z =",
           f"{ACTIVATIONS} formula"),
    Mutant("the kernels do not hear of the activation", "agent/compute/choice.py",
           'policy.activation == "tanh", policy.mean', 'False, policy.mean', f"{ACTIVATIONS} kernels"),
    Mutant("every mean is squashed in ONNX", "export/onnx_file.py",
           'if file.policy["mean"] == "tanh" else output', "", "tests/agent/test_onnx.py activation"),
    Mutant("files without an activation are not read", "export/policy_file.py",
           "return USUAL | described if", "return described if", f"{POLICY} neither"),
    # The asynchronous PPO learner.
    Mutant("clipped: the policy's Adam counts the critic's steps", "agent/estimators/clipped.py",
           "[np.array([each.steps], np.float32) for each in (policy, value)]",
           "[np.array([value.steps], np.float32) for each in (policy, value)]",
           f"{CLIPPED} as_long"),
    Mutant("clipped: shared moments have no bound", "agent/estimators/clipped.py",
           "np.clip(here.moments[: zeros.size], 0, longest**2)", "here.moments[: zeros.size]",
           f"{CLIPPED} honest"),
    Mutant("clipped: the values' gradient is shortened to half its length", "agent/estimators/clipped.py",
           ", max_norm=2 * self.max_norm,", ",", f"{CLIPPED} alone"),
    Mutant("clipped: the first values see unscaled observations", "agent/work.py",
           "rollout = rescaled(rollout, new)", "pass", f"{CLIPPED} own_scaling"),
    Mutant("clipped: advantages are standardized whatever is said", "agent/estimators/clipped.py",
           "standardized(advantages) if tools.settings.scale_advantages else advantages", "standardized(advantages)",
           f"{CLIPPED} alone"),
    Mutant("clipped: the discount stays as it is", "agent/estimators/clipped.py",
           "self._gamma(tools, version)", "tools.settings.gamma", f"{CLIPPED} last_one"),
    Mutant("clipped: the discount goes on beyond the last one", "agent/estimators/clipped.py",
           "min(1.0, version / horizon)", "version / horizon", f"{CLIPPED} last_one"),
    Mutant("clipped: an episode goes on after every rollout", "agent/estimators/clipped.py",
           "goes_on = before > 0 and not (ended or rollout.restarted)", "goes_on = before > 0", f"{CLIPPED} joined"),
    Mutant("clipped: a rollout's end stays a cut", "agent/estimators/clipped.py",
           "goes_on = before > 0 and not (ended or rollout.restarted)", "goes_on = False", f"{CLIPPED} joined"),
    Mutant("clipped: the ratio is against the newest policy", "agent/estimators/clipped.py",
           'state["theta"] if self.late_fetch else here.policy', "here.policy", f"{CLIPPED} newest"),
    Mutant("clipped: fetched before, the ratio is against a policy of its own", "agent/estimators/clipped.py",
           'state["theta"] if self.late_fetch else here.policy', 'state.get("theta", 0 * here.policy)',
           f"{CLIPPED} fetched_before"),
    Mutant("clipped: values that are taken over are differences", "agent/estimators/clipped.py",
           'if self.values == "added" else value.theta', "if True else value.theta", f"{CLIPPED} taken_over"),
    Mutant("a step of any length is made", "server/fold.py",
           "min(1.0, group.longest / norm(vector))", "1.0", "tests/server/test_aggregators.py shortened"),
    Mutant("clipped: a fit that is not finite is sent", "agent/estimators/clipped.py",
           "(policy, value), past = learners, {}", "pass", f"{CLIPPED} finite"),
    Mutant("clipped: torch does not bound the gradient", "agent/compute/torch_steps.py",
           "how.max_norm / length if how.max_norm < length else 1.0", "1.0", f"{CLIPPED} alike"),
    Mutant("clipped: torch's policy goes on however far away", "agent/estimators/torch_ppo.py",
           "kl, 0 < max_kl < kl", "kl, False", f"{CLIPPED} alike"),
    Mutant("the discounted return begins anew with every rollout", "agent/scaling.py",
           "running = before\n", "running = 0.0\n", f"{CLIPPED} rewards"),
    Mutant("the discounted return outlives its episode", "agent/scaling.py",
           "            running = 0.0\n", "            pass\n", f"{CLIPPED} rewards"),
    Mutant("late fetch: an agent samples as if it had never seen anything", "agent/work.py",
           "_statistics_to_state(with_own(task.statistics, moments), _OF_TASK)",
           "_statistics_to_state(task.statistics, _OF_TASK)",
           f"{CLIPPED} second_rollout"),
    Mutant("late fetch: asked twice, two Tasks", "server/admission.py",
           'return "a Task is outstanding" if event.agent_id in state.outstanding else None', "return None",
           f"{REJECTION} fetch"),
    Mutant("late fetch: sampling takes no time", "engine/virtual.py",
           "self.pace[agent_id] * (1 - self.timing.update_share)", "0.0", f"{LATE} takes_the_agents_seconds"),
    Mutant("late fetch: the Task is the one of before the rollout", "engine/virtual.py",
           "self.timing.update_share if fetched else 1.0", "1.0", f"{LATE} takes_the_agents_seconds"),
    Mutant("average reward: falling is free", "agent/estimators/average.py",
           "joined.rewards - self.reset_cost / scale * joined.terminated", "joined.rewards",
           "tests/agent/test_average_reward.py"),
    Mutant("average reward: nothing comes after a termination", "agent/estimators/average.py",
           "np.append(values[1:], level)[joined.terminated]", "0.0", "tests/agent/test_average_reward.py recursion"),
    Mutant("natural: damping is forgotten", "agent/estimators/natural.py",
           "product(along) + damping * along", "product(along)", f"{NATURAL} dense"),
    Mutant("natural: steps of conjugate gradient are not conjugate", "agent/estimators/natural.py",
           "along = rest + square / before * along", "along = rest.copy()", f"{NATURAL} dense"),
    Mutant("natural: the length is of half the divergence", "agent/estimators/natural.py",
           "math.sqrt(2 * self.kl / gain)", "math.sqrt(self.kl / gain)", f"{NATURAL} divergence"),
]  # fmt: skip


@contextmanager
def copy_of(tree: Path) -> Iterator[Path]:
    """Times are kept, so that what numba has compiled is still valid."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        for part in ("src", "tests", "examples"):
            shutil.copytree(tree / part, folder / part)
        shutil.copy2(tree / "pyproject.toml", folder)
        yield folder


def run_tests(folder: Path, *arguments: str) -> tuple[bool, str]:
    """Whether they all pass, and the last they said."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--tb=no", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return False, "hung"
    if process.returncode not in (0, 1):  # neither passed nor failed: no test was run
        sys.exit(f"mutants: pytest {' '.join(arguments)} did not run:\n{said}")
    lines = [line for line in said.splitlines() if line.startswith("FAILED")] or said.splitlines()
    return process.returncode == 0, lines[-1]


def chosen_tests(tests: str) -> list[str]:
    file, _, words = tests.partition(" ")
    return [file, "-k", words] if words else [file]


def verdict(tree: Path, mutant: Mutant) -> tuple[str, str]:
    with copy_of(tree) as folder:
        file = folder / "src" / "afedpg" / mutant.file
        text = file.read_text()
        if text.count(mutant.old) != 1:
            return "NOT FOUND", f"{mutant.file} has its text {text.count(mutant.old)} times"
        file.write_text(text.replace(mutant.old, mutant.new))
        passed, last = run_tests(folder, *chosen_tests(mutant.tests))
        return ("SURVIVED" if passed else "killed"), last


def check_import(tree: Path) -> None:
    """It must be the copy that is tested, not what is installed."""
    command = [sys.executable, "-c", "import afedpg; print(afedpg.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
    if not Path(done.stdout.strip()).is_relative_to(tree):
        sys.exit(f"mutants: tests would import {done.stdout.strip()}, not the copy")


def check_unharmed(tree: Path, tests: str) -> None:
    """What fails without any mutation proves nothing."""
    passed, last = run_tests(tree, *chosen_tests(tests))
    if not passed:
        sys.exit(f"mutants: {tests} fails without any mutation: {last}")


def main() -> int:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    mutants = [mutant for mutant in MUTANTS if word in mutant.name]
    started, bad = time.monotonic(), 0
    with copy_of(ROOT) as tree, ThreadPoolExecutor(AT_ONCE) as pool:  # of one moment, whoever is editing meanwhile
        check_import(tree)
        for _ in pool.map(partial(check_unharmed, tree), sorted({mutant.tests for mutant in mutants})):
            pass
        for mutant, (state, last) in zip(mutants, pool.map(partial(verdict, tree), mutants), strict=True):
            bad += state != "killed"
            print(f"{state:9}  {mutant.name}  [{last.removeprefix('FAILED ').partition(' - ')[0]}]", flush=True)
    print(f"{len(mutants) - bad} of {len(mutants)} mutations killed in {time.monotonic() - started:.0f} s")
    return 1 if bad or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
