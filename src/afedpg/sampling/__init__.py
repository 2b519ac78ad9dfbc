"""From a task's name to rollouts."""
