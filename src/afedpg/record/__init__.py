"""What stays of a run: its folder, journal, checkpoints, run.db and curves. Nothing here is ever unpickled."""
