"""Agents that lie, to see what a federation stands.

reports     what one agent can do by itself to the report it sends
worlds      what it can do to the environment its report is made in
omniscient  what agents could do that knew every honest contribution, and the defence
shipped     all of them by name
"""
