"""The paper's figures and its table, one module each: which runs they need, what they measure, what they conclude.

Choices (the command line)
  -> jobs (runs and measurements: done once, several at a time)
  -> Outcome (tables, figures, verdicts) -> report.html
"""
