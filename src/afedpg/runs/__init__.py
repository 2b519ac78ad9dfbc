"""What a command does, whichever the engine: train, resume, replay, evaluate, serve."""
