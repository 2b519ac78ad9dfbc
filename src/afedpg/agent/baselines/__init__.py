"""What is subtracted from the returns: a fit per rollout, or a critic."""
