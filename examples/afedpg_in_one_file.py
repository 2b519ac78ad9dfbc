"""AFedPG in one file: the whole algorithm with numpy and Gymnasium, to be read from top to bottom.

Four agents of different speeds learn CartPole. Each samples with the parameters it was last given and sends one policy
gradient. The server applies every gradient the moment it arrives and answers that agent alone: nobody waits.
"""

import heapq
import math

import gymnasium
import numpy as np

OBSERVATIONS, HIDDEN, ACTIONS = 4, 32, 2
GAMMA, LAMBDA, RIDGE = 0.99, 0.95, 1e-2

# The policy: pi = softmax(relu(x W0 + b0) W1 + b1), with all parameters in one flat vector theta.


def unpack(theta):
    """theta -> W0 [obs, hidden], b0 [hidden], W1 [hidden, act], b1 [act]."""
    shapes = [(OBSERVATIONS, HIDDEN), (HIDDEN,), (HIDDEN, ACTIONS), (ACTIONS,)]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(theta, ends[:-1]), shapes, strict=True)]


def initial_theta(rng):
    """Small logits at the start, so that all actions begin about equally likely."""
    w0 = rng.normal(0, math.sqrt(2 / OBSERVATIONS), (OBSERVATIONS, HIDDEN))
    w1 = rng.normal(0, 0.01, (HIDDEN, ACTIONS))
    return np.concatenate([w0.ravel(), np.zeros(HIDDEN), w1.ravel(), np.zeros(ACTIONS)])


def probabilities(theta, x):
    """x [T, obs] -> pi [T, act], and the hidden layer [T, hidden]."""
    w0, b0, w1, b1 = unpack(theta)
    logits = (hidden := np.maximum(x @ w0 + b0, 0)) @ w1 + b1
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True), hidden


def policy_gradient(theta, x, taken, weights):
    """sum over t of w_t grad log pi(a_t | s_t): uphill, by backpropagation through the two layers."""
    pi, hidden = probabilities(theta, x)
    d_logits = (np.eye(ACTIONS)[taken] - pi) * weights[:, None]
    d_hidden = (d_logits @ unpack(theta)[2].T) * (hidden > 0)
    parts = [x.T @ d_hidden, d_hidden.sum(axis=0), hidden.T @ d_logits, d_logits.sum(axis=0)]
    return np.concatenate([part.ravel() for part in parts])


def norm(vector):
    return math.sqrt(np.sum(vector * vector))


# An agent (Algorithm 2 of the paper).


def features(x):
    """The value estimate is linear: V(s) = w . (s, s^2, 1)."""
    return np.concatenate([x, x * x, np.ones((len(x), 1))], axis=1)


def gae(rewards, values, following, ended, lambda_):
    """A_t = delta_t + gamma lambda A_{t+1} within an episode, delta_t = r_t + gamma V(s_{t+1}) - V(s_t)."""
    advantages, running = np.empty(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        running = 0.0 if ended[t] else running
        running = rewards[t] + GAMMA * following[t] - values[t] + GAMMA * lambda_ * running
        advantages[t] = running
    return advantages


class Agent:
    """Owns an environment and a value estimate; what it sees never leaves it. Episodes go on across rollouts."""

    def __init__(self, number, steps=512):
        self.env, self.steps, self.rng = gymnasium.make("CartPole-v1"), steps, np.random.default_rng([7, number])
        self.x, _ = self.env.reset(seed=number)
        self.w = np.zeros(2 * OBSERVATIONS + 1)
        self.episode_return, self.returns = 0.0, []

    def gradient(self, theta):
        """T steps with the policy of `theta`, then one gradient."""
        rows = []
        for _ in range(self.steps):
            x, action = self.x, int(self.rng.choice(ACTIONS, p=probabilities(theta, self.x[None])[0][0]))
            self.x, reward, terminated, truncated, _ = self.env.step(action)
            rows.append((x, action, reward, self.x, terminated, truncated))
            self.episode_return += reward
            if terminated or truncated:
                self.returns.append(self.episode_return)
                self.episode_return, (self.x, _) = 0.0, self.env.reset()
        return self.estimate(theta, *(np.array(column) for column in zip(*rows, strict=True)))

    def estimate(self, theta, x, taken, rewards, after, terminated, truncated):
        """The gradient of a rollout. The values are fitted last: otherwise the fit would explain its own noise."""
        seen, values, ended = features(x), features(x) @ self.w, terminated | truncated
        following = np.where(terminated, 0.0, features(after) @ self.w)  # a truncation only stops looking
        advantages = gae(rewards, values, following, ended, LAMBDA)
        missing = gae(rewards, values, following, ended, 1.0)  # of V to the discounted return
        self.w = self.w + np.linalg.solve(seen.T @ seen + RIDGE * len(x) * np.eye(len(self.w)), seen.T @ missing)
        centred = advantages - advantages.mean()
        return policy_gradient(theta, x, taken, centred / (np.sqrt((centred**2).mean()) + 1e-8) / len(x))


# The server (Algorithm 1 of the paper).


class Server:
    def __init__(self, theta, alpha, eta):
        self.theta = np.array(theta, np.float64)  # theta_k: what is evaluated and delivered
        self.theta_lookahead = self.theta.astype(np.float32)  # theta~_k: what agents sample with
        self.direction = np.zeros_like(self.theta)  # d_k
        self.alpha, self.eta, self.iteration = alpha, eta, 0

    def apply(self, gradient, version):
        """One gradient, taken at theta~ of iteration `version`; returns its delay. A zero gradient moves nothing."""
        if gradient.any():
            alpha = self.alpha(self.iteration, version)
            self.direction = (1 - alpha) * self.direction + alpha * gradient.astype(np.float64)
            factor = 1 / norm(self.direction) * self.eta(self.iteration, version)
            step = factor * self.direction  # |step| = eta, however long the gradient was
            self.theta = self.theta + step
            self.theta_lookahead = (self.theta + (1 - alpha) / alpha * step).astype(np.float32)
        self.iteration += 1
        return self.iteration - 1 - version


# Asynchrony: a heap of who finishes when. Agent i takes seconds[i] for a gradient.


def federate(server, agents, seconds, gradients):
    """Applies so many gradients in the order of their arrival; yields (time, agent, delay) after each."""
    given = [(server.theta_lookahead, server.iteration)] * len(agents)
    arrivals = sorted((duration, number) for number, duration in enumerate(seconds))  # ties: the smaller number first
    for _ in range(gradients):
        now, number = heapq.heappop(arrivals)
        theta, version = given[number]
        delay = server.apply(agents[number].gradient(theta), version)
        given[number] = (server.theta_lookahead, server.iteration)  # this agent alone gets fresh parameters
        heapq.heappush(arrivals, (now + seconds[number], number))
        yield now, number, delay


if __name__ == "__main__":
    total, agents = 240, [Agent(number) for number in range(4)]
    server = Server(initial_theta(np.random.default_rng(0)), lambda k, v: 0.2, lambda k, v: 0.1 * (1 - k / total))
    for now, number, delay in federate(server, agents, (1.0, 2.0, 3.0, 4.0), total):
        if server.iteration % 20 == 0:
            mean = np.mean([value for agent in agents for value in agent.returns[-5:]])
            print(f"{now:5.1f} s: gradient {server.iteration:3}, of agent {number}, delay {delay}; return {mean:5.1f}")
