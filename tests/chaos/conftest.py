"""`pytest tests/chaos --long` runs everything at full length; without it only the short set runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
