"""The ray engine: the same federation with agents that are actors on a Ray cluster. The only place that imports Ray.

cluster   joins a running one, or starts one on this machine
actor     an agent, in a process of the cluster
pool      all of them, seen from the server: placed, replaced, asked, their states kept
"""

import importlib.util

from afedpg.errors import ConfigError

if importlib.util.find_spec("ray") is None:
    raise ConfigError("engine: Ray is not installed; `pip install 'afedpg[ray]'` brings it, --engine local needs none")
