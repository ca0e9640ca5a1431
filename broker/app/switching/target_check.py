"""Looks whether the log can be switched to a place, before anything is begun."""

from broker.app.process_errors import CannotStart
from broker.app.stores.kafka_storage import kafka_wal
from broker.core.cluster.wal_alter import SEGMENTED, AlterRefusal, Impossible, shown
from broker.process_settings import Settings
from broker.wal.kafka.topic_ids import NoTopicIds


async def unreachable(settings: Settings, place: str) -> AlterRefusal | None:
    """Why a place cannot take the log now; None: it can, as far as that can be seen."""
    if place == SEGMENTED:
        return None
    given = settings.model_copy(update={"wal": place})
    try:
        with kafka_wal(given, "", NoTopicIds(), lambda _: None) as wal:
            away = await wal.why_away()
    except CannotStart as error:
        away = str(error)
    if not away:
        return None
    cause = f"the log stays where it is: {shown(place)} cannot be used: {away}"
    return AlterRefusal(Impossible.UNREACHABLE, cause)
