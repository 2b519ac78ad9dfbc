"""From a rollout to what an agent sends."""
