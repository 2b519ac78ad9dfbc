"""PPO for one agent as a textbook has it, in plain torch and float64: what `clipped` is tested by."""

from __future__ import annotations

import numpy as np
import torch

from afedpg.seeding import thaw


def close(found, right, start, part=1e-3):
    """Rounding may choose another side where a gradient is nearly zero, and Adam makes whole steps of that."""
    return np.linalg.norm(found - right) < part * np.linalg.norm(right - start)


class SlowPpo:
    """The same algorithm for one agent, step by step in float64, with a trajectory of its own."""

    def __init__(self, alone, epochs, minibatch, rate, clip, rollouts, gamma=0.99, lam=0.95, max_norm=0.5):
        sizes = alone.work.policy.sizes
        self.gaussian = alone.work.policy.gaussian
        self.policy, self.value = (torch.tensor(alone.part(name).astype(np.float64)) for name in ("policy", "value"))
        self.policy_sizes, self.value_sizes = sizes, (sizes[0], 16, 1)
        self.second = {"policy": torch.zeros_like(self.policy), "value": torch.zeros_like(self.value)}
        self.counts = {"policy": 0, "value": 0}
        self.shuffle = thaw(alone.state["clipped_stream"])
        self.epochs, self.minibatch, self.rate, self.clip, self.rollouts = epochs, minibatch, rate, clip, rollouts
        self.gamma, self.lam, self.max_norm = gamma, lam, max_norm
        self.scaled = alone.work._tools.settings.scale_advantages
        self.steps, self.first = [], True  # of the last rollouts, each step as a tuple

    def outputs(self, theta, sizes, x):
        at = 0
        for n in range(len(sizes) - 1):
            i, o = sizes[n], sizes[n + 1]
            x = x @ theta[at : at + i * o].view(i, o) + theta[at + i * o : at + i * o + o]
            x = torch.tanh(x) if n < len(sizes) - 2 else x
            at += i * o + o
        return x

    def log_prob(self, theta, x, a):
        outputs = self.outputs(theta, self.policy_sizes, x)
        if not self.gaussian:
            return torch.distributions.Categorical(logits=outputs).log_prob(a)
        return torch.distributions.Normal(outputs, theta[-self.policy_sizes[-1] :].exp()).log_prob(a).sum(1)

    def values(self, x):
        return self.outputs(self.value, self.value_sizes, torch.tensor(x, dtype=torch.float64))[..., 0]

    def fit(self, rollout):
        T = rollout.steps
        x, a = torch.tensor(rollout.observations, dtype=torch.float64), torch.tensor(rollout.actions)
        before = self.log_prob(self.policy, x, a)
        cuts = dict(zip(rollout.cut_steps.tolist(), rollout.cut_observations, strict=True))
        for t in range(T):
            reward = rollout.rewards[t] * rollout.reward_scale
            end = "terminated" if rollout.terminated[t] else "truncated" if rollout.truncated[t] else ""
            self.steps.append((x[t], a[t], reward, end, cuts.get(t), before[t]))
        self.steps = self.steps[-self.rollouts * T :]
        n = len(self.steps)
        here = [float(self.values(step[0].numpy())) for step in self.steps]
        advantages, running = np.zeros(n), 0.0
        for t in reversed(range(n)):
            _, _, reward, end, after, _ = self.steps[t]
            last = t == n - 1
            beyond = 0.0 if end == "terminated" else float(self.values(after)) if end or last else here[t + 1]
            running = 0.0 if end or last else running
            delta = reward / rollout.reward_scale + self.gamma * beyond - here[t]
            running = delta + self.gamma * self.lam * running
            advantages[t] = running
        targets = torch.tensor(advantages + here)
        A = torch.tensor((advantages - advantages.mean()) / advantages.std() if self.scaled else advantages)
        x, a, old = (torch.stack([step[i] for step in self.steps]) for i in (0, 1, 5))
        first = {"policy": torch.zeros_like(self.policy), "value": torch.zeros_like(self.value)}
        fresh = 0
        for _ in range(max(1, round(self.epochs * T / n))):
            order = self.shuffle.permutation(n)
            for rows in np.split(order, range(self.minibatch, n, self.minibatch)):
                fresh += 1
                theta = self.policy.clone().requires_grad_()
                ratio = (self.log_prob(theta, x[rows], a[rows]) - old[rows]).exp()
                loss = -torch.min(ratio * A[rows], ratio.clamp(1 - self.clip, 1 + self.clip) * A[rows]).mean()
                if not self.first:
                    self.policy = self.adam("policy", theta, loss, first, fresh)
                phi = self.value.clone().requires_grad_()
                error = self.outputs(phi, self.value_sizes, x[rows])[:, 0] - targets[rows]
                self.value = self.adam("value", phi, (error**2).mean() / 2, first, fresh)
        if self.first:
            self.first, self.steps = False, []

    def adam(self, name, theta, loss, first, fresh):
        gradient = torch.autograd.grad(loss, theta)[0]
        gradient = gradient * min(1.0, self.max_norm / float(gradient.norm()))
        self.counts[name] += 1
        first[name] = 0.9 * first[name] + 0.1 * gradient
        self.second[name] = 0.999 * self.second[name] + 0.001 * gradient**2
        m, v = first[name] / (1 - 0.9**fresh), self.second[name] / (1 - 0.999 ** self.counts[name])
        return theta.detach() - self.rate * m / (v.sqrt() + 1e-5)
