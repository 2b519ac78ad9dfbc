"""The aggregators that come with the package, by name; config.AGGREGATORS lists the same names."""

from __future__ import annotations

from afedpg.server.aggregators import Aggregator, All, Each
from afedpg.server.defences import Bounded, ClipCentred, Slots
from afedpg.server.rivals import FedAsync, FedBuff, Malenia, Newest, Rennala, Ringmaster

AGGREGATORS: dict[str, type[Aggregator]] = {
    "each": Each,
    "all": All,
    "rennala": Rennala,
    "malenia": Malenia,
    "fedbuff": FedBuff,
    "fedasync": FedAsync,
    "ringmaster": Ringmaster,
    "newest": Newest,
    "clip-centred": ClipCentred,
    "slots": Slots,
    "bounded": Bounded,
}
