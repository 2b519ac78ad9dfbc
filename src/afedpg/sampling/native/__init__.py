"""Rollouts of MuJoCo and classic tasks in one compiled loop."""
