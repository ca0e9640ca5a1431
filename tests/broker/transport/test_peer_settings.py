"""What is kept of the settings that a peer announces."""

from h2.settings import SettingCodes

from broker.transport.peer_settings import ENCODER_TABLE_BYTES_MAX, PeerSettings


def test_settings_that_nobody_knows_are_not_kept() -> None:
    settings = PeerSettings(client=True)
    known = len(settings)
    settings.update(dict.fromkeys(range(1000, 60000), 1))
    assert len(settings) == known


def test_a_peer_may_allow_our_encoder_a_smaller_table_but_no_larger_one() -> None:
    settings = PeerSettings(client=True)
    for asked, taken in ((1 << 31, ENCODER_TABLE_BYTES_MAX), (100, 100)):
        settings[SettingCodes.HEADER_TABLE_SIZE] = asked
        settings.acknowledge()
        assert settings.header_table_size == taken
