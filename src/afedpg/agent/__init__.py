"""What an agent does: a function from its state and a Task to a report."""
