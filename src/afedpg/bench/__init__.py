"""Benchmarks: every one compares subject and reference in one process, interleaved, and reports ratios."""
