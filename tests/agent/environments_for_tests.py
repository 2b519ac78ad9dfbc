"""Small environments that do one thing each."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """A random walk whose steps come from the environment's own seeded stream; ends after `length` steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, length=20):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.standard_normal(2)
        self.steps = 0
        return self.state, {}

    def step(self, action):
        self.state += self.np_random.standard_normal(2) + (0.1 if action else -0.1)  # in place, on purpose
        self.steps += 1
        return self.state, float(self.state[0]), self.steps >= self.length, False, {}


class Failing(Walk):
    """Goes wrong, in the way named, at the agent's step 30."""

    def __init__(self, how):
        super().__init__()
        self.how, self.total = how, 0

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.total += 1
        if self.total == 31:
            if self.how == "raises":
                raise RuntimeError("the wheel came off")
            if self.how == "reward":
                reward = float("nan")
            if self.how == "observation":
                observation = np.array([np.inf, 0.0])
            if self.how == "shape":
                observation = np.zeros(3)
        return observation, reward, terminated, truncated, info


class Forgetful(Walk):
    """Does not honour its seed, so it cannot be brought back."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None if hasattr(self, "state") else seed, options=options)


class Pictured(Walk):
    render_mode = "rgb_array"

    def render(self):
        return np.full((33, 51, 3), 10 * self.steps, np.uint8)


class Counting(Walk):
    """Shows nothing of what it remembers: the actions taken, which are the reward."""

    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return np.zeros(2), {}

    def step(self, action):
        self.taken += int(action)
        return np.zeros(2), float(self.taken), False, False, {}


class Endless(Walk):
    def __init__(self):
        super().__init__(length=10**9)


class Dials(gymnasium.Env):
    """Every dial shows what it is to be set to; the reward is the share of dials that were. Ten times an episode."""

    def __init__(self, space=None):
        self.action_space = space or spaces.MultiDiscrete([3, 2, 4])
        self.observation_space = self.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        reward = float(np.mean(action == self.shown))
        self.steps += 1
        return self._show(), reward, False, self.steps == 10, {}

    def _show(self):
        draws = self.np_random.random(self.action_space.shape)
        if isinstance(self.action_space, spaces.MultiBinary):
            self.shown = (draws < 0.5).astype(np.int8)
        else:
            self.shown = (self.action_space.start + draws * self.action_space.nvec).astype(self.action_space.dtype)
        return self.shown


class Corners(gymnasium.Env):
    """A bright pixel in one of four corners, with a dim one anywhere; the reward is 1 for naming the corner."""

    STEPS = 10
    observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self._draw()
        return self._look(), {}

    def step(self, action):
        reward = float(action == self.corner)
        self.steps += 1
        self._draw()
        return self._look(), reward, False, self.steps == self.STEPS, {}

    def _draw(self):
        self.corner, self.row, self.column = self.np_random.integers(0, (4, 8, 8))

    def _look(self):
        picture = np.zeros(self.observation_space.shape, np.uint8)
        flat = picture.reshape(8, 8)
        flat[self.row, self.column] = 100
        flat[7 * (self.corner // 2), 7 * (self.corner % 2)] = 255
        return picture
