"""The rows that results are judged by, the search behind the presets, and published curves; not in the wheel."""
