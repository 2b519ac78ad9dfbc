"""The server: a function from its state and an event to the next state."""
