"""The least that a policy of one's own can be."""

import torch


class Tabular(torch.nn.Module):
    """Does not look at the observation."""

    def __init__(self, actions):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(actions))

    def log_prob(self, observations, actions):
        return torch.log_softmax(self.logits, 0)[actions]

    def sample(self, observations, generator):
        return torch.multinomial(torch.softmax(self.logits, 0), len(observations), True, generator=generator)

    def mode(self, observations):
        return self.logits.argmax().expand(len(observations))


def tabular(observations, actions):
    return Tabular(int(actions.n))
