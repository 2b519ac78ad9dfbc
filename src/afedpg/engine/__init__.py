"""Who decides when agents and server meet: virtual time or real time."""
